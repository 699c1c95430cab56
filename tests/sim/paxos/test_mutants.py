"""Each rule taken away is missed: the simulator finds every mutant, and nothing without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.paxos.mutants import (
    MUTANTS,
    a_hole_breaks_nothing,
    accept_does_not_raise_the_promise,
    batches_count_behind_a_gap,
    batches_need_nothing_below,
    candidate_does_not_copy_first,
    founders_are_not_compared,
    mutated,
    new_voters_decide_before_they_are_applied,
    only_a_quorum_can_deny,
    only_the_first_payload_is_fetched,
    open_voters_are_ignored,
    voters_newer_than_the_log_on_disk,
    window_not_drained,
    window_not_drained_and_void_voters_take_effect,
)
from tests.sim.paxos.order_mutants import (
    ORDER_MUTANTS,
    batches_name_nothing,
    chosen_counts_as_released,
    floors_forget_what_has_lapsed,
    lapsed_positions_are_not_looked_at,
)
from tests.sim.planting import Patch
from tidelog.sim.paxos.drawing import draw_scenario
from tidelog.sim.paxos.rules import INVARIANTS
from tidelog.sim.paxos.run import run_scenario
from tidelog.sim.paxos.voter_rules import VotersComeAlone

SEEDS_MAX = 400
SHOWN = {
    accept_does_not_raise_the_promise: 320,
    founders_are_not_compared: 330,
    only_a_quorum_can_deny: 170,
    candidate_does_not_copy_first: 150,
    batches_count_behind_a_gap: 560,
    batches_need_nothing_below: 560,
    a_hole_breaks_nothing: 560,
    batches_name_nothing: 1_100,
    lapsed_positions_are_not_looked_at: 1_100,
    chosen_counts_as_released: 400,
    floors_forget_what_has_lapsed: 14_100,
    open_voters_are_ignored: 190,
    new_voters_decide_before_they_are_applied: 150,
}
"""The seeds from which the rarer ones are hunted, shortly before the first that shows them; the others, from 0."""
SEED_WITH_LOST_LEARNED_VOTERS = 12452
"""Of the first 21,000, one of three that choose two values."""
SEEDS_WITH_A_PAYLOAD_LOST_EVERYWHERE = (841, 164978)
"""In the first, another payload could be repaired; in the second, it is the voters', and nobody is elected."""
SEED_WITH_VOID_VOTERS = 7847
"""Of the first 30,000, one of five; look for another when scenarios are drawn differently."""


@pytest.mark.parametrize("mutant", [*MUTANTS, *ORDER_MUTANTS], ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant: Callable[[], list[Patch]]) -> None:
    with mutated(mutant):
        first = SHOWN.get(mutant, 0)
        outcomes = (run_scenario(draw_scenario(seed)) for seed in range(first, first + SEEDS_MAX))
        found = next((outcome for outcome in outcomes if outcome.failure is not None), None)
    assert found is not None
    assert run_scenario(found.scenario).failure is None, "and it is the mutant that was found"


def test_the_void_rule_holds_for_voters_even_where_they_do_not_come_alone() -> None:
    """Voters that come alone are never void. Without that, one rule more has to hold; and it does."""
    others = tuple(invariant for invariant in INVARIANTS if invariant is not VotersComeAlone)
    scenario = draw_scenario(SEED_WITH_VOID_VOTERS)
    with mutated(window_not_drained):
        assert run_scenario(scenario, others).failure is None
    with mutated(window_not_drained_and_void_voters_take_effect):
        assert run_scenario(scenario, others).failure is not None


def test_a_node_does_not_start_with_voters_newer_than_its_log() -> None:
    """Most crashes leave a log as new as the voters in it. It takes a majority that forgets what it has learned."""
    scenario = draw_scenario(SEED_WITH_LOST_LEARNED_VOTERS)
    with mutated(voters_newer_than_the_log_on_disk):
        assert run_scenario(scenario).verdict == "one value is chosen"
    assert run_scenario(scenario).failure is None


@pytest.mark.parametrize("seed", SEEDS_WITH_A_PAYLOAD_LOST_EVERYWHERE)
def test_a_payload_that_is_lost_everywhere_does_not_hold_up_the_others(seed: int) -> None:
    scenario = draw_scenario(seed)
    with mutated(only_the_first_payload_is_fetched):
        assert run_scenario(scenario).verdict == "a healed quorum settles"
    assert run_scenario(scenario).failure is None
