"""Partitions that commit by majority: who leads when brokers go, come back, stop, and cannot.

States are written as leader, leader epoch, live members.
"""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import Cluster, PaxosCluster, topic_id
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import AddPartitions, AlterTopicConfigs, CreateTopic, NewTopic, TopicPlaced
from tidelog.controller.partition_commands import (
    AlterCode,
    ElectionCode,
    ElectionType,
    ElectLeaders,
    LeadersElected,
    LostTerm,
    PartitionNamed,
    ReportPaxosLeader,
    ReportUnfitReplicas,
    TermEnd,
    UnfitReason,
    UnfitReplica,
)
from tidelog.controller.records import decode_record, encode_record
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, StaleBrokerEpoch
from tidelog.model.ids import NodeId


def elect(cluster: PaxosCluster, election: ElectionType = ElectionType.PREFERRED) -> ElectionCode:
    answer = cluster.do(ElectLeaders(election, [PartitionNamed(topic_id("t"), 0)]))
    assert isinstance(answer, LeadersElected)
    return answer.partitions[0].code


# -- beginning ---------------------------------------------------------------------------------------------------------


def test_the_replicas_found_the_log_and_the_preferred_one_leads() -> None:
    cluster = PaxosCluster()
    info = cluster.partition
    assert cluster.led == (1, 0, (1, 2, 3))
    assert cluster.votes == ({1: 1, 2: 2, 3: 3},) * 2
    assert [one.storage for one in info.members] == ["disk-1", "disk-2", "disk-3"]
    assert (info.next_engine_id, info.majority, info.elr, info.is_moving) == (4, 2, (), False)
    assert cluster.image.topics["t"].commit_protocol == "paxos"


def test_a_topic_with_in_sync_replicas_has_no_members() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create("t", 1, 3)
    topic = cluster.image.topics["t"]
    info = topic.partitions[0]
    assert (topic.commit_protocol, info.members, info.wanted, info.next_engine_id) == ("isr", (), (), 1)


def test_the_brokers_default_is_noted_when_a_topic_is_created_and_never_changes_it_later() -> None:
    cluster = Cluster(config=BrokerConfig(commit_protocol="paxos"))
    cluster.start(1)
    cluster.create("t")
    cluster.config = BrokerConfig()
    cluster.do(AddPartitions("t", 1, 2))
    topic = cluster.image.topics["t"]
    assert dict(topic.configs) == {"commit.protocol": "paxos"}
    assert [len(info.members) for info in topic.partitions] == [1, 1]
    for value in ("isr", "paxos", None):
        with pytest.raises(InvalidRequest, match="fixed when a topic is created"):
            cluster.do(AlterTopicConfigs("t", {"commit.protocol": value}))


def test_an_order_of_commits_is_chosen_when_a_topic_is_created() -> None:
    cluster = Cluster(config=BrokerConfig(commit_protocol="paxos"))
    cluster.start(1)
    cluster.do(CreateTopic(NewTopic("u", 1, 1, None, {"commit.order": "key"}), topic_id("u")))
    assert dict(cluster.image.topics["u"].configs) == {"commit.protocol": "paxos", "commit.order": "key"}
    for value in ("total", "key", "none", None):
        with pytest.raises(InvalidRequest, match=r"commit\.order is fixed when a topic is created"):
            cluster.do(AlterTopicConfigs("u", {"commit.order": value}))
    cluster.do(AlterTopicConfigs("u", {"commit.hole.span": "16"}))
    assert cluster.image.topics["u"].configs["commit.hole.span"] == "16"
    cluster.do(AlterTopicConfigs("u", {"commit.hole.span": None}))
    isr = {"commit.protocol": "isr", "commit.order": "key"}
    with pytest.raises(InvalidRequest, match=r"only topics with commit\.protocol=paxos have it"):
        cluster.do(CreateTopic(NewTopic("v", 1, 1, None, isr), topic_id("v")))
    assert [*cluster.image.topics] == ["u"]


