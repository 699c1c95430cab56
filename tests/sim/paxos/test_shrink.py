"""A failing scenario becomes smaller, fails as before, and can be given to somebody else in one line."""

from __future__ import annotations

import msgspec

from tests.sim.paxos.mutants import fill_replaces_a_ghost_by_nop, mutated
from tidelog.sim.kit.shrink import Shrinking
from tidelog.sim.paxos.drawing import draw_scenario
from tidelog.sim.paxos.run import Outcome, lose_messages, run_scenario, shrink
from tidelog.sim.paxos.scenario import Scenario, simpler


def first_failure() -> Outcome:
    outcomes = (run_scenario(draw_scenario(seed)) for seed in range(300))
    return next(outcome for outcome in outcomes if outcome.failure is not None)


def test_a_failing_scenario_is_made_smaller_and_fails_as_before() -> None:
    with mutated(fill_replaces_a_ghost_by_nop):
        found = first_failure()
        smaller = shrink(found)
        again = run_scenario(smaller)
    assert again.verdict == found.verdict
    assert len(smaller.steps) < len(found.scenario.steps) / 2
    assert again.amount < found.amount
    assert run_scenario(smaller).failure is None, "it is the mutant that fails, not the smaller scenario"


def test_a_scenario_travels_as_text() -> None:
    with mutated(fill_replaces_a_ghost_by_nop):
        found = first_failure()
        text = msgspec.json.encode(found.scenario)
        received = msgspec.json.decode(text, type=Scenario)
        assert received == found.scenario
        assert run_scenario(received).trace == found.trace


def test_only_what_is_needed_is_left() -> None:
    """With a failure that needs two of the actions and one of the messages, and nothing else."""
    scenario = draw_scenario(3)
    needed = {scenario.steps[2], scenario.steps[-1]}

    def fails(candidate: Scenario) -> bool:
        return needed <= set(candidate.steps) and 7 not in candidate.dropped and candidate.swarm.window > 1

    shrinking = Shrinking(scenario, fails)
    shrinking.run(simpler)
    lose_messages(shrinking, 20)
    smaller = shrinking.scenario
    assert set(smaller.steps) == needed
    assert smaller.dropped == tuple(n for n in range(1, 21) if n != 7)
    assert (smaller.swarm.loss, smaller.swarm.late, smaller.swarm.window) == (0.0, 0.0, 2)
