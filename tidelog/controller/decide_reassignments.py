"""Decisions about reassignments: a reassignment begins here, and ends when the ISR that a leader requests has all
target replicas.

    replicas [1,2,3] to [4,2,3]:  replicas [4,2,3,1], adding [4], removing [1]  ->  4 in sync  ->  replicas [4,2,3]

During a reassignment the old and the new replicas copy the partition, so it never has fewer copies than before. A
cancelled reassignment leaves the original replicas, provided that one of them is in sync.

Where replicas vote (`quorum_leadership`) a reassignment begins in the same way, and ends when the leader reports that
the wanted members are in force. To cancel it is to reassign back: a replica that has become a member meanwhile must be
removed again.

One throttle holds for all reassignments of the cluster. A command that begins a reassignment may set it, and it ends
with the last reassignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply_all
from tidelog.controller.decide_partitions import Partitions
from tidelog.controller.decide_topics import check_room
from tidelog.controller.decision import Decision
from tidelog.controller.leadership import as_record
from tidelog.controller.partition_commands import MOVES_MAX, AlterReassignments, NewReplicas
from tidelog.controller.protocols import rules_of
from tidelog.controller.records import MetadataRecord, MovesThrottled
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.model.errors import InvalidRequest, UnknownPartition
from tidelog.model.ids import NodeId, TopicPartition


def alter_reassignments(image: ClusterImage, command: AlterReassignments, config: BrokerConfig) -> Decision:
    """Begins or cancels reassignments. Raises `UnknownPartition`, or `InvalidRequest`: too many partitions, replicas
    that do not exist, are repeated or could not copy the partition now, an invalid throttle, or a reassignment that
    cannot be cancelled without data loss."""
    if command.throttle is not None and command.throttle < 0:
        raise InvalidRequest(f"{command.throttle} is no throttle; bytes per second are 1 or more, and 0 means no limit")
    if len(command.partitions) > MOVES_MAX:
        raise InvalidRequest(f"one request moves at most {MOVES_MAX} partitions, not {len(command.partitions)}")
    partitions = Partitions(image, config)
    for move in command.partitions:
        _reassign(partitions, move)
    changes = as_record(partitions.changes)
    _check_room(image, changes, config)
    return Decision((*changes, *_throttled(image, changes, command.throttle)))


def _check_room(image: ClusterImage, changes: Sequence[MetadataRecord], config: BrokerConfig) -> None:
    """Raises `InvalidRequest` if a broker would hold more replicas than its limit during these reassignments."""
    before = {topic.topic_id: topic for topic in image.topics.values()}
    more: Counter[int] = Counter()
    for topic in apply_all(image, changes, image.position).topics.values():
        was = before[topic.topic_id]
        if topic is was:
            continue
        for old, new in zip(was.partitions, topic.partitions, strict=True):
            # While a move lasts a broker holds what comes to it beside what is to leave it.
            more.update(node for node in new.replicas if node not in old.replicas)
    if more:
        check_room(image, more, config)


def _throttled(
    image: ClusterImage, changes: Sequence[MetadataRecord], throttle: int | None
) -> tuple[MovesThrottled, ...]:
    """Returns the record that sets the throttle; none if it is set to that already, or if no partition is being
    reassigned."""
    if throttle is None:
        return ()
    after = apply_all(image, changes, image.position)
    # A throttle ends with the last move; without one, `apply` would drop the record at once.
    is_moving = any(info.is_moving for topic in after.topics.values() for info in topic.partitions)
    return (MovesThrottled(throttle),) if is_moving and throttle != after.moves_throttle else ()


def _reassign(partitions: Partitions, move: NewReplicas) -> None:
    entry = partitions.find(move.topic_id, move.partition)
    if entry is None:
        raise UnknownPartition(f"there is no partition {move.partition} of the topic with id {move.topic_id}")
    topic, info = entry
    name = TopicPartition(topic.name, info.partition)
    if move.replicas is None:
        # without effect if nothing moves: a repetition, or the move was faster
        proposed = rules_of(topic).called_off(info, name) if info.is_moving else info
    else:
        target = tuple(NodeId(node) for node in move.replicas)
        # A repetition: the move is under way, or done. Begun again, it would raise the partition epoch for nothing.
        if target == info.target:
            return
        _check_target(partitions.image, info, target, name)
        proposed = _begun(info, target)
    partitions.settle(topic, info, proposed)


def _check_target(image: ClusterImage, info: PartitionInfo, target: tuple[NodeId, ...], name: TopicPartition) -> None:
    unknown = [node for node in target if node not in image.brokers]
    if not target or unknown or len(dict.fromkeys(target)) != len(target):
        raise InvalidRequest(f"{name}: replicas must be distinct, known brokers, not {list(target)}")
    # A replica that is there already may be away: it has what it had, and copies the rest once it is back.
    absent = [node for node in target if node not in info.replicas and not image.is_live(node)]
    if absent:
        raise InvalidRequest(f"{name}: broker {absent[0]} is not live, so it could not copy the partition; start it")


def _begun(info: PartitionInfo, target: tuple[NodeId, ...]) -> PartitionInfo:
    # The original replicas, not the present ones: a move that replaces another keeps the first one's targets as both
    # adding and removing until the end, since they may be the ones that are in sync.
    original = info.original
    leaving = tuple(node for node in info.replicas if node not in target)
    replicas = (*target, *leaving)
    adding = tuple(node for node in replicas if node not in original)
    return replace(info, replicas=replicas, adding=adding, removing=leaving)
