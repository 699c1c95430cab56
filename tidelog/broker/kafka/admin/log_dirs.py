"""DescribeLogDirs: the replicas on this broker's disk, and how large they are. There is one directory of logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import Refused
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, topic_resource
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.cluster import Topic
from tidelog.model.ids import PartitionId

STEP: Final = 200
"""Partitions after which others have their turn."""


async def describe_log_dirs(desk: Desk, request: Any) -> Tree:
    """Describes the replicas of the topics that are named, or of all."""
    bound(*(1 + len(topic.partitions) for topic in request.topics or ()))
    try:
        desk.require(Operation.DESCRIBE, CLUSTER)
    except Refused as error:
        return {"error_code": error.code, "results": []}
    topics, looked_at = [], 0
    for topic, partitions in _asked(desk, request):
        shown = [found for number in partitions if (found := _replica(desk, topic, number)) is not None]
        if shown:
            topics.append({"name": topic.name, "partitions": shown})
        looked_at += len(partitions)
        if looked_at >= STEP:
            looked_at = 0
            await asyncio.sleep(0)
    return {"error_code": 0, "results": [{"error_code": 0, "log_dir": desk.cluster.config.log_dir, "topics": topics}]}


def _asked(desk: Desk, request: Any) -> Iterator[tuple[Topic, range | tuple[int, ...]]]:
    topics = desk.image.topics
    if request.topics is None:
        yield from ((topic, range(len(topic.partitions))) for topic in topics.values())
        return
    for asked in request.topics:
        topic = topics.get(asked.topic)
        if topic is not None:
            yield topic, tuple(dict.fromkeys(asked.partitions))


def _replica(desk: Desk, topic: Topic, number: int) -> Tree | None:
    """Returns a replica; None if there is none here, or its log is not open."""
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
