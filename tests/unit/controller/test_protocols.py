"""The table of protocols has a row for each that a topic may have, and the rows are the rules in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.controller.cluster import CONFIG, Cluster, topic_id
from tidelog.broker.replicas.data_plane import RUNTIMES
from tidelog.controller.broker_state import Brokers
from tidelog.controller.commands import CreateTopic, FenceBroker, NewTopic
from tidelog.controller.leadership import TopicRules
from tidelog.controller.protocols import PROTOCOL_RULES, rules_of
from tidelog.model.cluster import COMMIT_PROTOCOL, NO_LEADER, PROTOCOLS
from tidelog.model.errors import LeaderNotAvailable
from tidelog.model.ids import NodeId


def test_every_protocol_that_a_topic_may_have_has_its_rules_and_its_part_of_a_broker() -> None:
    assert tuple(PROTOCOL_RULES) == tuple(RUNTIMES) == PROTOCOLS


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(protocol: str) -> Cluster:
    cluster = Cluster(3)
    cluster.start(1, 2, 3)
    create(cluster, "t", protocol)
    return cluster


def create(cluster: Cluster, name: str, protocol: str) -> None:
    cluster.do(CreateTopic(NewTopic(name, 1, 3, None, {COMMIT_PROTOCOL: protocol}), topic_id(name)))


def test_a_new_partition_is_led_and_nothing_follows_where_nothing_is_wanted(cluster: Cluster) -> None:
    topic = cluster.image.topics["t"]
    (info,) = topic.partitions
    assert info.leader != NO_LEADER
    rules = rules_of(topic)
    assert replace(rules.new_partition(cluster.image, 0, info.replicas), since=info.since) == info
    assert rules.settled(info, info, TopicRules(CONFIG).of(topic), Brokers(cluster.image), None) is info


def test_a_partition_begins_with_as_many_live_replicas_as_its_protocol_needs(cluster: Cluster, protocol: str) -> None:
    topic = cluster.image.topics["t"]
    needed = rules_of(topic).live_needed(topic.partitions[0])
    for node in range(3, needed, -1):
        fence(cluster, node)
    create(cluster, "enough", protocol)
    fence(cluster, needed)
    with pytest.raises(LeaderNotAvailable, match="live"):
        create(cluster, "too-few", protocol)


def fence(cluster: Cluster, node: int) -> None:
    cluster.do(FenceBroker(node, cluster.image.brokers[NodeId(node)].epoch))
