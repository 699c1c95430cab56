"""Consumer lag of the groups that this broker coordinates, readable without waiting.

Committed offsets are in memory, and so are the high watermarks of partitions led here. The high watermarks of other
partitions are fetched in the background every `REFRESH_S` seconds, many per request, and only while the lags are being
read. So a lag is at most `REFRESH_S` and one request old, and a broker that is not scraped sends no requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tidelog.broker.groups.asking import GroupHost, extents_of
from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.group import Group
from tidelog.groups.records import OffsetRecord
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId, TopicId

REFRESH_S: Final = 5.0
WATCHED_S: Final = 120.0
"""Seconds without a read of the lags after which the high watermarks of other brokers' partitions are no longer
fetched."""


class GroupLags:
    """The lags of the groups that one broker coordinates. `run` is its task."""

    def __init__(self, broker: GroupHost) -> None:
        self._broker = broker
        self._ends = dict[Partition, int]()
        """High watermarks of partitions led by other brokers."""
        self._watcher_came = asyncio.Event()
        self._watched_until_s = 0.0

    def watched(self) -> None:
        """Notes that the lags are being read: high watermarks are fetched for `WATCHED_S` seconds more."""
        self._watched_until_s = asyncio.get_running_loop().time() + WATCHED_S
        self._watcher_came.set()

    def groups(self) -> Iterator[Group]:
        """Yields the groups of this broker's loaded coordinators."""
        for coordinator in self._broker.groups.coordinators.loaded:
            if coordinator.shard is not None:
                yield from coordinator.shard.groups.values()

    def of(self, committed: OffsetRecord) -> int | None:
        """Returns the lag in offsets; None if the topic was deleted or its high watermark is not known yet."""
        end = self._end(committed)
        # The end was asked for some seconds ago, and the group may have committed beyond it since.
        return None if end is None else max(0, end - committed.offset)

    def _end(self, committed: OffsetRecord) -> int | None:
        topic = self._broker.image.topics.get(committed.topic)
        # A topic that was created anew under the name has other records; the old offset says nothing about them.
        if topic is None or topic.topic_id != committed.topic_id:
            return None
        led = self._broker.partitions.get(PartitionId(TopicId(committed.topic_id), committed.partition))
        # What is led here is known exactly; `_ends` is up to `REFRESH_S` old.
        return self._ends.get((committed.topic, committed.partition)) if led is None else led.high_watermark

    async def run(self) -> None:
        """Fetches the high watermarks of other brokers' partitions while the lags are being read, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._watcher_came.wait()
            while loop.time() < self._watched_until_s:
                with suppress(TidelogError):  # whoever watches must never be what ends a broker
                    await self._refresh()
                await asyncio.sleep(REFRESH_S)
            # No await lies between the look at the clock and this, so a watcher who comes now is not missed. Old ends
            # go: the next watcher would be shown the lags of long ago.
            self._watcher_came.clear()
            self._ends.clear()

    async def _refresh(self) -> None:
        partitions = list(dict.fromkeys(self._led_elsewhere()))
        extents = await extents_of(self._broker, partitions)
        self._ends = {
            partition: extent.high_watermark
            for partition, extent in zip(partitions, extents, strict=True)
            if not isinstance(extent, TidelogError)
        }

    def _led_elsewhere(self) -> Iterator[Partition]:
        led = self._broker.partitions
        return (
            (committed.topic, committed.partition)
            for group in self.groups()
            for committed in group.offsets.values()
            if PartitionId(TopicId(committed.topic_id), committed.partition) not in led
        )
