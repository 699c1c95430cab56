"""A broker that is about to stop asks for other leaders of what it leads, and stays live."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.controller.partition_commands import ElectionCode, HandOver, LeadersElected, PartitionLed
from tidelog.model.errors import StaleBrokerEpoch
from tidelog.model.ids import NodeId

ONE = NodeId(1)


def hand_over(cluster: IsrCluster, *, leader_epoch: int = 0, leaving: tuple[int, ...] = ()) -> ElectionCode:
    led = [PartitionLed(topic_id("t"), 0, leader_epoch)]
    answer = cluster.do(HandOver(1, cluster.image.brokers[ONE].epoch, led, leaving))
    assert isinstance(answer, LeadersElected)
    return answer.partitions[0].code


def test_the_next_in_sync_leads_and_the_giver_stays_in_sync_and_live() -> None:
    cluster = IsrCluster()
    assert hand_over(cluster) is ElectionCode.NONE
    assert cluster.sets == (2, (1, 2, 3), ())
    assert cluster.partition.leader_epoch == 1
    assert cluster.image.is_live(ONE)


def test_asking_twice_is_asking_once() -> None:
    cluster = IsrCluster()
    hand_over(cluster)
    image = cluster.image
    assert hand_over(cluster) is ElectionCode.ELECTION_NOT_NEEDED
    assert cluster.image == image


def test_what_was_asked_of_an_earlier_term_changes_nothing() -> None:
    cluster = IsrCluster()
    assert hand_over(cluster, leader_epoch=-1) is ElectionCode.ELECTION_NOT_NEEDED
    assert cluster.partition.leader == 1


def test_nobody_leads_who_is_not_in_sync_or_leaves_too() -> None:
    cluster = IsrCluster()
    cluster.ask(1, 3)
    assert hand_over(cluster, leaving=(1, 3)) is ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert cluster.partition.leader == 1
    assert hand_over(cluster) is ElectionCode.NONE
    assert cluster.sets == (3, (1, 3), ())


def test_an_earlier_life_cannot_give_on_what_the_next_one_leads() -> None:
    cluster = IsrCluster()
    led = [PartitionLed(topic_id("t"), 0, 0)]
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(HandOver(1, cluster.image.brokers[ONE].epoch - 1, led))


def test_a_partition_that_is_gone_has_its_own_answer() -> None:
    cluster = IsrCluster()
    answer = cluster.do(HandOver(1, cluster.image.brokers[ONE].epoch, [PartitionLed("gone", 0, 0)]))
    assert isinstance(answer, LeadersElected)
    assert answer.partitions[0].code is ElectionCode.UNKNOWN_PARTITION
