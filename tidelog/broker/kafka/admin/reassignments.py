"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455).

Each partition is sent to the controller as a command of its own, so that one that cannot be reassigned does not hold up
the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from tidelog.broker.kafka.admin.codes import DONE, AdminCode, Outcome, Refused, told_as
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, refuse_repeated, repeated, topic_resource
from tidelog.broker.kafka.admin.grouping import by_topic
from tidelog.controller.partition_commands import MOVES_MAX, NewReplicas
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.errors import UnknownPartition


class _Move(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    """The new replicas; None cancels the partition's reassignment."""


# -- moving ----------------------------------------------------------------------------------------------------------


async def alter_partition_reassignments(desk: Desk, request: Any) -> Tree:
    """Begins or cancels the reassignment of each partition in the request."""
    moves = [
        _Move(topic.name, partition.partition_index, None if partition.replicas is None else tuple(partition.replicas))
        for topic in request.topics
        for partition in topic.partitions
    ]
    is_repeated = repeated(move[:2] for move in moves)
    keeps_factor = not getattr(request, "allow_replication_factor_change", True)

    async def alter(move: _Move) -> Tree:
        refuse_repeated(is_repeated=is_repeated(move[:2]), what="this partition")
        if move.replicas is not None or not desk.may(Operation.ALTER, topic_resource(move.topic)):
            desk.require(Operation.ALTER, CLUSTER)
        subject = f"{move.topic}-{move.partition} to {'where it was' if move.replicas is None else list(move.replicas)}"
        with told_as(AdminCode.INVALID_REPLICA_ASSIGNMENT):
            async with desk.changing(Operation.ALTER, CLUSTER, subject):
                await _alter(desk, move, keeps_factor=keeps_factor)
        return _answer(move, DONE)

    answers = await desk.each(moves, alter, _answer, kind=CLUSTER.type, most=MOVES_MAX)
    return {
        "allow_replication_factor_change": not keeps_factor,
        **DONE.fields,
        "responses": by_topic(moves, answers, "partitions"),
    }


async def _alter(desk: Desk, move: _Move, *, keeps_factor: bool) -> None:
    topic, info = _partition(desk, move.topic, move.partition)
    if move.replicas is None and not info.is_moving:
        raise Refused(AdminCode.NO_REASSIGNMENT_IN_PROGRESS, "the replicas of this partition do not move")
    if keeps_factor and move.replicas is not None and len(move.replicas) != len(info.target):
        raise Refused(
            AdminCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(info.target)} replicas, and is to keep that many",
        )
    await desk.administration.alter_reassignments([NewReplicas(topic.topic_id, move.partition, move.replicas)])


def _partition(desk: Desk, name: str, number: int) -> tuple[Topic, PartitionInfo]:
    topic = desk.cluster.topic(name)
    if not 0 <= number < len(topic.partitions):
        raise UnknownPartition(f"topic {name} has no partition {number}, only {len(topic.partitions)} partitions")
    return topic, topic.partitions[number]


def _answer(move: _Move, outcome: Outcome) -> Tree:
    return {"partition_index": move.partition, **outcome.fields}


# -- what moves ------------------------------------------------------------------------------------------------------


async def list_partition_reassignments(desk: Desk, request: Any) -> Tree:
    """Lists the reassignments in progress, of the named partitions or of all, in topics that the client may
    describe."""
    bound(*(1 + len(topic.partition_indexes) for topic in request.topics or ()))
    topics = desk.image.topics
    numbers_of: dict[str, Collection[int] | None] = dict.fromkeys(topics)
    if request.topics is not None:
        numbers_of = {topic.name: topic.partition_indexes for topic in request.topics}
    moving = [
        (name, info)
        for name, numbers in numbers_of.items()
        if name in topics and desk.may(Operation.DESCRIBE, topic_resource(name))
        for info in topics[name].partitions
        if info.is_moving and (numbers is None or info.partition in numbers)
    ]
    names = [_Move(name, info.partition, None) for name, info in moving]
    return {**DONE.fields, "topics": by_topic(names, [_shown(info) for _, info in moving], "partitions")}


def _shown(info: PartitionInfo) -> Tree:
    return {
        "partition_index": info.partition,
        "replicas": list(info.replicas),
        "adding_replicas": list(info.adding),
        "removing_replicas": list(info.removing),
    }
