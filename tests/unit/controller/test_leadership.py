"""Who is in sync, who is eligible, who leads: when brokers go, come back, and come back with less than they had.

Sets are written as leader, ISR, ELR. Three replicas need two in sync.
"""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, registration, topic_id
from tidelog.controller.apply import apply
from tidelog.controller.commands import AlterTopicConfigs, BrokerHeartbeat
from tidelog.controller.records import TopicCreated
from tidelog.model.ids import NodeId

UNCLEAN = "unclean.leader.election.enable"


def test_a_fenced_broker_leaves_the_isr_and_the_next_replica_leads() -> None:
    cluster = IsrCluster()
    assert cluster.sets == (1, (1, 2, 3), ())
    cluster.fence(2)
    assert cluster.sets == (1, (1, 3), ())
    assert (cluster.partition.leader_epoch, cluster.partition.partition_epoch) == (0, 1)
    cluster.fence(1)
    assert cluster.sets == (3, (3,), (1,))
    assert (cluster.partition.leader_epoch, cluster.partition.partition_epoch) == (1, 2)


def test_below_the_minimum_those_that_leave_stay_eligible_until_there_are_enough() -> None:
    cluster = IsrCluster()
    cluster.fence(3, 2, 1)
    assert cluster.sets == (-1, (), (1, 2))
    assert cluster.partition.last_known_elr == (1,)
    cluster.heartbeat(3)
    assert cluster.sets == (-1, (), (1, 2)), "it lacks what was committed while it was away"
    cluster.heartbeat(2)
    assert cluster.sets == (2, (2,), (1,))
    assert cluster.partition.last_known_elr == ()
    assert cluster.ask(2, 3).isr == (2, 3)
    assert cluster.sets == (2, (2, 3), ())


def test_a_broker_that_stops_in_good_order_leads_again_when_it_is_back() -> None:
    cluster = IsrCluster(1, 1, ack_durability="replicated")
    epoch = cluster.image.brokers[NodeId(1)].epoch
    cluster.heartbeat(1, wants_shutdown=True)
    assert cluster.sets == (-1, (), (1,))
    cluster.do(registration(1, process="q", clean_epoch=epoch, replaces=epoch))
    assert cluster.sets == (-1, (), (1,))
    cluster.heartbeat(1)
    assert cluster.sets == (1, (1,), ())


def test_after_a_crash_what_was_fsynced_is_there_and_what_was_not_may_be_gone() -> None:
    fsynced, replicated = IsrCluster(), IsrCluster(ack_durability="replicated")
    for cluster in (fsynced, replicated):
        cluster.fence(3, 2)
        cluster.crash(1)
    assert fsynced.sets == (-1, (), (1, 2))
    assert replicated.sets == (-1, (), (2,))


def test_the_last_leader_leads_if_all_may_have_lost_something_and_the_topic_took_that_risk() -> None:
    cluster = IsrCluster(ack_durability="replicated")
    cluster.crash(2, 3, 1)
    assert cluster.sets == (-1, (), ())
    assert cluster.partition.last_known_elr == (1,)
    cluster.heartbeat(2)
    assert cluster.sets == (-1, (), ())
    cluster.heartbeat(1)
    assert cluster.sets == (1, (1,), ())


def test_the_last_leader_has_no_claim_beside_those_that_have_everything() -> None:
    cluster = IsrCluster(ack_durability="replicated")
    cluster.fence(3, 2)
    cluster.crash(1)
    assert (cluster.sets, cluster.partition.last_known_elr) == ((-1, (), (2,)), (1,))
    cluster.heartbeat(1)
    assert cluster.sets == (-1, (), (2,))


@pytest.mark.parametrize("durability", ["fsynced", "replicated"])
def test_a_new_disk_has_nothing(durability: str) -> None:
    cluster = IsrCluster(ack_durability=durability)
    cluster.fence(3, 2)
    cluster.crash(1, new_disk=True)
    assert (cluster.sets, cluster.partition.last_known_elr) == ((-1, (), (2,)), ())
    cluster.heartbeat(1)
    assert cluster.sets == (-1, (), (2,))
    alone = IsrCluster(1, 1, ack_durability=durability)
    alone.crash(1, new_disk=True)
    alone.heartbeat(1)
    assert alone.sets == (-1, (), ())


