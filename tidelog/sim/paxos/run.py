"""Runs one or many scenarios, and returns the outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from msgspec import structs

from tidelog.sim.kit import batches
from tidelog.sim.kit.batches import Batch, How
from tidelog.sim.kit.outcome import ScenarioOutcome
from tidelog.sim.kit.shrink import Shrinking
from tidelog.sim.paxos.drawing import draw_scenario
from tidelog.sim.paxos.healing import Healing
from tidelog.sim.paxos.invariant import Invariant
from tidelog.sim.paxos.rules import INVARIANTS
from tidelog.sim.paxos.scenario import Scenario, simpler
from tidelog.sim.paxos.simulation import Observer, Simulation
from tidelog.sim.paxos.sometimes import SOMETIMES
from tidelog.sim.paxos.story import Story


@dataclass(frozen=True)
class Outcome(ScenarioOutcome[Scenario]):
    """The outcome of one run."""

    messages: int = 0
    """Number of messages sent."""


def run_scenario(
    scenario: Scenario,
    invariants: tuple[type[Invariant], ...] = INVARIANTS,
    observer: Observer | None = None,
) -> Outcome:
    """Runs one scenario. An exception, such as a violated invariant or a failed assertion in the code, ends the run and
    is part of its outcome."""
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
    return Outcome(scenario, sim.events, sim.trace, sim.truth.counters, failure, sim.network.sent)


def run_seeds(first: int, count: int, **how: Unpack[How[Outcome]]) -> Batch[Outcome]:
    """Runs the scenarios of `count` seeds on `jobs` processes, until `failures_max` of them have failed."""
    return batches.run_seeds(_run_seed, first, count, sometimes=SOMETIMES, **how)


def _run_seed(seed: int) -> Outcome:
    return run_scenario(draw_scenario(seed))


def shrink(outcome: Outcome, invariants: tuple[type[Invariant], ...] = INVARIANTS) -> Scenario:
    """Returns the smallest scenario found that fails in the same way. Actions are removed first, then messages are
    lost."""

    def fails(scenario: Scenario) -> bool:
        return run_scenario(scenario, invariants).verdict == outcome.verdict

    assert outcome.verdict, "there is nothing to shrink"
    shrinking = Shrinking(outcome.scenario, fails)
    messages = run_scenario(shrinking.run(simpler), invariants).messages
    lose_messages(shrinking, messages)
    return shrinking.scenario


def lose_messages(shrinking: Shrinking[Scenario], messages: int) -> None:
    """Removes as many of the scenario's messages as it can."""
    lost = {*shrinking.scenario.dropped}
    sent = [ordinal for ordinal in range(1, messages + 1) if ordinal not in lost]
    shrinking.leave_out(
        sent, lambda scenario, kept: structs.replace(scenario, dropped=tuple(sorted({*lost, *sent}.difference(kept))))
    )
