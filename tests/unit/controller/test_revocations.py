"""How far a broker must have applied the metadata to know of everything that was taken from it."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.controller.records import PartitionChange, PartitionRegrouped, PartitionsChanged, TopicDeleted
from tidelog.controller.revocations import Revocations, deposed
from tidelog.model.ids import NodeId

ONE, TWO = NodeId(1), NodeId(2)


def test_what_was_before_a_term_counts_against_everybody() -> None:
    revocations = Revocations()
    revocations.begin(40)
    assert (revocations.last(1), revocations.last(2)) == (40, 40)


def test_a_revocation_counts_against_those_who_lost_by_it() -> None:
    revocations = Revocations()
    revocations.begin(40)
    revocations.made(frozenset({ONE}), 50)
    assert (revocations.last(1), revocations.last(2)) == (50, 40)
    revocations.made(frozenset({ONE, TWO}), 60)
    assert (revocations.last(1), revocations.last(2)) == (60, 60)
    revocations.begin(100)
    assert revocations.last(1) == 100, "all that came before is below it"


def test_while_it_is_agreed_on_nobody_knows_whether_leadership_is_taken() -> None:
    revocations = Revocations()
    with revocations.agreeing(frozenset({ONE})):
        assert revocations.is_under_way(1) and not revocations.is_under_way(2)
    assert not revocations.is_under_way(1)


def test_a_decision_that_comes_to_nothing_is_not_under_way_any_more() -> None:
    revocations = Revocations()
    with pytest.raises(TimeoutError), revocations.agreeing(frozenset({ONE})):
        raise TimeoutError
    assert not revocations.is_under_way(1)


def change(leader: int, topic: str = "t", partition: int = 0) -> PartitionsChanged:
    return PartitionsChanged([PartitionChange(topic_id(topic), partition, leader, 1, [leader], 1)])


def test_deposed_is_who_leads_and_is_to_lead_no_more() -> None:
    image = IsrCluster().image
    assert deposed(image, [change(2)]) == {ONE}
    assert deposed(image, [change(1)]) == frozenset(), "it leads on"
    (moved,) = change(2).changes
    assert deposed(image, [PartitionRegrouped(moved, 0, 0, "", 1, 2)]) == {ONE}, "by an operator's word"
    assert deposed(image, [change(2, topic="gone"), change(2, partition=1), TopicDeleted(topic_id("t"))]) == frozenset()
