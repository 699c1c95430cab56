"""Runs plans, one or many, and says what came of them."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidelog.sim.isr.actions import ACTIONS
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.healing import Healing
from tidelog.sim.isr.parts import SHIPPED, Parts
from tidelog.sim.isr.plans import Plan, Step, draw_plan
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.sometimes import SOMETIMES
from tidelog.sim.kit import batches
from tidelog.sim.kit.batches import Batch, Progress, verdict_of
from tidelog.sim.kit.shrink import Shrinking

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
    def seed(self) -> int:
        return self.plan.seed

    @property
    def amount(self) -> int:
        return self.committed

    @property
    def verdict(self) -> str:
        """What failed, in a few words; empty if nothing did."""
        return verdict_of(self.failure)


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


def run_seeds(
    mix: str,
    first: int,
    count: int,
    *,
    parts: Parts = SHIPPED,
    failures_max: int = 1,
    jobs: int = 1,
    progress: Progress[Outcome] | None = None,
) -> Batch[Outcome]:
    """Runs the plans of these seeds, on `jobs` processes, until so many have failed."""
    return batches.run_seeds(
        partial(_run_seed, mix, parts),
        first,
        count,
        sometimes=SOMETIMES[mix],
        failures_max=failures_max,
        jobs=jobs,
        progress=progress,
    )


def _run_seed(mix: str, parts: Parts, seed: int) -> Outcome:
    return run_plan(draw_plan(mix, seed), parts)


def shrink(outcome: Outcome, parts: Parts = SHIPPED) -> Plan:
    """Returns a plan of fewer steps that fails as this one did."""
    assert outcome.verdict, "there is nothing to shrink"
    return Shrinking(outcome.plan, lambda plan: run_plan(plan, parts).verdict == outcome.verdict).run("steps")
