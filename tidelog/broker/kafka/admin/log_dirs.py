"""DescribeLogDirs and AlterReplicaLogDirs: the replicas on this broker's disk and their sizes.

A broker has one log directory, so a replica cannot be moved to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, AdminCode, Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, topic_resource
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import Topic
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.kafka_codes import KafkaCode

STEP: Final = 200
"""Number of partitions after which the handler yields to other tasks of the event loop."""


async def describe_log_dirs(desk: Desk, request: Any) -> Tree:
    """Describes this broker's replicas of the named topics, or of all topics."""
    bound(*(1 + len(topic.partitions) for topic in request.topics or ()))
    try:
        desk.require(Operation.DESCRIBE, CLUSTER)
    except Refused as error:
        return {"error_code": error.code, "results": []}
    topics, looked_at = [], 0
    for topic, partitions in _requested(desk, request):
        shown = [replica for number in partitions if (replica := _replica(desk, topic, number)) is not None]
        if shown:
            topics.append({"name": topic.name, "partitions": shown})
        looked_at += len(partitions)
        if looked_at >= STEP:
            looked_at = 0
            await asyncio.sleep(0)
    return {"error_code": 0, "results": [{"error_code": 0, "log_dir": desk.cluster.config.log_dir, "topics": topics}]}


def _requested(desk: Desk, request: Any) -> Iterator[tuple[Topic, range | tuple[int, ...]]]:
    topics = desk.image.topics
    if request.topics is None:
        yield from ((topic, range(len(topic.partitions))) for topic in topics.values())
        return
    for named in request.topics:
        topic = topics.get(named.topic)
        if topic is not None:
            yield topic, tuple(dict.fromkeys(named.partitions))


def _replica(desk: Desk, topic: Topic, number: int) -> Tree | None:
    """Returns the description of this broker's replica of a partition; None if it has no open one, or the client may
    not see it."""
    copy = desk.parts.partitions.local_copy(PartitionId(topic.topic_id, number))
    if copy is None or not desk.may(Operation.DESCRIBE, topic_resource(topic.name)):
        return None
    log = copy.replica.log
    return {
        "partition_index": number,
        "partition_size": log.log_bytes,
        "offset_lag": max(0, copy.replica.high_watermark - log.log_end_offset),
        "is_future_key": False,
    }


async def alter_replica_log_dirs(desk: Desk, request: Any) -> Tree:
    """Succeeds for each replica that is asked to stay in this broker's log directory; returns LOG_DIR_NOT_FOUND for any
    other directory."""
    replicas = [
        (topic.name, number, entry.path)
        for entry in request.dirs
        for topic in entry.topics
        for number in topic.partitions
    ]
    bound(len(replicas), *(len(entry.topics) for entry in request.dirs))
    results: dict[str, list[Tree]] = {}
    for name, number, path in replicas:
        try:
            desk.require(Operation.ALTER, CLUSTER)
            outcome = _stay(desk, name, number, path)
        except (TidelogError, Refused) as error:
            outcome = outcome_of(error)
        results.setdefault(name, []).append({"partition_index": number, "error_code": outcome.code})
    return {"results": [{"topic_name": name, "partitions": partitions} for name, partitions in results.items()]}


def _stay(desk: Desk, name: str, number: int, path: str) -> Outcome:
    topic = desk.cluster.topic(name)
    if not 0 <= number < len(topic.partitions):
        return Outcome(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    if path != desk.cluster.config.log_dir:
        return Outcome(AdminCode.LOG_DIR_NOT_FOUND)
    is_here = desk.parts.partitions.local_copy(PartitionId(topic.topic_id, number)) is not None
    return DONE if is_here else Outcome(KafkaCode.REPLICA_NOT_AVAILABLE)
