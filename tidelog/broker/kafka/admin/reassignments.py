"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455): replicas move, or stay where they were.

Each partition is a command of its own, so that one that cannot move does not keep the others.
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


class _Asked(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    """None calls off the move."""


# -- moving ----------------------------------------------------------------------------------------------------------


async def alter_partition_reassignments(desk: Desk, request: Any) -> Tree:
    """Begins moves of replicas, or calls them off."""
    asked = [
        _Asked(topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas))
        for topic in request.topics
        for one in topic.partitions
    ]
    is_repeated = repeated(one[:2] for one in asked)
    keeps_factor = not getattr(request, "allow_replication_factor_change", True)

    async def alter(one: _Asked) -> Tree:
        refuse_repeated(is_repeated=is_repeated(one[:2]), what="this partition")
        if one.replicas is not None or not desk.may(Operation.ALTER, topic_resource(one.topic)):
            desk.require(Operation.ALTER, CLUSTER)
        subject = f"{one.topic}-{one.partition} to {'where it was' if one.replicas is None else list(one.replicas)}"
        with told_as(AdminCode.INVALID_REPLICA_ASSIGNMENT):
            async with desk.changing(Operation.ALTER, CLUSTER, subject):
                await _alter(desk, one, keeps_factor=keeps_factor)
        return _answer(one, DONE)

    answers = await desk.each(asked, alter, _answer, kind=CLUSTER.type, most=MOVES_MAX)
    return {
        "allow_replication_factor_change": not keeps_factor,
        **DONE.fields,
        "responses": by_topic(asked, answers, "partitions"),
    }


async def _alter(desk: Desk, one: _Asked, *, keeps_factor: bool) -> None:
    topic, info = _partition(desk, one.topic, one.partition)
    if one.replicas is None and not info.is_moving:
        raise Refused(AdminCode.NO_REASSIGNMENT_IN_PROGRESS, "the replicas of this partition do not move")
    if keeps_factor and one.replicas is not None and len(one.replicas) != len(info.target):
        raise Refused(
            AdminCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(info.target)} replicas, and is to keep that many",
        )
    await desk.administration.alter_reassignments([NewReplicas(topic.topic_id, one.partition, one.replicas)])


def _partition(desk: Desk, name: str, number: int) -> tuple[Topic, PartitionInfo]:
    topic = desk.cluster.topic(name)
    if not 0 <= number < len(topic.partitions):
        raise UnknownPartition(f"topic {name} has no partition {number}, only {len(topic.partitions)} partitions")
    return topic, topic.partitions[number]


def _answer(one: _Asked, outcome: Outcome) -> Tree:
    return {"partition_index": one.partition, **outcome.fields}


# -- what moves ------------------------------------------------------------------------------------------------------


async def list_partition_reassignments(desk: Desk, request: Any) -> Tree:
    """Lists what moves, of the partitions that are named or of all; of topics that the client may see."""
    bound(*(1 + len(topic.partition_indexes) for topic in request.topics or ()))
    topics = desk.image.topics
    asked: dict[str, Collection[int] | None] = dict.fromkeys(topics)
    if request.topics is not None:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    moving = [
        (name, info)
        for name, numbers in asked.items()
        if name in topics and desk.may(Operation.DESCRIBE, topic_resource(name))
        for info in topics[name].partitions
        if info.is_moving and (numbers is None or info.partition in numbers)
    ]
    names = [_Asked(name, info.partition, None) for name, info in moving]
    return {**DONE.fields, "topics": by_topic(names, [_shown(info) for _, info in moving], "partitions")}


def _shown(info: PartitionInfo) -> Tree:
    return {
        "partition_index": info.partition,
        "replicas": list(info.replicas),
        "adding_replicas": list(info.adding),
        "removing_replicas": list(info.removing),
    }
