"""`PartitionReader`: the reading of assigned partitions, whether the program, its topics or its group assigns them.

Records are prefetched by the fetcher's tasks and decoded on request, one batch at a time. Everything runs in one event
loop. A cancelled call has returned nothing: positions move only with returned records.

In a group, each call first goes through `ConsumerGroup.is_ready`, which rebalances. The returned records are remembered
until the next call, since the caller may be processing them until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Self, TypeVar

from tidelog.consumer.consumer_group import ConsumerGroup
from tidelog.consumer.cursor import Cursor, ResetPolicy
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.intervals import ProcessedOffsets
from tidelog.consumer.losses import LossPolicy
from tidelog.consumer.options import FetchOptions
from tidelog.consumer.records import ConsumerBatch, ConsumerRecord, OffsetAndTimestamp
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX, TopicPartition
from tidelog.model.lost_ranges import LostRange
from tidelog.transport.errors import ClientClosed
from tidelog.transport.frames.session import RecordSession
from tidelog.transport.offsets import OffsetQuery, PartitionOffsets, wait_for_offsets

T = TypeVar("T")

HANDOUT_BYTES = 256 << 10
"""Approximate bytes that a `getmany` without `max_records` decodes: some three milliseconds of the event loop. More
would not be faster, since the records would survive more rounds of the garbage collector."""


class PartitionReader:
    """Returns the records of the assigned partitions, and keeps the position in each."""

    def __init__(self, session: RecordSession, options: FetchOptions, *, check_crcs: bool, skips_losses: bool) -> None:
        self._session = session
        self._losses = LossPolicy(skips=skips_losses)
        self._subscription = Subscription(self._losses, check_crcs=check_crcs)
        self._news = asyncio.Event()
        self._fetcher = Fetcher(session, options, self._news.set)
        self._group: ConsumerGroup | None = None
        self._current: Cursor | None = None
        """The cursor (read position and fetched records of a partition) from whose decoded batch `getone` returns
        records."""
        self._handed_out: ConsumerRecord | Mapping[TopicPartition, int] | None = None
        """In a group: what the last call returned, which the caller may still be processing. A record that was returned
        alone; of several records, the first offset in each partition; None if the call has not returned any."""
        self._is_open = False

    # -- reading -------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Returns the next record of these partitions, or of all; waits until there is one.

        Raises the error that stopped a partition: `DamagedBatch`, `RecordsLost`, `OffsetOutOfRange`, ... The next call
        tries again; `seek` skips the failing offset.
        """
        if not partitions and (record := self._next_of_current()) is not None:
            return record
        return await self._next(self._first, partitions)

    async def getbatch(self, *partitions: TopicPartition) -> ConsumerBatch:
        """Returns the next batch of these partitions, or of all, without an object per record; waits until there is
        one.

        A batch contains the records that a producer sent together; records before the position are left out. The
        position moves behind the whole batch. Raises the error that stopped a partition: `DamagedBatch`, `RecordsLost`,
        `OffsetOutOfRange`, ...
        """
        return await self._next(self._first_batch, partitions)

    async def batches(self, *partitions: TopicPartition) -> AsyncIterator[ConsumerBatch]:
        """Yields the batches that `getbatch` returns, until the consumer is closed."""
        while True:
            try:
                batch = await self.getbatch(*partitions)
            except ClientClosed:
                return
            yield batch

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Returns the available records of these partitions, or of all, by partition; waits up to `timeout_ms` if there
        are none.

        Returns at most `max_records` records; without it some hundred kilobytes. Raises the error that stopped a
        partition: `DamagedBatch`, `RecordsLost`, `OffsetOutOfRange`, ... The next call tries again.
        """
        if max_records is not None and max_records < 1:
            raise InvalidRequest(f"max_records must be at least 1, not {max_records}")
        records_max = OFFSET_MAX if max_records is None else max_records
        bytes_max = HANDOUT_BYTES if max_records is None else OFFSET_MAX
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        with self._call():
            await asyncio.sleep(0)  # a caller that never has to wait must not starve the fetches
            while True:
                self._news.clear()
                self._check_usable()
                records = await self._take(partitions, records_max, bytes_max, deadline_s)
                if records or loop.time() >= deadline_s:
                    return records
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline_s):
                        await self._news.wait()

    async def _take(
        self, partitions: Sequence[TopicPartition], records_max: int, bytes_max: int, deadline_s: float
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        if self._group is not None and not await self._group.is_ready(deadline_s):
            return {}
        try:
            taken = self._subscription.take(partitions, records_max, bytes_max)
        finally:
            self._fetch_more()
        if self._group is not None:
            self._handed_out = {partition: records[0].offset for partition, records in taken.items()}
        return taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if (record := self._next_of_current()) is not None:
            return record
        try:
            return await self._next(self._first, ())
        except ClientClosed:
            raise StopAsyncIteration from None

    def _next_of_current(self) -> ConsumerRecord | None:
        """Returns the next record of the current batch; None if that has no more, or if a rebalance or fetch has to be
        handled first."""
        cursor = self._current
        if cursor is None:
            return None
        if self._group is None:
            return cursor.next_record()
        if not self._group.may_go_on():
            return None
        record = cursor.next_record()
        if record is not None:
            self._handed_out = record
        return record

    async def _next(
        self, first: Callable[[Sequence[TopicPartition]], T | None], partitions: Sequence[TopicPartition]
    ) -> T:
        """Calls `first`, which removes and returns an available item, until it returns one; waits in between."""
        self._current = None
        with self._call():
            await asyncio.sleep(0)
            while True:
                self._news.clear()
                self._check_usable()
                if self._group is None or await self._group.is_ready(None):
                    try:
                        item = first(partitions)
                    finally:
                        self._fetch_more()
                    if item is not None:
                        return item
                await self._news.wait()

    def _first(self, partitions: Sequence[TopicPartition]) -> ConsumerRecord | None:
        self._current = self._subscription.next_cursor(partitions)
        if self._current is None:
            return None
        record = self._current.next_record()
        assert record is not None
        if self._group is not None:
            self._handed_out = record
        return record

    def _first_batch(self, partitions: Sequence[TopicPartition]) -> ConsumerBatch | None:
        batch = self._subscription.take_batch(partitions)
        if batch is not None and self._group is not None:
            self._handed_out = {TopicPartition(batch.topic, batch.partition): batch.offsets[0]}
        return batch

    def _call(self) -> AbstractContextManager[None]:
        """Returns the context of a call for records, which marks the records returned before as processed."""
        self._handed_out = None
        return nullcontext() if self._group is None else self._group.call()

    def _in_hand(self) -> Mapping[TopicPartition, int]:
        """Returns, by partition, the first offset of the records that the last call returned."""
        match self._handed_out:
            case None:
                return {}
            case ConsumerRecord() as record:
                return {TopicPartition(record.topic, record.partition): record.offset}
            case offsets:
                return offsets

    def _fetch_more(self) -> None:
        for cursor in self._subscription.all:
            if cursor.wants_more:
                self._fetcher.wake(cursor)

    # -- holding back --------------------------------------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these partitions until `resume`; their positions stay."""
        for cursor in self._subscription.cursors(partitions):
            cursor.is_paused = True
        self._current = None

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends the pause of these partitions."""
        for cursor in self._subscription.cursors(partitions):
            cursor.is_paused = False
            self._fetcher.wake(cursor)
        self._news.set()

    def paused(self) -> list[TopicPartition]:
        """Returns the paused partitions, sorted."""
        return [cursor.partition for cursor in self._subscription.cursors() if cursor.is_paused]

    # -- positions -----------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Returns the offset of the next record to be returned."""
        cursor = self._subscription.cursor(partition)
        if not cursor.has_position and self._group is not None and not self._group.is_subscribed:
            self._check_usable()
            await self._group.is_ready(None)
        if cursor.reset is not None:
            self._check_usable()
            await self._fetcher.resolve([cursor])
        if cursor.position is None:
            raise InvalidRequest(f"{partition} has no position, and auto_offset_reset is none; `seek` first")
        return cursor.position

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the high watermark at the last fetch; None before the first."""
        return self._subscription.cursor(partition).high_watermark

    def lag(self) -> dict[TopicPartition, int]:
        """Returns the lag of each partition in offsets, as of its last fetch; partitions without a fetch are
        left out."""
        return {
            cursor.partition: max(0, cursor.high_watermark - cursor.low)
            for cursor in self._subscription.cursors()
            if cursor.high_watermark is not None and cursor.low is not None
        }

    def lost(self) -> dict[TopicPartition, list[LostRange]]:
        """Returns the given-up lost ranges that this consumer has skipped (`on_loss="skip"`), by partition, sorted."""
        return self._losses.skipped()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position of a partition to `offset`, which need not exist yet."""
        if not 0 <= offset <= OFFSET_MAX:
            raise InvalidRequest(f"offset {offset} is not between 0 and {OFFSET_MAX}")
        cursor = self._subscription.cursor(partition)
        cursor.seek(offset)
        _forget_processed([cursor])
        self._begin_again([cursor])

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves the positions of these partitions, or of all, to the first record."""
        await self._seek_to("earliest", partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves the positions of these partitions, or of all, to the end: records produced from now on are read."""
        await self._seek_to("latest", partitions)

    async def _seek_to(self, policy: ResetPolicy, partitions: Sequence[TopicPartition]) -> None:
        self._check_usable()
        cursors = self._subscription.cursors(partitions)
        for cursor in cursors:
            self._fetcher.end(cursor)
            cursor.request_reset(policy)
        try:
            await self._fetcher.resolve(cursors)
            _forget_processed(cursors)
        finally:
            self._begin_again(cursors)

    def _begin_again(self, cursors: Sequence[Cursor]) -> None:
        if self._is_open:
            for cursor in cursors:
                self._fetcher.begin(cursor)

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition; they need not be assigned."""
        return {offsets.key: offsets.extent()[0] for offsets in await self._offsets(dict.fromkeys(partitions))}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end of each partition: the offset that its next readable record will have."""
        return {offsets.key: offsets.extent()[1] for offsets in await self._offsets(dict.fromkeys(partitions))}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns for each partition the first record with this timestamp (ms) or a later one; None if there is
        none."""
        return {offsets.key: _at_time(offsets) for offsets in await self._offsets(timestamps)}

    async def _offsets(self, timestamps: Mapping[TopicPartition, int | None]) -> list[PartitionOffsets]:
        self._check_usable()
        queries = [OffsetQuery(topic, partition, time) for (topic, partition), time in timestamps.items()]
        return await wait_for_offsets(self._session, queries)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if not self._is_open:
            raise ClientClosed("this consumer is closed, or was never started (use `async with`)")
        if self._fetcher.failure is not None:
            raise RuntimeError("a fetch died of a bug") from self._fetcher.failure


def _forget_processed(cursors: Sequence[Cursor]) -> None:
    """Starts the record of processed offsets anew at each cursor's position, after a seek: what was processed elsewhere
    is forgotten."""
    for cursor in cursors:
        if cursor.processed is not None and cursor.position is not None:
            cursor.processed = ProcessedOffsets(cursor.position)


def _at_time(offsets: PartitionOffsets) -> OffsetAndTimestamp | None:
    offsets.extent()
    if offsets.offset is None or offsets.timestamp is None:
        return None
    return OffsetAndTimestamp(offsets.offset, offsets.timestamp)
