"""Deleting a partition's oldest records at its leader: on request, and by the topic's retention."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.broker.runtime.purgatory import Watchers
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import OffsetOutOfRange, TimedOutAfterAppend
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.retention import retained_from


class Deletable(Protocol):
    """The properties of a led partition that deletion needs."""

    log: PartitionLog
    config: TopicConfig
    watchers: Watchers

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def low_watermark(self) -> int: ...

    def request_deletion(self, offset: int) -> None: ...


async def delete_below(partition: Deletable, offset: int, deadline_s: float) -> None:
    """Deletes the committed records below `offset`; returns when any broker that may lead next has deleted them, too.
    `deadline_s` is in the event loop's time.

    Raises `OffsetOutOfRange` beyond the high watermark, `TimedOutAfterAppend` at the deadline (they may be deleted
    yet), or as `request_deletion`.
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
                await _changed(partition.watchers)
                partition.request_deletion(offset)
    except TimeoutError:
        raise TimedOutAfterAppend(f"the records below offset {offset} are not deleted yet; they may be later") from None


async def _changed(watchers: Watchers) -> None:
    """Returns when the partition's watchers are woken next."""
    changed = asyncio.get_running_loop().create_future()
    watchers.add(changed)
    try:
        await changed
    finally:
        watchers.discard(changed)


def kept_from(partition: Deletable, now_ms: int) -> int:
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
