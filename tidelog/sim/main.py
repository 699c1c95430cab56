"""Many seeds: run them, on several processes if wanted, and add up what they came to.

Each seed runs both rings, the log alone (`tidelog.sim.log_scenario`) and the broker (`tidelog.sim.crash`). A seed's
outcome depends on nothing but the seed and the code, so results are the same however the seeds are spread.
"""

from __future__ import annotations

import concurrent.futures  # determinism: seeds are independent, and results are gathered in their order
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidelog.sim import log_scenario
from tidelog.sim.counters import missing
from tidelog.sim.crash import Outcome, run_seed

CHUNK_SEEDS = 4
COUNTED_FROM_RUNS = 500
"""In fewer runs, rare things may well not happen."""

Progress = Callable[[int, int], None]
"""(seeds done, seeds in all)"""


@dataclass(slots=True)
class Summary:
    """What a batch of seeds came to."""

    first_seed: int
    runs: int = 0
    records_acknowledged: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    """What happened how often; names that begin with `disk: ` are faults."""
    failures: list[Outcome] = field(default_factory=list)

    @property
    def never_happened(self) -> list[str]:
        """Things that should happen sometimes and did not; empty if the batch is too small to tell."""
        return missing(self.counters) if self.runs >= COUNTED_FROM_RUNS else []

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.never_happened

    @property
    def faults(self) -> int:
        """Faults that were injected."""
        return sum(count for name, count in self.counters.items() if name.startswith("disk: "))

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.records_acknowledged += outcome.records_acknowledged
        self.counters.update(outcome.counters)
        if outcome.violations:
            self.failures.append(outcome)


def replay_command(seed: int) -> str:
    """What runs one seed again."""
    return f"tidelog sim --runs 1 --seed {seed}"


def run(runs: int, first_seed: int = 0, jobs: int = 1, progress: Progress | None = None) -> Summary:
    """Runs seeds `first_seed` to `first_seed + runs - 1` on `jobs` processes; `progress` is told after each."""
    summary = Summary(first_seed)
    for outcome in _outcomes(range(first_seed, first_seed + runs), jobs):
        summary.add(outcome)
        if progress is not None:
            progress(summary.runs, runs)
    return summary


def _outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run_both_rings, seeds)
        return
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_both_rings, seeds, chunksize=CHUNK_SEEDS)


def run_both_rings(seed: int) -> Outcome:
    """One seed: a history of one log, then a broker's."""
    violations: tuple[str, ...] = ()
    try:
        log_trace = log_scenario.run_seed(seed)
    except Exception as error:  # noqa: BLE001 - whatever it was, the seed has failed
        log_trace, violations = "", (f"one log: {type(error).__name__}: {error}",)
    outcome = run_seed(seed)
    return Outcome(
        seed,
        violations + outcome.violations,
        log_trace + outcome.trace,
        outcome.counters,
        outcome.records_acknowledged,
    )
