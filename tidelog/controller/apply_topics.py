"""Applies the records about topics to the image: their partitions, settings, moves, losses and deletion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tidelog.controller.protocols import rules_of
from tidelog.controller.records import (
    RENEWED_LEVEL,
    ConfigsAltered,
    LossAccepted,
    MovesThrottled,
    PartitionChange,
    PartitionRegrouped,
    PartitionsAdded,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from tidelog.model.cluster import NO_THROTTLE, ClusterImage, PartitionInfo, Regrouping, Topic, in_order
from tidelog.model.ids import NodeId, TopicId
from tidelog.model.losses import AcceptedLoss, with_loss

DURABILITY = "ack.durability"
UNKNOWN_SINCE = 0
"""The start position of replicas that existed before the metadata recorded start positions."""
REGROUPINGS_MAX = 100

PartitionRecord = TopicCreated | TopicDeleted | TopicRemoved | PartitionsAdded | PartitionsChanged | PartitionRegrouped
TopicRecord = PartitionRecord | ConfigsAltered | LossAccepted | MovesThrottled


def apply_to_topics(image: ClusterImage, record: TopicRecord, offset: int) -> ClusterImage:
    """Returns the image after a record about topics, which is at `offset` in the metadata log."""
    match record:
        case MovesThrottled(bytes_per_s):
            return _unthrottled_if_idle(replace(image, moves_throttle=bytes_per_s))
        case ConfigsAltered():
            return _alter_configs(image, record)
        case LossAccepted():
            return _accept_loss(image, record)
    # Snapshots of level 1 have no room for positions, so at that level all brokers must note the same 0.
    since = offset if image.level >= RENEWED_LEVEL else UNKNOWN_SINCE
    return _unthrottled_if_idle(_apply_to_partitions(image, record, since))


def _apply_to_partitions(image: ClusterImage, record: PartitionRecord, offset: int) -> ClusterImage:
    match record:
        case TopicCreated(name, topic_id, assignments, configs):
            created = Topic(name, TopicId(topic_id), in_order(configs), ())
            return _with_topic(image, _grown(image, created, assignments, offset))
        case TopicDeleted(topic_id):
            return _delete_topic(image, topic_id)
        case TopicRemoved(topic_id, node_id):
            holders = image.deleted_topics.get(TopicId(topic_id), ())
            left = tuple(holder for holder in holders if holder != node_id)
            return replace(image, deleted_topics=still_held({**image.deleted_topics, TopicId(topic_id): left}))
        case PartitionsAdded(topic_id, assignments):
            topic = image.topic_by_id(topic_id)
            if topic is None:
                return image
            return _with_topic(image, _grown(image, topic, assignments, offset))
        case PartitionsChanged(changes):
            return _change_partitions(image, changes, offset)
        case PartitionRegrouped():
            return _regroup(image, record, offset)


def _grown(image: ClusterImage, topic: Topic, assignments: list[list[int]], offset: int) -> Topic:
    new = rules_of(topic).new_partition
    first = len(topic.partitions)
    # The rules look at who is live at this position, so all brokers get the same leaders and in-sync sets.
    made = [new(image, first + i, _nodes(nodes)) for i, nodes in enumerate(assignments)]
    more = [replace(info, since=_since(info.replicas, {}, offset)) for info in made]
    return replace(topic, partitions=(*topic.partitions, *more))


def _since(replicas: tuple[NodeId, ...], began_at: Mapping[NodeId, int], offset: int) -> tuple[tuple[NodeId, int], ...]:
    """Returns the offset at which each replica was assigned: `began_at` for the replicas in it, and `offset` for all
    others."""
    return tuple((node, began_at.get(node, offset)) for node in replicas)


def _delete_topic(image: ClusterImage, topic_id: str) -> ClusterImage:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return image
    topics = {name: remaining for name, remaining in image.topics.items() if name != topic.name}
    nodes = dict.fromkeys(node for info in topic.partitions for node in info.replicas)
    # A broker that is gone will never report that its data are removed.
    holders = tuple(sorted(node for node in nodes if node in image.brokers))
    deleted = still_held({**image.deleted_topics, topic.topic_id: holders})
    return replace(image, topics=MappingProxyType(topics), deleted_topics=deleted)


def still_held(deleted: Mapping[TopicId, tuple[NodeId, ...]]) -> Mapping[TopicId, tuple[NodeId, ...]]:
    """Returns the deleted topics of which a broker still has data, with these brokers."""
    # A topic that nobody holds any more is forgotten, or every deletion would stay in the image for ever.
    return in_order({topic_id: holders for topic_id, holders in deleted.items() if holders})


def _change_partitions(image: ClusterImage, changes: list[PartitionChange], offset: int) -> ClusterImage:
    by_topic: dict[str, dict[int, PartitionChange]] = {}
    for change in changes:
        by_topic.setdefault(change.topic_id, {})[change.partition] = change
    topics = {
        name: _changed(topic, by_topic[topic.topic_id], offset) if topic.topic_id in by_topic else topic
        for name, topic in image.topics.items()
    }
    return replace(image, topics=MappingProxyType(topics))


def _changed(topic: Topic, changes: Mapping[int, PartitionChange], offset: int) -> Topic:
    partitions = []
    for info in topic.partitions:
        change = changes.get(info.partition)
        partitions.append(info if change is None else _partition_of(change, info, offset))
    return replace(topic, partitions=tuple(partitions))


def _partition_of(change: PartitionChange, was: PartitionInfo, offset: int) -> PartitionInfo:
    replicas = was.replicas if change.replicas is None else _nodes(change.replicas)
    # A renewed replica gets the position of this record, which tells its broker to begin the log anew.
    began_at = {node: since for node, since in was.since if node not in change.renewed}
    return PartitionInfo(
        change.partition,
        NodeId(change.leader),
        change.leader_epoch,
        replicas,
        _nodes(change.isr),
        change.partition_epoch,
        elr=_nodes(change.elr),
        last_known_elr=_nodes(change.last_known_elr),
        adding=_nodes(change.adding),
        removing=_nodes(change.removing),
        members=was.members if change.members is None else tuple(change.members),
        wanted=was.wanted if change.wanted is None else tuple(change.wanted),
        next_engine_id=was.next_engine_id if change.next_engine_id is None else change.next_engine_id,
        # Once voters have changed, a disk without the log must rejoin it.
        is_founding=was.is_founding and change.members is None,
        since=_since(replicas, began_at, offset),
        # Changes of a leader or replica never touch what an operator has given up.
        losses=was.losses,
        regroupings=was.regroupings,
    )


def _nodes(numbers: list[int]) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def _unthrottled_if_idle(image: ClusterImage) -> ClusterImage:
    """Returns the image without its reassignment throttle if no replica is being moved."""
    # Left in force, the throttle would slow down a later move that nobody meant it for. (In Kafka an operator has to
    # remember to take it off.)
    if image.moves_throttle == NO_THROTTLE or any(
        info.is_moving for topic in image.topics.values() for info in topic.partitions
    ):
        return image
    return replace(image, moves_throttle=NO_THROTTLE)


def _alter_configs(image: ClusterImage, record: ConfigsAltered) -> ClusterImage:
    topic = image.topic_by_id(record.topic_id)
    if topic is None:
        return image
    merged: dict[str, str | None] = {**topic.configs, **record.changes}
    configs = {name: value for name, value in merged.items() if value is not None}
    # Brokers that registered before this position may have acknowledged from memory, whatever the setting says later.
    is_changed = topic.configs.get(DURABILITY) != configs.get(DURABILITY)
    volatile_before = image.position if is_changed else topic.volatile_before
    return _with_topic(image, replace(topic, configs=in_order(configs), volatile_before=volatile_before))


def _accept_loss(image: ClusterImage, record: LossAccepted) -> ClusterImage:
    topic = image.topic_by_id(record.topic_id)
    if topic is None or record.partition >= len(topic.partitions):
        return image
    info = topic.partitions[record.partition]
    losses = info.losses
    for lost in record.ranges:
        accepted = AcceptedLoss(
            lost.start, lost.end, record.at_ms, record.by, record.via, lost.statements, lost.digests
        )
        losses = with_loss(losses, accepted)
    return _with_partition(image, topic, replace(info, losses=losses))


def _regroup(image: ClusterImage, record: PartitionRegrouped, offset: int) -> ClusterImage:
    change = record.change
    topic = image.topic_by_id(change.topic_id)
    if topic is None or change.partition >= len(topic.partitions):
        return image
    regrouping = Regrouping(
        change.leader_epoch,
        record.end,
        record.at_ms,
        record.by,
        record.via,
        record.source,
        record.statements,
        tuple(change.members or ()),
        record.position,
        record.birth,
    )
    now = _partition_of(change, topic.partitions[change.partition], offset)
    # The image is held by every broker, so its audit records are bounded; the newest one names the era.
    kept = (*now.regroupings, regrouping)[-REGROUPINGS_MAX:]
    return _with_partition(image, topic, replace(now, regroupings=kept))


def _with_partition(image: ClusterImage, topic: Topic, info: PartitionInfo) -> ClusterImage:
    before, behind = topic.partitions[: info.partition], topic.partitions[info.partition + 1 :]
    return _with_topic(image, replace(topic, partitions=(*before, info, *behind)))


def _with_topic(image: ClusterImage, topic: Topic) -> ClusterImage:
    return replace(image, topics=in_order({**image.topics, topic.name: topic}))
