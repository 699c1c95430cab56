"""ListOffsets and OffsetForLeaderEpoch: offsets of a partition's beginning and end, of a timestamp, or of a leader
epoch's end.

Both are answered by the partition's leader only, on the event loop: a lookup by timestamp reads one batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from tidelog.broker.face.partitions import LedPartition
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.codes import code_of, epoch_code
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.slices import Slices
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.errors import InvalidRequest, TidelogError

LATEST: Final = -1
EARLIEST: Final = -2
NEWEST_TIME: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
"""Timestamps that ask for the end of tiered storage, and for the first record to upload to it; there is none here."""
NOTHING: Final = -1


async def list_offsets(parts: Parts, _call: Call, request: Any, caller: Caller) -> dict[str, Any]:
    """Answers a ListOffsets request, as nested dicts with the field names of the library kio."""
    return await _by_topic(request, "name", partial(_listed, parts, caller))


async def epochs(parts: Parts, _call: Call, request: Any, caller: Caller) -> dict[str, Any]:
    """Answers an OffsetForLeaderEpoch request, as nested dicts with the field names of the library kio."""
    return await _by_topic(request, "topic", partial(_epoch, parts, caller))


async def _by_topic(request: Any, name: str, answer: Callable[[str, Any], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    slices, topics = Slices(), []
    for topic in request.topics:
        partitions = []
        for query in topic.partitions:
            partitions.append(await answer(getattr(topic, name), query))
            await slices.served(1)
        topics.append({name: getattr(topic, name), "partitions": partitions})
    return {"topics": topics}


async def _listed(parts: Parts, caller: Caller, topic: str, query: Any) -> dict[str, Any]:
    tree = {
        "partition_index": query.partition_index,
        "error_code": 0,
        "timestamp": NOTHING,
        "offset": NOTHING,
        "leader_epoch": NOTHING,
    }
    try:
        led = _led(parts, caller, topic, query.partition_index)
        tree["error_code"] = epoch_code(getattr(query, "current_leader_epoch", NOTHING), led.leader_epoch)
        if not tree["error_code"]:
            tree["offset"], tree["timestamp"] = await _offset(led, query.timestamp)
            tree["leader_epoch"] = led.leader_epoch
    except TidelogError as error:
        tree["error_code"] = code_of(error)
    return tree


async def _epoch(parts: Parts, caller: Caller, topic: str, query: Any) -> dict[str, Any]:
    tree = {"partition": query.partition, "error_code": 0, "leader_epoch": NOTHING, "end_offset": NOTHING}
    try:
        led = _led(parts, caller, topic, query.partition)
        tree["error_code"] = epoch_code(query.current_leader_epoch, led.leader_epoch)
        if not tree["error_code"]:
            tree["leader_epoch"], tree["end_offset"] = led.end_of_epoch(query.leader_epoch)
    except TidelogError as error:
        tree["error_code"] = code_of(error)
    return tree


def _led(parts: Parts, caller: Caller, topic: str, partition: int) -> LedPartition:
    parts.refuse_unauthorized(caller, Operation.DESCRIBE, Resource("Topic", topic))
    return parts.partitions.led_here(topic, partition)


async def _offset(led: LedPartition, timestamp: int) -> tuple[int, int]:
    """Returns the offset for a timestamp or for one of Kafka's special values (-1 latest, -2 earliest, ...), and the
    timestamp (ms) of the record found; -1 for none."""
    if timestamp >= 0:
        record = await led.offset_for_timestamp(timestamp)
        return (NOTHING, NOTHING) if record is None else record
    extent = await led.extent()
    if timestamp == LATEST:
        return extent.high_watermark, NOTHING
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return extent.log_start_offset, NOTHING
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING, NOTHING
    if timestamp == NEWEST_TIME:
        record = await led.newest_record()
        return (NOTHING, NOTHING) if record is None else record
    raise InvalidRequest(f"{timestamp} is no time, and stands for none")
