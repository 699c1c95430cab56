"""The controller's core: `decide(image, command) -> (records, answer)` and `apply(image, record, position) -> image`.

Pure. Deciding looks at the image and changes nothing; the records take effect when they are durable in the metadata log
and applied. Replay uses `apply` alone, so it can never fail on something that was once decided. Anything random, a new
topic's id for one, comes in with the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tidelog.broker.controller.commands import NewTopic as NewTopic  # noqa: PLC0414 -- it moved there
from tidelog.broker.controller.records import (
    BrokerRegistered,
    ClusterCreated,
    ConfigsAltered,
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import InvalidRequest, UnknownTopic
from tidelog.model.ids import KEYED_PRODUCER_BIT, NodeId, TopicId
from tidelog.model.names import check_topic_name
from tidelog.placement.striped import UsableBroker, arrange, least_leading, place

PARTITIONS_MAX = 10_000
TOPICS_MAX = 10_000
PRODUCER_ID_BLOCK = 1_000


# -- decide --------------------------------------------------------------------------------------------------------


def decide_create_topic(
    image: ClusterImage, request: NewTopic, topic_id: TopicId, *, partitions: int, replication_factor: int
) -> TopicCreated:
    """The record that creates a topic; defaults are already filled in, configs already checked.

    Raises `InvalidRequest`: a bad or taken name, counts out of range, replicas that do not exist.
    """
    check_topic_name(request.name)
    if request.name.startswith("__"):
        raise InvalidRequest(f"topic names that begin with two underscores are the brokers' own: {request.name}")
    if request.name in image.topics:
        raise InvalidRequest(f"topic {request.name} exists already")
    if len(image.topics) >= TOPICS_MAX:
        raise InvalidRequest(f"there are {TOPICS_MAX} topics, the most a cluster may have; delete some first")
    if request.assignments is not None:
        assignments = _check_assignments(image, request.assignments)
    else:
        assignments = _assign(image, range(partitions), replication_factor, None)
    return TopicCreated(request.name, topic_id, assignments, dict(request.configs))


def _assign(image: ClusterImage, partitions: range, replication_factor: int, first: Topic | None) -> list[list[int]]:
    """Replicas for partitions by the placement rule: where the fewest lead, or as the topic `first` began."""
    _check_partitions(partitions.stop)
    brokers = arrange([UsableBroker(broker.node_id, broker.rack) for broker in image.brokers.values()])
    nodes = [broker.node_id for broker in brokers]
    if first is not None and first.partitions[0].replicas[0] in nodes:
        start = nodes.index(first.partitions[0].replicas[0])
    else:
        topics = [topic for topic in image.topics.values() if not topic.is_internal]
        start = least_leading(brokers, [info.leader for topic in topics for info in topic.partitions])
    return place(brokers, partitions, replication_factor, start=start)


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidRequest(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")


def _check_assignments(image: ClusterImage, assignments: Mapping[int, Sequence[int]]) -> list[list[int]]:
    _check_partitions(len(assignments))
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidRequest("replica assignments must name partitions 0, 1, 2, ... without a gap")
    result = [list(assignments[partition]) for partition in range(len(assignments))]
    for partition, replicas in enumerate(result):
        unknown = [node for node in replicas if node not in image.brokers]
        if not replicas or unknown or len(dict.fromkeys(replicas)) != len(replicas):
            raise InvalidRequest(f"partition {partition}: replicas must be distinct, live brokers, not {replicas}")
        if len(replicas) != len(result[0]):
            raise InvalidRequest("all partitions of a topic must have the same number of replicas")
    return result


def decide_add_partitions(image: ClusterImage, name: str, total: int) -> PartitionsAdded:
    """The record that grows a topic to `total` partitions. Raises `UnknownTopic`, `InvalidRequest`."""
    topic = topic_named(image, name)
    _check_partitions(total)
    have = len(topic.partitions)
    if total <= have:
        raise InvalidRequest(f"topic {name} has {have} partitions, and can only get more")
    assignments = _assign(image, range(have, total), len(topic.partitions[0].replicas), topic)
    return PartitionsAdded(topic.topic_id, assignments)


def topic_named(image: ClusterImage, name: str) -> Topic:
    """Raises `UnknownTopic`."""
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}; create it first")
    return topic


def decide_producer_ids(image: ClusterImage) -> ProducerIdsAllocated:
    """Reserves the next block; ids made from idempotency keys are never reached."""
    following = image.next_producer_id + PRODUCER_ID_BLOCK
    assert following < KEYED_PRODUCER_BIT
    return ProducerIdsAllocated(following)


# -- apply ---------------------------------------------------------------------------------------------------------


def apply(image: ClusterImage, record: MetadataRecord, position: int) -> ClusterImage:
    """The image after the record at `position` in the metadata log."""
    image = replace(image, position=position + 1)
    match record:
        case ClusterCreated(cluster_id):
            return replace(image, cluster_id=cluster_id)
        case BrokerRegistered():
            return _register(image, record, position)
        case TopicCreated(name, topic_id, assignments, configs):
            partitions = _new_partitions(assignments, 0)
            topic = Topic(name, TopicId(topic_id), MappingProxyType(configs), partitions)
            return _with_topic(image, topic)
        case TopicDeleted(topic_id):
            topics = {name: topic for name, topic in image.topics.items() if topic.topic_id != topic_id}
            deleted = {**image.deleted_topics, TopicId(topic_id): ()}
            return replace(image, topics=MappingProxyType(topics), deleted_topics=MappingProxyType(deleted))
        case TopicRemoved(topic_id):
            left = {gone: nodes for gone, nodes in image.deleted_topics.items() if gone != topic_id}
            return replace(image, deleted_topics=MappingProxyType(left))
        case PartitionsAdded(topic_id, assignments):
            topic = _topic_by_id(image, topic_id)
            more = _new_partitions(assignments, len(topic.partitions))
            return _with_topic(image, replace(topic, partitions=(*topic.partitions, *more)))
        case ConfigsAltered(topic_id, changes):
            topic = _topic_by_id(image, topic_id)
            merged: dict[str, str | None] = {**topic.configs, **changes}
            configs = {name: value for name, value in merged.items() if value is not None}
            return _with_topic(image, replace(topic, configs=MappingProxyType(configs)))
        case ProducerIdsAllocated(next_producer_id):
            return replace(image, next_producer_id=next_producer_id)
    raise AssertionError(f"unknown metadata record {record!r}")


def _register(image: ClusterImage, record: BrokerRegistered, position: int) -> ClusterImage:
    node = NodeId(record.node_id)
    info = BrokerInfo(node, record.host, record.port, record.rack, position, record.incarnation)
    brokers = dict(sorted({**image.brokers, node: info}.items()))
    topics = {name: _lead_anew(topic, node) for name, topic in image.topics.items()}
    return replace(image, brokers=MappingProxyType(brokers), topics=MappingProxyType(topics), controller_id=node)


def _lead_anew(topic: Topic, node: NodeId) -> Topic:
    partitions = tuple(
        replace(info, leader_epoch=info.leader_epoch + 1) if info.leader == node else info for info in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _new_partitions(assignments: list[list[int]], first: int) -> tuple[PartitionInfo, ...]:
    replicas = [tuple(NodeId(node) for node in nodes) for nodes in assignments]
    return tuple(PartitionInfo(first + i, nodes[0], 0, nodes, nodes) for i, nodes in enumerate(replicas))


def _topic_by_id(image: ClusterImage, topic_id: str) -> Topic:
    return next(topic for topic in image.topics.values() if topic.topic_id == topic_id)


def _with_topic(image: ClusterImage, topic: Topic) -> ClusterImage:
    topics = dict(sorted({**image.topics, topic.name: topic}.items()))
    return replace(image, topics=MappingProxyType(topics))
