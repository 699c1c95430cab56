"""In which order brokers are restarted, and when one may be taken away."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.admin.results import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
    VoterDescription,
)
from tidelog.admin.rolling import ClusterState, not_back, not_whole, restart_order


def broker(node: int, rack: str | None = None, *, fenced: bool = False, controller: bool = False) -> BrokerDescription:
    return BrokerDescription(node, f"10.0.0.{node}", 8082, rack, fenced, controller, 100 + node, node, "", 9192)


def state(*isr: int, position: int | None = 9, voter_lives: bool = True, fenced: bool = False) -> ClusterState:
    """A cluster has brokers 1 to 3, and a partition with a replica on each."""
    brokers = (broker(1, controller=True), broker(2, fenced=fenced), broker(3))
    voters = tuple(VoterDescription(node, node, "", 0, voter_lives or node != 3) for node in (1, 2, 3))
    cluster = ClusterDescription("c", 1, 1, 9, voters, brokers)
    partition = PartitionDescription(0, 1, 0, (1, 2, 3), isr, (), ())
    topic = TopicDescription("t", "id", False, "isr", 3, 1, (partition,))
    return ClusterState(cluster, [topic], {1: 9, 2: 9, 3: position})


def test_brokers_of_one_rack_follow_each_other_and_the_controller_is_the_last() -> None:
    brokers = (broker(1, "a"), broker(2, "b"), broker(3, "a", controller=True), broker(4, "b"))
    assert restart_order(ClusterDescription("c", 3, 1, 9, (), brokers)) == [2, 4, 1, 3]


def test_a_broker_may_be_taken_away_when_nobody_needs_it() -> None:
    assert not_whole(state(1, 2, 3)) == ""


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (state(1, 2), "not all replicas in sync: partition t-0"),
        (state(1, 2, 3, position=8), "behind in the metadata log: broker 3"),
        (state(1, 2, 3, position=None), "behind in the metadata log: broker 3"),
        (state(1, 2, 3, voter_lives=False), "not voting: broker 3"),
        (state(1, 2, 3, fenced=True), "not live: broker 2"),
    ],
)
def test_else_it_is_said_what_is_wrong(found: ClusterState, reason: str) -> None:
    assert not_whole(found) == reason


def test_without_a_controller_nothing_is_restarted() -> None:
    found = state(1, 2, 3)
    headless = msgspec.structs.replace(found, cluster=msgspec.structs.replace(found.cluster, controller_id=-1))
    assert not_whole(headless) == "there is no active controller"


def test_a_broker_is_back_in_another_life_only() -> None:
    assert not_back(state(1, 2, 3), 2, 102) == "broker 2 has not been started again"
    assert not_back(state(1, 2, 3), 2, 101) == ""
    assert not_back(state(1, 3), 2, 101) == "not all replicas in sync: partition t-0"
