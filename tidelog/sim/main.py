"""Runs many seeds, on several processes if requested, and adds up their outcomes.

Each seed runs in several simulators, from the storage alone to a whole cluster. A seed's outcome depends on nothing but
the seed and the code, so results do not depend on how the seeds are distributed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from tidelog.sim.broker import crash
from tidelog.sim.broker.sometimes import SOMETIMES as SOMETIMES_IN_A_BROKER
from tidelog.sim.cluster.families import KINDS, ON, Family
from tidelog.sim.cluster.run import run_seed as run_cluster_seed
from tidelog.sim.cluster.sometimes import GROUPS_SEEN, SOMETIMES_WITH
from tidelog.sim.cluster.sometimes import SOMETIMES as SOMETIMES_IN_A_CLUSTER
from tidelog.sim.cluster.traffic import SHARE, Mix
from tidelog.sim.kit.batches import spread
from tidelog.sim.kit.outcome import Outcome
from tidelog.sim.storage import log_scenario, slot_scenario

CHUNK_SEEDS = 4
COUNTED_FROM_RUNS = 500
"""Runs from which on rare events are expected to happen."""

Progress = Callable[[int, int], None]
"""Callback after each seed: (seeds done, seeds in total)."""


class Simulator(StrEnum):
    """The kinds of simulators."""

    STORAGE = "storage"
    """A partition log on one disk, and a Paxos replica's slots on another."""
    BROKER = "broker"
    """A broker with its clients."""
    CLUSTER = "cluster"
    """Several brokers, the network between them, and their administrators."""


ALL = tuple(Simulator)
"""All simulators, the small ones first."""


@dataclass(slots=True)
class Summary:
    """The sum of the outcomes of a batch of seeds."""

    first_seed: int
    simulators: Sequence[Simulator] = ALL
    mix: Mix | None = None
    groups: bool | None = None
    families: Sequence[Family] = ON
    runs: int = 0
    records_acknowledged: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    """Number of times that each event happened. Names that begin with `disk: ` are faults, those of a cluster begin
    with `cluster: `."""
    failures: list[Outcome] = field(default_factory=list)

    @property
    def never_happened(self) -> list[str]:
        """Events that should happen sometimes and did not; empty if there were too few runs to tell."""
        if self.runs < COUNTED_FROM_RUNS:
            return []
        expected = list(SOMETIMES_IN_A_BROKER) if Simulator.BROKER in self.simulators else []
        if Simulator.CLUSTER in self.simulators:
            expected += map(_in_a_cluster, GROUPS_SEEN if self.groups else SOMETIMES_IN_A_CLUSTER)
            expected += [_in_a_cluster(f"fault: {kind}") for family in self.families for kind in KINDS[family]]
            for runs, names in SOMETIMES_WITH.items():
                if self.counters[_in_a_cluster(runs)] >= COUNTED_FROM_RUNS * SHARE:
                    expected += map(_in_a_cluster, names)
        return [name for name in expected if not self.counters[name]]

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.never_happened

    @property
    def faults(self) -> int:
        """Number of faults that were injected."""
        kinds = ("disk: ", _in_a_cluster("fault: "))
        return sum(count for name, count in self.counters.items() if name.startswith(kinds))

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.records_acknowledged += outcome.records_acknowledged
        self.counters.update(outcome.counters)
        if outcome.violations:
            self.failures.append(outcome)


def replay_command(
    seed: int,
    simulators: Sequence[Simulator] = ALL,
    mix: Mix | None = None,
    groups: bool | None = None,
    families: Sequence[Family] = ON,
) -> str:
    """Returns the command that runs one seed again."""
    options = [f" --of {simulators[0]}"] if len(simulators) == 1 else []
    options += [] if mix is None else [f" --protocol {mix}"]
    options += [] if groups is None else [" --groups" if groups else " --no-groups"]
    options += [] if families == ON else [f" --faults {','.join(families) or 'none'}"]
    return f"tidelog sim --runs 1 --seed {seed}{''.join(options)}"


def run(
    runs: int,
    first_seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
    simulators: Sequence[Simulator] = ALL,
    mix: Mix | None = None,
    groups: bool | None = None,
    families: Sequence[Family] = ON,
) -> Summary:
    """Runs the seeds `first_seed` to `first_seed + runs - 1` on `jobs` processes, and calls `progress` after each.
    `mix` (commit protocols) and `groups` apply to clusters; None leaves them to the seed. `families` are kinds of
    faults beside the usual ones."""
    summary = Summary(first_seed, simulators, mix, groups, families)
    seeds = range(first_seed, first_seed + runs)
    run_one = partial(run_seed, simulators, mix, groups, families=families)
    for outcome in spread(run_one, seeds, jobs, chunk_items=CHUNK_SEEDS):
        summary.add(outcome)
        if progress is not None:
            progress(summary.runs, runs)
    return summary


def run_seed(
    simulators: Sequence[Simulator],
    mix: Mix | None,
    groups: bool | None,
    seed: int,
    families: Sequence[Family] = ON,
) -> Outcome:
    """Runs one seed in each of these simulators, and returns the joint outcome."""
    whole = Outcome(seed, (), "", Counter(), 0)
    for simulator in simulators:
        part = _run_cluster(seed, mix, groups, families) if simulator is Simulator.CLUSTER else _RUN[simulator](seed)
        prefix = f"{simulator}: " if len(simulators) > 1 else ""
        whole = Outcome(
            seed,
            (*whole.violations, *(f"{prefix}{violation}" for violation in part.violations)),
            whole.trace + part.trace,
            whole.counters + part.counters,
            whole.records_acknowledged + part.records_acknowledged,
            whole.events + part.events,
        )
    return whole


def _run_storage(seed: int) -> Outcome:
    violations, traces = list[str](), list[str]()
    for name, run_seed in (("one log", log_scenario.run_seed), ("one replica", slot_scenario.run_seed)):
        try:
            traces.append(run_seed(seed))
        except Exception as error:  # noqa: BLE001 - whatever it was, the seed has failed
            violations.append(f"{name}: {type(error).__name__}: {error}")
    return Outcome(seed, tuple(violations), "".join(traces), Counter(), 0)


def _run_cluster(seed: int, mix: Mix | None, groups: bool | None, families: Sequence[Family]) -> Outcome:
    outcome = run_cluster_seed(seed, mix, groups, families)
    counters = Counter({_in_a_cluster(name): count for name, count in outcome.counters.items()})
    return Outcome(seed, outcome.violations, outcome.trace, counters, outcome.records_acknowledged, outcome.events)


def _in_a_cluster(name: str) -> str:
    return f"cluster: {name}"


_RUN: dict[Simulator, Callable[[int], Outcome]] = {Simulator.STORAGE: _run_storage, Simulator.BROKER: crash.run_seed}
