"""Runs scenarios, one or many, and reports their outcomes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Unpack

from tidelog.sim.isr.actions import ACTIONS
from tidelog.sim.isr.dice import Dice
from tidelog.sim.isr.healing import Healing
from tidelog.sim.isr.parts import SHIPPED, Parts
from tidelog.sim.isr.repairing import Repairing
from tidelog.sim.isr.scenario import Scenario, Step, draw_scenario
from tidelog.sim.isr.sometimes import SOMETIMES
from tidelog.sim.kit import batches
from tidelog.sim.kit.batches import Batch, How
from tidelog.sim.kit.outcome import ScenarioOutcome
from tidelog.sim.kit.shrink import Shrinking

STEP_MS = 4

Observer = Callable[[int, Step, Repairing], None]
"""Function that is called after each step."""


Outcome = ScenarioOutcome[Scenario]
"""The outcome of a run; its trace is a hash of what was committed and what was counted."""


def run_scenario(scenario: Scenario, parts: Parts = SHIPPED, observer: Observer | None = None) -> Outcome:
    """Runs one scenario. The first error, be it a broken rule, a failed assertion of the code or anything else, ends it
    and is its outcome."""
    world = Repairing(scenario.topic, parts)
    failure = None
    try:
        for number, step in enumerate(scenario.steps):
            dice = Dice(step.dice)
            world.now_ms += dice.below(STEP_MS)
            ACTIONS[step.action](world, dice)
            if observer is not None:
                observer(number, step, world)
        Healing(world, Dice(scenario.seed)).run()
    except Exception as error:  # noqa: BLE001 - whatever it was, the scenario has failed
        failure = error
    counters, committed = world.truth.counters, world.truth.committed
    trace = zlib.crc32(repr((committed, sorted(counters.items()), world.controller.now)).encode())
    return Outcome(scenario, len(committed), trace, counters, failure)


def run_seeds(
    mix: str, first: int, count: int, *, parts: Parts = SHIPPED, **how: Unpack[How[Outcome]]
) -> Batch[Outcome]:
    """Runs the scenarios of these seeds, on `jobs` processes, until `failures_max` have failed."""
    return batches.run_seeds(partial(_run_seed, mix, parts), first, count, sometimes=SOMETIMES[mix], **how)


def _run_seed(mix: str, parts: Parts, seed: int) -> Outcome:
    return run_scenario(draw_scenario(mix, seed), parts)


def shrink(outcome: Outcome, parts: Parts = SHIPPED) -> Scenario:
    """Returns a scenario of fewer steps that fails with the same verdict as the outcome's scenario."""
    assert outcome.verdict, "there is nothing to shrink"
    return Shrinking(outcome.scenario, lambda scenario: run_scenario(scenario, parts).verdict == outcome.verdict).run()
