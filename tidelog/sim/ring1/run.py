"""Runs scenarios, one or many, and says what came of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tidelog.sim.ring1.drawing import draw_scenario
from tidelog.sim.ring1.healing import Healing
from tidelog.sim.ring1.invariant import Invariant
from tidelog.sim.ring1.rules import INVARIANTS
from tidelog.sim.ring1.scenario import Scenario
from tidelog.sim.ring1.shrink import Shrinking
from tidelog.sim.ring1.simulation import Observer, Simulation
from tidelog.sim.ring1.story import Story


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    scenario: Scenario
    trace: int
    events: int
    messages: int
    counters: Counter[str]
    failure: AssertionError | None = None

    @property
    def verdict(self) -> str:
        """What failed, in a word or two; empty if nothing did."""
        if self.failure is None:
            return ""
        text = str(self.failure).partition("\n")[0]
        return text.partition(":")[0] if ":" in text else f"assert {text}"


def run_scenario(
    scenario: Scenario,
    invariants: tuple[type[Invariant], ...] = INVARIANTS,
    observer: Observer | None = None,
) -> Outcome:
    """Runs one scenario. A broken invariant, of the simulator or of the code itself, ends it and is its outcome."""
    sim = Simulation(scenario, invariants, observer)
    failure = None
    try:
        story = Story(sim)
        story.tell()
        sim.judge_disks()
        Healing(story).run()
        sim.judge_disks()
    except AssertionError as error:
        failure = error
    return Outcome(scenario, sim.trace, sim.events, sim.network.sent, sim.truth.counters, failure)


@dataclass(slots=True)
class Batch:
    """What many runs came to."""

    runs: int = 0
    events: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.events += outcome.events
        self.counters.update(outcome.counters)
        if outcome.failure is not None:
            self.failures.append(outcome)


def run_seeds(first: int, count: int, *, failures_max: int = 1) -> Batch:
    """Runs the scenarios of these seeds, in order, until so many have failed."""
    batch = Batch()
    for seed in range(first, first + count):
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
