"""Deleting a partition's oldest records at its leader: on request, and by the topic's retention."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.model.errors import OffsetOutOfRange, TimedOutAfterAppend
from tidelog.storage.retention import retained_from

if TYPE_CHECKING:
    from tidelog.broker.partitions.led_partition import LedPartition


async def delete_below(partition: LedPartition, offset: int, deadline_s: float) -> None:
    """Deletes the committed records below `offset`; returns when any broker that may lead next has deleted them, too.
    `deadline_s` is in the event loop's time.

    Raises `OffsetOutOfRange` beyond the high watermark, `TimedOutAfterAppend` at the deadline (they may be deleted
    yet), or `LeaderNotAvailable`, `Overloaded`, `DiskFull` or `LogOffline`.
    """
    if offset > partition.high_watermark:
        raise OffsetOutOfRange(
            f"offset {offset} is beyond the high watermark {partition.high_watermark}; nothing was deleted",
            partition.log_start_offset,
            partition.high_watermark,
        )
    partition.request_deletion(offset)
    try:
        async with asyncio.timeout_at(deadline_s):
            while partition.low_watermark < offset:
                await partition.watchers.wait()
                partition.request_deletion(offset)
    except TimeoutError:
        raise TimedOutAfterAppend(f"the records below offset {offset} are not deleted yet; they may be later") from None


def kept_from(partition: LedPartition, now_ms: int) -> int:
    """Returns the first offset that the topic's retention keeps; the log's start if the topic is not cleaned by
    deletion."""
    if partition.config.cleanup_policy != "delete":
        return partition.log_start_offset
    return retained_from(
        [segment.summary() for segment in partition.log.segments],
        now_ms=now_ms,
        retention_ms=partition.config.retention_ms,
        retention_bytes=partition.config.retention_bytes,
        high_watermark=min(partition.high_watermark, partition.log.durable_offset),
    )
