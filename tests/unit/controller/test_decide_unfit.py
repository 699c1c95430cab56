"""A replica whose disk has failed, or has rotted, gives way to one that serves, if there is one."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import Cluster, topic_id
from tidelog.controller.commands import FenceBroker
from tidelog.controller.partition_commands import ReportUnfitReplicas, UnfitReason, UnfitReplica
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import StaleBrokerEpoch
from tidelog.model.ids import NodeId


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers, one topic on all of them, led by broker 1, two of which must be in sync."""
    made = Cluster()
    made.start(1, 2, 3)
    made.create("t", 1, 3)
    assert entry(made).leader == 1
    return made


def entry(cluster: Cluster) -> PartitionInfo:
    return cluster.image.topics["t"].partitions[0]


def report(cluster: Cluster, node: int, reason: UnfitReason, *, epochs_ago: int = 0) -> None:
    broker = cluster.image.brokers[NodeId(node)]
    unfit = UnfitReplica(topic_id("t"), 0, entry(cluster).leader_epoch - epochs_ago, reason)
    cluster.do(ReportUnfitReplicas(node, broker.epoch, [unfit]))


def fence(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        cluster.do(FenceBroker(node, cluster.image.brokers[NodeId(node)].epoch))


def test_a_leader_whose_log_is_offline_leaves_the_set_and_another_leads(cluster: Cluster) -> None:
    before = entry(cluster)
    report(cluster, 1, UnfitReason.OFFLINE)
    now = entry(cluster)
    assert (now.leader, now.isr, now.elr) == (2, (2, 3), ())
    assert now.leader_epoch == before.leader_epoch + 1
    assert cluster.image.is_live(NodeId(1)), "its other partitions go on"


def test_a_follower_whose_log_is_offline_leaves_the_set(cluster: Cluster) -> None:
    before = entry(cluster)
    report(cluster, 3, UnfitReason.OFFLINE)
    now = entry(cluster)
    assert (now.leader, now.isr, now.leader_epoch) == (1, (1, 2), before.leader_epoch)
    report(cluster, 3, UnfitReason.OFFLINE)
    assert entry(cluster) is now, "said again, it is no news"


def test_who_leaves_a_set_that_is_too_small_then_stays_eligible(cluster: Cluster) -> None:
    fence(cluster, 3)
    report(cluster, 1, UnfitReason.OFFLINE)
    now = entry(cluster)
    assert (now.leader, now.isr, now.elr) == (2, (2,), (1,))


def test_the_last_one_goes_on_leading_for_its_readers(cluster: Cluster) -> None:
    fence(cluster, 2, 3)
    before = entry(cluster)
    for reason in UnfitReason:
        report(cluster, 1, reason)
    assert entry(cluster) is before


def test_who_was_eligible_takes_over_from_the_last_in_sync(cluster: Cluster) -> None:
    fence(cluster, 3, 2)
    cluster.heartbeat(2)
    assert (entry(cluster).isr, entry(cluster).elr) == ((1,), (2,))
    report(cluster, 1, UnfitReason.DAMAGED)
    now = entry(cluster)
    assert (now.leader, now.isr, now.elr) == (2, (2,), (1,))


def test_a_leader_with_a_damaged_end_gives_way_and_stays_in_the_set(cluster: Cluster) -> None:
    report(cluster, 1, UnfitReason.DAMAGED)
    now = entry(cluster)
    assert (now.leader, now.isr) == (2, (1, 2, 3))


def test_a_follower_with_a_damaged_end_is_nobodys_business(cluster: Cluster) -> None:
    before = entry(cluster)
    report(cluster, 2, UnfitReason.DAMAGED)
    assert entry(cluster) is before


def test_what_was_said_of_another_reign_counts_for_nothing(cluster: Cluster) -> None:
    before = entry(cluster)
    for reason in UnfitReason:
        report(cluster, 1, reason, epochs_ago=1)
    assert entry(cluster) is before


def test_a_process_of_the_past_is_refused(cluster: Cluster) -> None:
    old = cluster.image.brokers[NodeId(1)].epoch
    cluster.register(1, process="next", storage="disk-1")
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(ReportUnfitReplicas(1, old, []))


def test_a_partition_that_is_gone_is_passed_over(cluster: Cluster) -> None:
    broker = cluster.image.brokers[NodeId(1)]
    unfit = UnfitReplica("0" * 32, 7, 0, UnfitReason.OFFLINE)
    position = cluster.image.position
    cluster.do(ReportUnfitReplicas(1, broker.epoch, [unfit]))
    assert cluster.image.position == position
