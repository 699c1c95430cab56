"""Patterns of the metadata log in a cluster with one voter: who only reads the log gives its entries back."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.sim.cluster.stage import scenario
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Order, Strike
from tidelog.sim.cluster.sweep_strikes import ENTRIES, MASKS

VOTER = 1
STRUCK_S = (1.8, 2.0, 2.5)
"""Several times, for at some of them a power cut has taken the entries from the learner, and nothing may be struck."""
TOPICS = [Order(1.0 + number / 10, "create", VOTER, number, 1.0) for number in range(2 * ENTRIES)]


@pytest.mark.parametrize("orders", [[], TOPICS], ids=["who the learner is", "topics"])
def test_a_learner_gives_an_only_voter_its_last_entries(orders: list[Order]) -> None:
    """The voter has lost the very entry that says where the learner is; or only entries about topics."""
    first_loses_all = float(sum(MASKS**entry for entry in range(ENTRIES)))
    repaired = 0
    for struck_s in STRUCK_S:
        strike = Strike(struck_s, "pattern of the metadata log", (VOTER,), 0.0, first_loses_all)
        story = scenario(*orders, strike, factor=1, minimum=1)
        outcome = run_scenario(structs.replace(story, swarm=structs.replace(story.swarm, voters=1, learners=1)))
        assert outcome.violations == (), struck_s
        assert bool(outcome.counters["payload repaired from a peer"]) == bool(outcome.counters["pattern of damage"])
        repaired += outcome.counters["payload repaired from a peer"]
    assert repaired
