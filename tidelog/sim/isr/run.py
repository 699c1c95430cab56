"""Runs plans, one or many, and says what came of them."""

from __future__ import annotations

import concurrent.futures  # determinism: seeds are independent, and results are gathered in their order
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from tidelog.sim.isr.actions import ACTIONS
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.healing import Healing
from tidelog.sim.isr.plans import Plan, Step, draw_plan
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.sometimes import SOMETIMES
from tidelog.sim.isr.world import SHIPPED, Parts

CHUNK_SEEDS = 100
COUNTED_FROM_RUNS = 5_000
"""In fewer runs, rare things may well not happen."""
STEP_MS = 4

Observer = Callable[[int, Step, Repairing], None]
"""Told each step, once it was taken."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    plan: Plan
    counters: Counter[str]
    committed: int
    trace: int
    """Of what was committed and what was counted: equal runs have equal ones."""
    failure: Exception | None = None

    @property
    def verdict(self) -> str:
        """What failed, in a few words; empty if nothing did."""
        if self.failure is None:
            return ""
        text = str(self.failure).partition("\n")[0]
        return text.partition(":")[0] if ":" in text else f"{type(self.failure).__name__} {text}"


def run_plan(plan: Plan, parts: Parts = SHIPPED, observer: Observer | None = None) -> Outcome:
    """Runs one plan. What is raised, a broken invariant of the judge's or of the code's own or anything else, ends it
    and is its outcome."""
    world = Repairing(plan.topic, parts)
    failure = None
    try:
        for number, step in enumerate(plan.steps):
            dice = Dice(step.dice)
            world.now_ms += dice.below(STEP_MS)
            ACTIONS[step.action](world, dice)
            if observer is not None:
                observer(number, step, world)
        Healing(world, Dice(plan.seed)).run()
    except Exception as error:  # noqa: BLE001 - whatever it was, the plan has failed
        failure = error
    counters, committed = world.truth.counters, world.truth.committed
    trace = zlib.crc32(repr((committed, sorted(counters.items()), world.controller.now)).encode())
    return Outcome(plan, counters, len(committed), trace, failure)


@dataclass(slots=True)
class Batch:
    """What many runs came to."""

    mix: str
    runs: int = 0
    committed: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    @property
    def never_happened(self) -> list[str]:
        """What should happen sometimes and did not; nothing if the batch is too small to tell."""
        return (
            [name for name in SOMETIMES[self.mix] if not self.counters[name]] if self.runs >= COUNTED_FROM_RUNS else []
        )

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.committed += outcome.committed
        self.counters.update(outcome.counters)
        if outcome.failure is not None:
            self.failures.append(outcome)

    def merge(self, other: Batch) -> None:
        self.runs += other.runs
        self.committed += other.committed
        self.counters.update(other.counters)
        self.failures += other.failures


Progress = Callable[[Batch, int], None]
"""What is done, and how many runs are wanted."""


def run_seeds(
    mix: str,
    first: int,
    count: int,
    *,
    parts: Parts = SHIPPED,
    failures_max: int = 1,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Batch:
    """Runs the plans of these seeds, on `jobs` processes, until so many have failed. Which seeds fail does not depend
    on how they are spread."""
    batch = Batch(mix)
    chunks = [range(seed, min(seed + CHUNK_SEEDS, first + count)) for seed in range(first, first + count, CHUNK_SEEDS)]
    work = partial(_run_chunk, mix, parts, failures_max)
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


def _run_chunk(mix: str, parts: Parts, failures_max: int, seeds: range) -> Batch:
    batch = Batch(mix)
    for seed in seeds:
        batch.add(run_plan(draw_plan(mix, seed), parts))
        if len(batch.failures) >= failures_max:
            break
    return batch


def shrink(outcome: Outcome, parts: Parts = SHIPPED) -> Plan:
    """A plan of fewer steps that fails as this one did (Zeller's ddmin, greedily)."""
    assert outcome.verdict, "there is nothing to shrink"
    plan, before = outcome.plan, None
    while plan != before:
        before, size = plan, len(plan.steps)
        while size >= 1:
            for stop in range(len(plan.steps), 0, -size):
                fewer = structs.replace(plan, steps=plan.steps[: max(0, stop - size)] + plan.steps[stop:])
                if run_plan(fewer, parts).verdict == outcome.verdict:
                    plan = fewer
            size //= 2
    return plan
