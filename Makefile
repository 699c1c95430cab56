# Each target is one or two calls of a tool; the tools' settings are in pyproject.toml.

PYTHON ?= $(shell for python in python3.11 python3; do $$python -c "" 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
SETUP := .venv/.set-up

RUNS ?= 20
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo fmt lint test spark sim sim-groups sim-paxos sim-isr group-faults bench docs clean ci

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(SETUP) ## Make .venv with everything in it; done again only when pyproject.toml changes

$(SETUP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "tidelog needs Python 3.11 or later; on Debian: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
	  { echo "$(PYTHON) lacks the venv module; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	@touch $@

demo: setup ## Start a broker and stream a year of flights through it
	$(BIN)/python examples/flights.py

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
	$(BIN)/python -m tools.lint_prose
	$(BIN)/codespell

test: setup ## Run all tests
	$(BIN)/pytest -n 4 --dist worksteal

spark: setup ## Run the tests of the Spark connector that need Java 17; a few minutes
	$(BIN)/pytest -m spark

sim: setup ## Simulate: RUNS= how many, SEED= the first one's number
	$(BIN)/tidelog sim --runs $(RUNS) $(if $(SEED),--seed $(SEED))

sim-groups: setup ## Simulate clusters with consumer groups: RUNS= how many, SEED= the first one's number
	$(BIN)/tidelog sim --of cluster --groups --runs $(RUNS) $(if $(SEED),--seed $(SEED)) --jobs $(or $(JOBS),2)

sim-paxos: setup ## Simulate the replicated log alone, for long: RUNS=200000 takes minutes to an hour
	$(BIN)/python -m tidelog.sim.paxos --runs $(RUNS) --seed $(or $(SEED),1) --jobs $(or $(JOBS),2)

sim-isr: setup ## Simulate primary-backup partitions alone, for long: RUNS= seeds of each fault mix
	$(BIN)/python -m tidelog.sim.isr --runs $(RUNS) --seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

group-faults: setup ## Break a consumer group and its brokers: SECONDS= for how long, SEED=
	$(BIN)/python examples/group_faults.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

bench: setup ## Measure a broker on this machine
	$(BIN)/tidelog bench

docs: setup ## Generate the reference pages again; fails if they differ from the committed ones
	$(BIN)/tidelog config docs > .venv/config.md && mv .venv/config.md docs/config.md
	$(BIN)/tidelog openapi > .venv/openapi.json && mv .venv/openapi.json docs/openapi.json
	$(BIN)/python -m tools.error_reference > .venv/errors.md && mv .venv/errors.md docs/errors.md
	git diff --exit-code --stat -- docs/config.md docs/errors.md docs/openapi.json

clean: ## Remove what can be made again, but never data
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

ci: lint test ## What must pass before a change lands