def test_a_life_that_began_with_acknowledgements_from_memory_may_have_lost_some() -> None:
    """Whatever the setting was when it ended; a life that began later has everything."""
    cluster = IsrCluster(ack_durability="replicated")
    cluster.do(AlterTopicConfigs("t", {"ack.durability": "fsynced"}))
    cluster.crash(1)
    assert 1 not in (*cluster.partition.isr, *cluster.partition.elr)
    alone = IsrCluster(1, 1, ack_durability="replicated")
    alone.do(AlterTopicConfigs("t", {"ack.durability": "fsynced"}))
    alone.crash(1)
    assert alone.sets == (-1, (), ())
    alone.heartbeat(1)
    assert alone.sets == (1, (1,), ()), "what it may have lost, the topic risked"
    again = IsrCluster(1, 1)
    again.do(AlterTopicConfigs("t", {"min.insync.replicas": "1"}))
    again.crash(1)
    again.heartbeat(1)
    assert again.sets == (1, (1,), ()), "another setting has nothing to do with it"


def test_unclean_elections_only_where_the_topic_allows_them() -> None:
    cluster = IsrCluster()
    cluster.fence(3, 2, 1)
    cluster.heartbeat(3)
    cluster.do(AlterTopicConfigs("t", {UNCLEAN: "true"}))
    assert cluster.sets == (3, (3,), ()), "what the others have and it lacks is given up"
    cluster.do(AlterTopicConfigs("t", {UNCLEAN: None}))
    cluster.fence(3)
    cluster.heartbeat(1)
    assert cluster.sets == (-1, (), (3,))


def test_unclean_elections_prefer_whoever_has_all() -> None:
    cluster = IsrCluster(unclean_leader_election_enable="true")
    cluster.fence(3, 1)
    assert cluster.sets == (2, (2,), (1,))
    cluster.heartbeat(3)
    cluster.heartbeat(1)
    cluster.fence(2)
    assert cluster.sets == (1, (1,), (2,))


def test_fewer_needed_in_sync_is_an_end_to_being_eligible() -> None:
    cluster = IsrCluster()
    cluster.fence(3, 2)
    assert cluster.sets == (1, (1,), (2,))
    cluster.do(AlterTopicConfigs("t", {"min.insync.replicas": "1"}))
    assert cluster.sets == (1, (1,), ()), "the leader commits without it from now on"
    cluster.do(AlterTopicConfigs("t", {"min.insync.replicas": "2"}))
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.sets == (-1, (), (1,))


def test_never_more_needed_than_there_are() -> None:
    cluster = IsrCluster(2, 2, min_insync_replicas="5")
    cluster.fence(2)
    assert cluster.sets == (1, (1,), (2,))
    cluster.heartbeat(2)
    cluster.ask(1, 2)
    assert cluster.sets == (1, (1, 2), ())


def test_while_replicas_move_the_smaller_number_of_them_is_the_most_needed() -> None:
    cluster = IsrCluster(4, 2, min_insync_replicas="5")
    cluster.reassign(3, 4)
    cluster.ask(1, 2, 3)
    cluster.fence(3)
    assert cluster.sets == (1, (1, 2), ()), "two commit, so 3 lacks what they do now"


def test_a_topic_begins_with_the_live_in_sync() -> None:
    cluster = IsrCluster()
    cluster.fence(1, 3)
    image = apply(cluster.image, TopicCreated("u", topic_id("u"), [[1, 2, 3], [3, 1]], {}), cluster.image.position)
    first, second = image.topics["u"].partitions
    assert (first.leader, first.isr, first.elr) == (2, (2,), ())
    assert (second.leader, second.isr, second.elr) == (-1, (), (3, 1))


def test_a_heartbeat_that_changes_nothing_decides_nothing() -> None:
    cluster = IsrCluster()
    position = cluster.image.position
    cluster.do(BrokerHeartbeat(2, cluster.image.brokers[NodeId(2)].epoch, position))
    assert cluster.image.position == position
