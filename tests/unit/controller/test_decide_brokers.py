"""Who is admitted, who counts as live, who may leave."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.controller.cluster import CONFIG, Cluster, registration, topic_id, voter
from tidelog.controller.commands import (
    BrokerHeartbeat,
    DeleteTopic,
    Done,
    FenceBroker,
    RegistrationOutdated,
    RemoveBroker,
)
from tidelog.controller.decide import decide
from tidelog.controller.records import BrokerRegistered
from tidelog.model.cluster import NO_VOTER, ClusterImage
from tidelog.model.errors import (
    BrokerRemoved,
    InvalidRequest,
    NodeIdInUse,
    NotController,
    NotFound,
    OldDirectory,
    StaleBrokerEpoch,
    WrongCluster,
)
from tidelog.model.ids import NodeId

ONE, TWO = NodeId(1), NodeId(2)


def test_a_registered_broker_is_fenced_until_it_has_applied_its_own_registration() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    assert cluster.image.brokers[ONE].is_fenced
    cluster.do(BrokerHeartbeat(1, epoch, epoch))
    assert cluster.image.brokers[ONE].is_fenced
    cluster.do(BrokerHeartbeat(1, epoch, epoch + 1))
    assert not cluster.image.brokers[ONE].is_fenced


def test_registering_twice_gives_the_same_epoch_and_another_process_a_later_one() -> None:
    cluster = Cluster()
    first = cluster.register(1, process="a")
    assert cluster.register(1, process="a") == first
    assert cluster.register(1, process="b") > first


def test_what_a_dead_process_sent_replaces_no_later_one() -> None:
    """It was sent by the second life, and arrives when the third is at work."""
    cluster = Cluster()
    first = cluster.register(1, process="a")
    late = registration(1, process="b", replaces=first)
    third = cluster.register(1, process="c")
    cluster.heartbeat(1)
    assert cluster.do(late) == RegistrationOutdated(cluster.image.position, third)
    assert cluster.image.brokers[ONE].incarnation == "c"
    assert cluster.image.is_live(1)


def test_what_a_dead_process_sent_brings_no_removed_broker_back() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    late = registration(2, process="b", replaces=cluster.image.brokers[TWO].epoch)
    cluster.do(RemoveBroker(2))
    assert cluster.do(late) == RegistrationOutdated(cluster.image.position, -1)
    assert TWO not in cluster.image.brokers


def test_a_second_broker_with_a_live_node_id_is_told_where_the_first_one_is() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    epoch = cluster.image.brokers[TWO].epoch
    second = registration(2, process="q", storage="another disk", replaces=epoch)
    with pytest.raises(NodeIdInUse, match=r"10\.0\.0\.2:8082") as refused:
        cluster.do(second)
    assert refused.value.retriable
    cluster.do(FenceBroker(2, epoch))
    cluster.do(second)
    assert cluster.image.brokers[TWO].storage == "another disk"


def test_a_new_process_on_the_same_disk_is_admitted_at_once_and_what_it_led_waits_for_it() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("t", 2, 1)
    led = cluster.leaders("t")
    cluster.register(2, process="q")
    assert cluster.leaders("t") == [-1 if node == 2 else node for node in led]
    assert not cluster.heartbeat(2).is_fenced
    assert cluster.leaders("t") == led
    assert sorted(info.leader_epoch for info in cluster.image.topics["t"].partitions) == [0, 2]


def test_a_clean_stop_is_proved_by_the_epoch_that_only_the_stopped_process_knew() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    for claimed, is_clean in ((epoch, True), (epoch - 1, False), (-1, False)):
        command = registration(1, process="q", clean_epoch=claimed, replaces=epoch)
        (record,) = decide(cluster.image, command, CONFIG).records
        assert isinstance(record, BrokerRegistered)
        assert record.is_clean is is_clean
    with_new_disk = registration(1, process="q", storage="new", clean_epoch=epoch, replaces=epoch)
    (record,) = decide(cluster.image, with_new_disk, CONFIG).records
    assert isinstance(record, BrokerRegistered)
    assert not record.is_clean


def test_a_broker_of_another_cluster_is_refused() -> None:
    cluster = Cluster()
    with pytest.raises(WrongCluster, match="belongs to cluster c2, and this is c1"):
        cluster.do(msgspec.structs.replace(registration(4), cluster_id="c2"))


def test_a_new_disk_has_no_voter_id_and_the_old_one_does_not_vote_again() -> None:
    cluster = Cluster(voters=2)
    cluster.register(2)
    assert cluster.image.brokers[TWO].voter_id == 2
    cluster.register(2, process="q", storage="new")
    assert cluster.image.brokers[TWO].voter_id == NO_VOTER
    with pytest.raises(OldDirectory):
        cluster.register(2, process="r")


def test_a_late_fence_does_not_hit_the_next_process() -> None:
    cluster = Cluster()
    cluster.start(1)
    old = cluster.image.brokers[ONE].epoch
    cluster.register(1, process="q")
    cluster.heartbeat(1)
    cluster.do(FenceBroker(1, old))
    assert cluster.image.is_live(1)


def test_who_wants_to_stop_is_fenced_and_may_and_stays_so() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("t", 2, 1)
    answer = cluster.heartbeat(2, wants_shutdown=True)
    assert (answer.may_stop, answer.is_fenced) == (True, True)
    assert 2 not in cluster.leaders("t")
    position = cluster.image.position
    assert cluster.heartbeat(2, wants_shutdown=True).may_stop
    assert cluster.image.position == position


def test_an_old_process_is_not_listened_to() -> None:
    cluster = Cluster()
    old = cluster.register(1)
    cluster.register(1, process="q")
    with pytest.raises(StaleBrokerEpoch, match="registered again"):
        cluster.do(BrokerHeartbeat(1, old, 100))
    with pytest.raises(BrokerRemoved):
        cluster.do(BrokerHeartbeat(7, old, 100))
    with pytest.raises(NotController):
        cluster.do(BrokerHeartbeat(1, cluster.image.position, 100))


# -- leaving -------------------------------------------------------------------------------------------------------


def refusal(image: ClusterImage, node: int) -> str:
    with pytest.raises(InvalidRequest) as refused:
        decide(image, RemoveBroker(node), CONFIG)
    return refused.value.message


def test_a_broker_without_replicas_and_vote_leaves() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    epoch = cluster.image.brokers[TWO].epoch
    assert isinstance(cluster.do(RemoveBroker(2, epoch)), Done)
    assert list(cluster.image.brokers) == [1]
    assert isinstance(cluster.do(RemoveBroker(2, epoch)), Done)
    with pytest.raises(NotFound, match="the brokers are 1"):
        cluster.do(RemoveBroker(2))


def test_a_broker_that_registered_again_is_not_the_one_that_was_to_be_removed() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    epoch = cluster.image.brokers[TWO].epoch
    cluster.register(2, process="q")
    with pytest.raises(InvalidRequest, match="registered again"):
        cluster.do(RemoveBroker(2, epoch))


def test_who_holds_replicas_stays_and_the_topics_are_named() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create("narrow", 3, 1)
    assert "replicas of narrow; move them to other brokers first, or delete" in refusal(cluster.image, 3)
    cluster.create("wide", 1, 3)
    assert "fewer than the replicas of wide; add a broker" in refusal(cluster.image, 3)
    for name in ("narrow", "wide"):
        cluster.do(DeleteTopic(name, topic_id(name)))
    cluster.do(RemoveBroker(3))
    assert list(cluster.image.brokers) == [1, 2]


def test_the_last_broker_stays() -> None:
    cluster = Cluster()
    cluster.start(1)
    assert "the only one" in refusal(cluster.image, 1)


def test_a_voter_leaves_only_if_the_live_ones_left_are_a_majority() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3)
    assert cluster.preview(RemoveBroker(3)).voters_leaving == (3,)
    cluster.do(FenceBroker(2, cluster.image.brokers[TWO].epoch))
    assert "only 1 live voters of 3" in refusal(cluster.image, 3)
    cluster.do(RemoveBroker(2))
    assert cluster.image.voters_leaving == (2,)
    cluster.set_voters((voter(1), voter(3)), 4)
    assert cluster.image.voters_leaving == ()