def test_a_fenced_replica_founds_the_log_too_and_the_first_live_one_leads() -> None:
    cluster = PaxosCluster()
    cluster.fence(1)
    cluster.do(CreateTopic(NewTopic("u", 1, 3, None, {"commit.protocol": "paxos"}), topic_id("u")))
    info = cluster.image.topics["u"].partitions[0]
    assert sorted(one.node_id for one in info.members) == [1, 2, 3]
    assert (info.leader, len(info.isr)) == (info.replicas[0], 2)


def test_without_a_live_majority_a_topic_is_neither_created_nor_grown() -> None:
    cluster = PaxosCluster()
    cluster.fence(1, 2)
    for only_asked in (False, True):
        new = CreateTopic(NewTopic("u", 1, 3, None, {"commit.protocol": "paxos"}), topic_id("u"), only_asked)
        with pytest.raises(LeaderNotAvailable, match="live replicas to begin"):
            cluster.do(new)
    with pytest.raises(LeaderNotAvailable, match="live replicas to begin"):
        cluster.do(AddPartitions("t", 1, 2))
    placed = cluster.do(CreateTopic(NewTopic("u", 1, 1, None, {"commit.protocol": "paxos"}), topic_id("u")))
    assert isinstance(placed, TopicPlaced)


# -- brokers go and come back ------------------------------------------------------------------------------------------


def test_when_the_leader_is_fenced_the_next_live_replica_leads_in_the_next_epoch() -> None:
    cluster = PaxosCluster()
    cluster.fence(1)
    assert cluster.led == (2, 1, (2, 3))
    assert cluster.partition.elr == cluster.partition.last_known_elr == ()
    cluster.heartbeat(1)
    assert cluster.led == (2, 1, (1, 2, 3)), "who leads goes on"


def test_when_a_follower_is_fenced_the_leader_goes_on_in_its_epoch() -> None:
    cluster = PaxosCluster()
    cluster.fence(2)
    assert cluster.led == (1, 0, (1, 3))
    assert cluster.partition.partition_epoch == 1


def test_without_a_live_majority_the_leader_stays_and_nobody_else_is_named() -> None:
    cluster = PaxosCluster()
    cluster.fence(2, 3)
    assert cluster.led == (1, 0, (1,))
    cluster.fence(1)
    assert cluster.led == (-1, 1, ())
    cluster.heartbeat(3)
    assert cluster.led == (-1, 1, (3,))
    cluster.heartbeat(2)
    assert cluster.led == (2, 2, (2, 3)), "in the order of the replicas"


def test_a_broker_that_stops_hands_over_and_may_stop() -> None:
    cluster = PaxosCluster()
    assert cluster.heartbeat(1, wants_shutdown=True).may_stop
    assert cluster.led == (2, 1, (2, 3))


def test_a_crash_that_leaves_the_disk_changes_no_member() -> None:
    cluster = PaxosCluster(ack_durability="replicated")
    cluster.crash(1)
    assert cluster.led == (2, 1, (2, 3))
    cluster.heartbeat(1)
    assert cluster.votes == ({1: 1, 2: 2, 3: 3},) * 2
    assert cluster.led == (2, 1, (1, 2, 3))


def test_the_minimum_in_sync_means_nothing_where_majorities_commit() -> None:
    cluster = PaxosCluster(min_insync_replicas="3")
    cluster.fence(3)
    cluster.do(AlterTopicConfigs("t", {"min.insync.replicas": "1"}))
    assert cluster.led == (1, 0, (1, 2))
    assert cluster.partition.partition_epoch == 1


# -- elections on request ----------------------------------------------------------------------------------------------


