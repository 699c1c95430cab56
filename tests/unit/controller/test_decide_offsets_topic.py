"""The topic of the consumer groups: made once, by the controller's settings, on as many brokers as it is to have."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import Cluster, topic_id
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import (
    AddPartitions,
    AlterTopicConfigs,
    Command,
    CreateOffsetsTopic,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    NewTopic,
    TopicPlaced,
)
from tidelog.model.errors import CoordinatorNotAvailable, InvalidRequest
from tidelog.model.ids import NodeId
from tidelog.model.names import AUDIT_TOPIC, OFFSETS_TOPIC


def create(cluster: Cluster, drawn: str = "a") -> TopicPlaced:
    answer = cluster.do(CreateOffsetsTopic(topic_id(drawn)))
    assert isinstance(answer, TopicPlaced)
    return answer


def test_it_is_made_as_the_settings_say() -> None:
    cluster = Cluster(3)
    cluster.start(1, 2, 3, 4)
    placed = create(cluster)
    topic = cluster.image.topics[OFFSETS_TOPIC]
    assert topic.is_internal
    assert topic.commit_protocol == "paxos"
    assert topic.configs["cleanup.policy"] == "compact"
    assert [len(replicas) for replicas in placed.assignments] == [3] * 16


def test_it_is_made_as_other_settings_say() -> None:
    settings = {
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.commit.protocol": "isr",
    }
    cluster = Cluster(1, BrokerConfig.model_validate(settings))
    cluster.start(1, 2)
    assert [len(replicas) for replicas in create(cluster).assignments] == [1, 1]
    assert cluster.image.topics[OFFSETS_TOPIC].commit_protocol == "isr"


def test_who_asks_second_gets_the_first_one() -> None:
    cluster = Cluster()
    cluster.start(1)
    first = create(cluster, "a")
    position = cluster.image.position
    assert create(cluster, "b").topic_id == create(cluster, "a").topic_id == first.topic_id
    assert cluster.image.position == position, "nothing was recorded"


def test_it_has_a_replica_on_brokers_that_are_away_for_a_moment() -> None:
    cluster = Cluster(3)
    cluster.start(1, 2, 3)
    cluster.do(FenceBroker(3, cluster.image.brokers[NodeId(3)].epoch))
    assert [sorted(replicas) for replicas in create(cluster).assignments] == [[1, 2, 3]] * 16


def test_it_waits_for_voters_that_have_not_come_yet() -> None:
    """Else a cluster that is just starting would keep its groups on one disk for good."""
    cluster = Cluster(3)
    cluster.start(1)
    with pytest.raises(CoordinatorNotAvailable, match="needs as many brokers"):
        create(cluster)
    cluster.start(2, 3)
    assert [len(replicas) for replicas in create(cluster).assignments] == [3] * 16


def test_it_waits_for_a_majority() -> None:
    cluster = Cluster(3)
    cluster.start(1, 2, 3)
    for node in (2, 3):
        cluster.do(FenceBroker(node, cluster.image.brokers[NodeId(node)].epoch))
    with pytest.raises(CoordinatorNotAvailable, match="needs 2 live replicas"):
        create(cluster)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (CreateTopic(NewTopic("__mine"), topic_id("m")), "the brokers' own"),
        (DeleteTopic(OFFSETS_TOPIC), "the brokers' own"),
        (AddPartitions(OFFSETS_TOPIC, 16, 17), "cannot grow"),
        (AlterTopicConfigs(OFFSETS_TOPIC, {"commit.protocol": "isr"}), "fixed"),
        (AlterTopicConfigs(OFFSETS_TOPIC, {"commit.order": "key"}), "commit.order is fixed"),
        (AlterTopicConfigs(OFFSETS_TOPIC, {"cleanup.policy": "delete"}), "fixed"),
        (AlterTopicConfigs(OFFSETS_TOPIC, {"unclean.leader.election.enable": None}), "fixed"),
        (AlterTopicConfigs("t", {"cleanup.policy": "compact"}), "compaction is not available"),
        (CreateTopic(NewTopic("u", configs={"cleanup.policy": "compact"}), topic_id("u")), "compaction is not"),
    ],
)
def test_users_cannot(command: Command, reason: str) -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create("t")
    create(cluster)
    with pytest.raises(InvalidRequest, match=reason):
        cluster.do(command)


def test_its_size_may_be_tuned() -> None:
    cluster = Cluster()
    cluster.start(1)
    create(cluster)
    cluster.do(AlterTopicConfigs(OFFSETS_TOPIC, {"segment.bytes": "2048"}))
    assert cluster.image.topics[OFFSETS_TOPIC].configs["segment.bytes"] == "2048"


def test_the_topic_of_the_audit_log_is_another_one() -> None:
    cluster = Cluster(3)
    cluster.start(1, 2, 3)
    for drawn in ("a", "b"):
        placed = cluster.do(CreateOffsetsTopic(topic_id(drawn), AUDIT_TOPIC))
        assert isinstance(placed, TopicPlaced)
        assert [len(replicas) for replicas in placed.assignments] == [3]
    topic = cluster.image.topics[AUDIT_TOPIC]
    assert (topic.is_internal, topic.configs["cleanup.policy"], topic.commit_protocol) == (True, "delete", "paxos")
    cluster.do(AlterTopicConfigs(AUDIT_TOPIC, {"retention.ms": "86400000"}))
    assert OFFSETS_TOPIC not in cluster.image.topics
    with pytest.raises(InvalidRequest, match="brokers have no topic"):
        cluster.do(CreateOffsetsTopic(topic_id("c"), "__other"))
