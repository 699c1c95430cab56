"""A replica whose disk has failed, or has rotted, gives way to one that serves, if there is one."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import Cluster, IsrCluster, topic_id
from tidelog.controller.commands import CreateTopic, FenceBroker, NewTopic
from tidelog.controller.partition_commands import (
    AlterPartition,
    IsrAsked,
    IsrMember,
    LostReplica,
    ReportLostReplicas,
    ReportUnfitReplicas,
    UnfitReason,
    UnfitReplica,
)
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


def test_leaders_with_a_damaged_end_take_turns_with_all_and_not_with_one(cluster: Cluster) -> None:
    leaders = []
    for _ in range(4):
        report(cluster, entry(cluster).leader, UnfitReason.DAMAGED)
        leaders.append(entry(cluster).leader)
    assert leaders == [2, 3, 1, 2]


def test_a_follower_with_a_damaged_end_is_nobodys_business(cluster: Cluster) -> None:
    before = entry(cluster)
    report(cluster, 2, UnfitReason.DAMAGED)
    assert entry(cluster) is before


def test_a_leader_whose_disk_hangs_gives_way_to_a_member_and_stays_eligible(cluster: Cluster) -> None:
    fence(cluster, 3)
    report(cluster, 1, UnfitReason.STALLED)
    now = entry(cluster)
    assert (now.leader, now.isr, now.elr) == (2, (2,), (1,))


def test_a_leader_whose_disk_hangs_stays_where_no_member_could_take_over(cluster: Cluster) -> None:
    fence(cluster, 3, 2)
    cluster.heartbeat(2)
    before = entry(cluster)
    assert (before.isr, before.elr) == ((1,), (2,)), "2 has all that is acknowledged, and is not known to keep up"
    report(cluster, 1, UnfitReason.STALLED)
    assert entry(cluster) is before


def test_who_does_not_lead_any_more_gives_way_to_nobody(cluster: Cluster) -> None:
    before = entry(cluster)
    report(cluster, 2, UnfitReason.STALLED)
    assert entry(cluster) is before


def test_what_was_said_of_another_term_counts_for_nothing(cluster: Cluster) -> None:
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


# -- lost logs ---------------------------------------------------------------------------------------------------------


def report_lost(cluster: Cluster, node: int, since: int | None = None) -> None:
    broker = cluster.image.brokers[NodeId(node)]
    lost = LostReplica(topic_id("t"), 0, entry(cluster).since_of(node) if since is None else since)
    cluster.do(ReportLostReplicas(node, broker.epoch, [lost]))


def test_a_lost_log_leaves_all_sets_and_another_leads(cluster: Cluster) -> None:
    report_lost(cluster, 1)
    now = entry(cluster)
    assert (now.leader, now.isr, now.elr) == (2, (2, 3), ())


def test_if_only_lost_logs_are_live_nobody_leads_until_one_is_back_that_has_everything(cluster: Cluster) -> None:
    fence(cluster, 2, 3)
    assert (entry(cluster).isr, entry(cluster).elr) == ((1,), (3,))
    report_lost(cluster, 1)
    now = entry(cluster)
    assert (now.leader, now.isr, now.elr, now.last_known_elr) == (-1, (), (3,), ())
    cluster.heartbeat(2)
    assert entry(cluster).leader == -1, "it is behind"
    cluster.heartbeat(3)
    assert (entry(cluster).leader, entry(cluster).isr) == (3, (3,))


def test_a_report_that_comes_again_when_the_replica_is_in_sync_again_counts_for_nothing(cluster: Cluster) -> None:
    since = entry(cluster).since_of(3)
    report_lost(cluster, 3)
    assert entry(cluster).isr == (1, 2)
    assert entry(cluster).since_of(3) > since
    info = entry(cluster)
    isr = [IsrMember(node, cluster.image.brokers[NodeId(node)].epoch) for node in (1, 2, 3)]
    asked = IsrAsked(topic_id("t"), 0, info.leader_epoch, info.partition_epoch, isr)
    cluster.do(AlterPartition(1, cluster.image.brokers[NodeId(1)].epoch, [asked]))
    now = entry(cluster)
    assert now.isr == (1, 2, 3)
    report_lost(cluster, 3, since)
    assert entry(cluster) is now


def test_a_lost_log_is_no_leader_even_where_anybody_may_lead() -> None:
    made = Cluster()
    made.start(1, 2)
    configs = {"unclean.leader.election.enable": "true"}
    made.do(CreateTopic(NewTopic("t", 1, 2, None, configs), topic_id("t")))
    fence(made, 2)
    assert entry(made).leader == 1
    report_lost(made, 1)
    assert entry(made).leader == -1


def test_a_lost_log_of_a_topic_that_is_gone_is_nobodys_loss(cluster: Cluster) -> None:
    position = cluster.image.position
    lost = [LostReplica(topic_id("gone"), 0, 0), LostReplica(topic_id("t"), 9, 0)]
    cluster.do(ReportLostReplicas(1, cluster.image.brokers[NodeId(1)].epoch, lost))
    assert cluster.image.position == position


def test_a_report_of_another_life_is_refused(cluster: Cluster) -> None:
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(ReportLostReplicas(1, cluster.image.brokers[NodeId(1)].epoch - 1, []))


def test_a_replica_begins_when_it_is_assigned_and_stays_one_through_moves() -> None:
    made = IsrCluster(4)
    began = dict(made.partition.since)
    assert len(dict.fromkeys(began.values())) == 1
    made.reassign(4, 2, 3)
    since = dict(made.partition.since)
    assert {node: since[NodeId(node)] for node in (1, 2, 3)} == began
    assert since[NodeId(4)] > began[NodeId(1)]
    made.ask(1, 2, 3, 4)
    assert dict(made.partition.since) == {node: since[node] for node in made.partition.replicas}
    made.reassign(1, 2, 3)
    assert made.partition.since_of(1) > since[NodeId(4)], "t19: what it had before is another replica's"