def test_the_preferred_replica_leads_again_when_it_is_asked_for() -> None:
    cluster = PaxosCluster()
    assert elect(cluster) is ElectionCode.ELECTION_NOT_NEEDED
    cluster.fence(1)
    assert elect(cluster) is ElectionCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.heartbeat(1)
    assert elect(cluster) is ElectionCode.NONE
    assert cluster.led == (1, 2, (1, 2, 3))


def test_there_are_no_unclean_elections() -> None:
    cluster = PaxosCluster(unclean_leader_election_enable="true")
    cluster.fence(2, 3, 1)
    cluster.heartbeat(3)
    assert elect(cluster, ElectionType.UNCLEAN) is ElectionCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    everywhere = cluster.do(ElectLeaders(ElectionType.UNCLEAN))
    assert isinstance(everywhere, LeadersElected) and not everywhere.partitions
    assert cluster.led == (-1, 1, (3,))


def test_a_leader_that_asks_for_an_isr_is_refused() -> None:
    cluster = PaxosCluster()
    assert cluster.ask(1, 2).code is AlterCode.INVALID_REQUEST
    assert cluster.led == (1, 0, (1, 2, 3))


# -- leaders that cannot -----------------------------------------------------------------------------------------------


def test_a_leader_that_was_overtaken_gets_the_next_epoch() -> None:
    cluster = PaxosCluster()
    cluster.lose(TermEnd.RENEW)
    assert cluster.led == (1, 1, (1, 2, 3))
    cluster.lose(TermEnd.RENEW, leader_epoch=0)
    assert cluster.led == (1, 1, (1, 2, 3)), "a repetition"


def test_a_leader_that_cannot_lead_gives_way_to_one_after_the_other() -> None:
    cluster = PaxosCluster()
    leaders = []
    for _ in range(4):
        cluster.lose(TermEnd.YIELD)
        leaders.append(cluster.partition.leader)
    assert leaders == [2, 3, 1, 2]
    assert cluster.partition.leader_epoch == 4


def test_without_a_live_majority_no_epochs_are_spent() -> None:
    cluster = PaxosCluster()
    cluster.fence(2, 3)
    for end in TermEnd:
        cluster.lose(end)
    assert cluster.led == (1, 0, (1,))


def test_only_the_leader_may_report_its_term() -> None:
    cluster = PaxosCluster()
    lost = LostTerm(topic_id("t"), 0, 0, TermEnd.YIELD)
    gone = LostTerm(topic_id("gone"), 0, 0, TermEnd.YIELD)
    cluster.do(ReportPaxosLeader(2, cluster.image.brokers[NodeId(2)].epoch, [lost, gone]))
    assert cluster.led == (1, 0, (1, 2, 3))
    with pytest.raises(StaleBrokerEpoch):
        cluster.do(ReportPaxosLeader(1, 0, [lost]))


def test_an_offline_replica_gives_up_its_lead_if_a_majority_is_left_without_it() -> None:
    cluster = PaxosCluster()
    offline = UnfitReplica(topic_id("t"), 0, 0, UnfitReason.OFFLINE)
    report = ReportUnfitReplicas(1, cluster.image.brokers[NodeId(1)].epoch, [offline])
    cluster.fence(3)
    cluster.do(report)
    assert cluster.led == (1, 0, (1, 2)), "what is committed can still be read there"
    cluster.heartbeat(3)
    cluster.do(report)
    assert cluster.led == (2, 1, (2, 3))


# -- what is written down ----------------------------------------------------------------------------------------------


def test_members_come_back_from_records_and_snapshots() -> None:
    cluster = PaxosCluster()
    cluster.crash(3, new_disk=True)
    cluster.heartbeat(3)
    cluster.advance(4)
    cluster.advance()
    assert cluster.votes[0] == {1: 1, 2: 2, 4: 3}
    assert decode_image(encode_image(cluster.image)) == cluster.image
    records = [record for record, _ in cluster.history if not isinstance(record, tuple)]
    assert all(decode_record(encode_record(record)) == record for record in records)
