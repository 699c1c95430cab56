"""Runs scenarios, one or many, and says what came of them."""

from __future__ import annotations

import concurrent.futures  # determinism: seeds are independent, and results are gathered in their order
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from tidelog.sim.ring1.drawing import draw_scenario
from tidelog.sim.ring1.healing import Healing
from tidelog.sim.ring1.invariant import Invariant
from tidelog.sim.ring1.rules import INVARIANTS
from tidelog.sim.ring1.scenario import Scenario
from tidelog.sim.ring1.shrink import Shrinking
from tidelog.sim.ring1.simulation import Observer, Simulation
from tidelog.sim.ring1.sometimes import SOMETIMES
from tidelog.sim.ring1.story import Story

CHUNK_SEEDS = 100
COUNTED_FROM_RUNS = 5000
"""In fewer runs, rare things may well not happen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    scenario: Scenario
    trace: int
    events: int
    messages: int
    counters: Counter[str]
    failure: Exception | None = None

    @property
    def verdict(self) -> str:
        """What failed, in a word or two; empty if nothing did."""
        if self.failure is None:
            return ""
        text = str(self.failure).partition("\n")[0]
        return text.partition(":")[0] if ":" in text else f"{type(self.failure).__name__} {text}"


def run_scenario(
    scenario: Scenario,
    invariants: tuple[type[Invariant], ...] = INVARIANTS,
    observer: Observer | None = None,
) -> Outcome:
    """Runs one scenario. What is raised, a broken invariant of the simulator's or of the code's own or anything else,
    ends it and is its outcome."""
    sim = Simulation(scenario, invariants, observer)
    failure = None
    try:
        story = Story(sim)
        story.tell()
        sim.judge_disks()
        Healing(story).run()
        sim.judge_disks()
    except Exception as error:  # noqa: BLE001 - whatever it was, the scenario has failed
        failure = error
    return Outcome(scenario, sim.trace, sim.events, sim.network.sent, sim.truth.counters, failure)


@dataclass(slots=True)
class Batch:
    """What many runs came to."""

    runs: int = 0
    events: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    @property
    def never_happened(self) -> list[str]:
        """What should happen sometimes and did not; nothing if the batch is too small to tell."""
        return [name for name in SOMETIMES if not self.counters[name]] if self.runs >= COUNTED_FROM_RUNS else []

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.events += outcome.events
        self.counters.update(outcome.counters)
        if outcome.failure is not None:
            self.failures.append(outcome)

    def merge(self, other: Batch) -> None:
        self.runs += other.runs
        self.events += other.events
        self.counters.update(other.counters)
        self.failures += other.failures


Progress = Callable[[Batch, int], None]
"""What is done, and how many runs are wanted."""


def run_seeds(
    first: int, count: int, *, failures_max: int = 1, jobs: int = 1, progress: Progress | None = None
) -> Batch:
    """Runs the scenarios of these seeds, on `jobs` processes, until so many have failed. `progress` is told now and
    then. Which seeds fail does not depend on how they are spread."""
    batch = Batch()
    chunks = [range(seed, min(seed + CHUNK_SEEDS, first + count)) for seed in range(first, first + count, CHUNK_SEEDS)]
    work = partial(_run_chunk, failures_max)
    with ExitStack() as stack:
        done: Iterator[Batch] = map(work, chunks)
        if jobs > 1:
            pool = concurrent.futures.ProcessPoolExecutor(jobs)
            stack.callback(pool.shutdown, cancel_futures=True)
            done = pool.map(work, chunks)
        for part in done:
            batch.merge(part)
            if progress is not None:
                progress(batch, count)
            if len(batch.failures) >= failures_max:
                break
    return batch


def _run_chunk(failures_max: int, seeds: range) -> Batch:
    batch = Batch()
    for seed in seeds:
        batch.add(run_scenario(draw_scenario(seed)))
        if len(batch.failures) >= failures_max:
            break
    return batch


def shrink(outcome: Outcome, invariants: tuple[type[Invariant], ...] = INVARIANTS) -> Scenario:
    """The smallest scenario found that fails as this one did."""

    def fails(scenario: Scenario) -> bool:
        return run_scenario(scenario, invariants).verdict == outcome.verdict

    assert outcome.verdict, "there is nothing to shrink"
    return Shrinking(outcome.scenario, fails).run(lambda scenario: run_scenario(scenario, invariants).messages)
