"""Deciding where replicas are to be: moves begin here, and end when an ISR that a leader asks for holds all targets.

    replicas [1,2,3] to [4,2,3]:  replicas [4,2,3,1], adding [4], removing [1]  ->  4 in sync  ->  replicas [4,2,3]

While a move is under way all its replicas copy, so nothing is in fewer places than before. A move that is replaced by
another keeps the first one's targets until the end, as both adding and removing: they may be the ones in sync. A move
that is called off leaves the original replicas, provided that one of them is in sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidelog.broker.controller.decide_partitions import Partitions
from tidelog.broker.controller.decision import Decision
from tidelog.broker.controller.leadership import as_record
from tidelog.broker.controller.partition_commands import AlterReassignments, NewReplicas, Rebalance, Rebalanced
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.model.errors import InvalidRequest, NotFound, UnknownPartition
from tidelog.model.ids import NodeId, TopicPartition
from tidelog.placement.rebalance import Assignment, plan_rebalance
from tidelog.placement.striped import UsableBroker


def alter_reassignments(image: ClusterImage, command: AlterReassignments, config: BrokerConfig) -> Decision:
    """Raises `UnknownPartition`, or `InvalidRequest`: replicas that do not exist, repeat or could not be filled now, or
    a move that cannot be called off without loss."""
    partitions = Partitions(image, config)
    for wanted in command.partitions:
        _reassign(partitions, wanted)
    return Decision(as_record(partitions.changes))


def _reassign(partitions: Partitions, wanted: NewReplicas) -> None:
    found = partitions.find(wanted.topic_id, wanted.partition)
    if found is None:
        raise UnknownPartition(f"there is no partition {wanted.partition} of the topic with id {wanted.topic_id}")
    topic, info = found
    name = TopicPartition(topic.name, info.partition)
    if wanted.replicas is None:
        asked = _called_off(info, name)
    else:
        target = tuple(NodeId(node) for node in wanted.replicas)
        if target == info.target:
            return
        _check_target(partitions.image, info, target, name)
        asked = _begun(info, target)
    partitions.settle(topic, info, asked)


def _check_target(image: ClusterImage, info: PartitionInfo, target: tuple[NodeId, ...], name: TopicPartition) -> None:
    unknown = [node for node in target if node not in image.brokers]
    if not target or unknown or len(dict.fromkeys(target)) != len(target):
        raise InvalidRequest(f"{name}: replicas must be distinct, known brokers, not {list(target)}")
    absent = [node for node in target if node not in info.replicas and not image.is_live(node)]
    if absent:
        raise InvalidRequest(f"{name}: broker {absent[0]} is not live, so it could not copy the partition; start it")


def _begun(info: PartitionInfo, target: tuple[NodeId, ...]) -> PartitionInfo:
    original = info.original
    leaving = tuple(node for node in info.replicas if node not in target)
    replicas = (*target, *leaving)
    adding = tuple(node for node in replicas if node not in original)
    return replace(info, replicas=replicas, adding=adding, removing=leaving)


def _called_off(info: PartitionInfo, name: TopicPartition) -> PartitionInfo:
    """Without effect if nothing moves: a repetition, or the move was faster."""
    original = info.original
    if not (info.adding or info.removing):
        return info
    isr = tuple(node for node in info.isr if node in original)
    if not isr:
        raise InvalidRequest(
            f"{name}: none of the original replicas {list(original)} is in sync, so records would be lost; wait until "
            "one is, or until the move is complete"
        )
    return replace(info, replicas=original, isr=isr, adding=(), removing=())


# -- whole clusters ----------------------------------------------------------------------------------------------------


def rebalance(image: ClusterImage, command: Rebalance, config: BrokerConfig) -> Decision:
    """Plans from where replicas are to be, so that a repetition finds nothing to do.

    A fenced broker that does not leave counts, and if it would have to copy something, all is refused.
    Raises `NotFound`, or `InvalidRequest` as `plan_rebalance` and `alter_reassignments` do.
    """
    unknown = [node for node in command.leaving if node not in image.brokers]
    if unknown:
        raise NotFound(f"there is no broker {unknown[0]}; the brokers are {', '.join(map(str, image.brokers))}")
    moves = _moves(image, command.leaving)
    if command.validate_only:
        return Decision(answer=lambda after: Rebalanced(after.position, moves))
    begun = alter_reassignments(image, AlterReassignments(moves), config)
    return Decision(begun.records, lambda after: Rebalanced(after.position, moves))


def _moves(image: ClusterImage, leaving: Sequence[int]) -> list[NewReplicas]:
    ids = {topic.name: topic.topic_id for topic in image.topics.values()}
    current = [
        Assignment(TopicPartition(topic.name, info.partition), info.target)
        for topic in image.topics.values()
        for info in topic.partitions
    ]
    going = list(dict.fromkeys(leaving))
    staying = [_usable(image, node) for node in image.brokers if node not in going]
    plan = plan_rebalance(current, staying, [_usable(image, NodeId(node)) for node in going])
    return [
        NewReplicas(ids[move.partition.topic], move.partition.partition, list(move.new)) for move in plan.reassignments
    ]


def _usable(image: ClusterImage, node: NodeId) -> UsableBroker:
    return UsableBroker(node, image.brokers[node].rack)
