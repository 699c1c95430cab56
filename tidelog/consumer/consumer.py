"""The public consumer: aiokafka's method names; positions kept by the caller or by nobody (groups come later).

Records are fetched ahead by the fetcher's tasks and decoded when they are asked for, one batch at a time. Everything
runs in one event loop. A call that is cancelled has handed out nothing: positions move only with what is returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from tidelog.adapters.system import SystemEntropy
from tidelog.consumer.cursor import Cursor, ResetPolicy
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.options import FetchOptions, parse_reset, refuse_group
from tidelog.consumer.records import ConsumerRecord, OffsetAndTimestamp
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.ids import OFFSET_MAX, TopicPartition
from tidelog.model.ports import Entropy
from tidelog.transport.errors import ClientClosed
from tidelog.transport.offsets import OffsetQuery, PartitionOffsets, fetch_offsets
from tidelog.transport.session import ClusterSession

logger = logging.getLogger(__name__)

HANDOUT_BYTES = 256 << 10
"""A `getmany` without `max_records` decodes no more than about this: some three milliseconds of the event loop. More at
once is not faster, since the records outlive more rounds of the garbage collector."""


class Consumer:
    """Reads records from partitions, in order per partition.

    - `topics`: all partitions of these are assigned; partitions that they get later are read from their beginning.
      Without topics, `assign` partitions.
    - `bootstrap`: comma list of URLs or `host:port` of any brokers of the cluster.
    - `auto_offset_reset`: where to begin, and where to go when a position does not exist any more: `latest`,
      `earliest`, or `none` (raise `OffsetOutOfRange`; begin with `seek`).
    - `fetch_max_wait_ms`: how long a broker may wait for `fetch_min_bytes` before it answers.
    - `max_partition_fetch_bytes`: size of one fetch; two are held per partition.
    - `fetch_buffer_bytes`: all fetches together; many partitions get smaller ones.
    - `check_crcs`: hold every batch against its checksum.

    Use it as an async context manager, or call `start` and `stop`. Then `getmany`, `getone`, or `async for`.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap: str = "http://127.0.0.1:8082",
        group: str | None = None,
        auto_offset_reset: str = "latest",
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1 << 20,
        fetch_buffer_bytes: int = 64 << 20,
        check_crcs: bool = True,
        request_timeout_ms: float = 30_000,
        metadata_max_age_ms: float = 300_000,
        entropy: Entropy | None = None,
    ) -> None:
        refuse_group(group)
        self._topics = topics
        self._reset = parse_reset(auto_offset_reset)
        options = FetchOptions(
            reset=self._reset,
            bytes_max=max_partition_fetch_bytes,
            bytes_min=fetch_min_bytes,
            buffer_bytes=fetch_buffer_bytes,
            wait_ms=fetch_max_wait_ms,
        )
        self._session = ClusterSession(
            bootstrap,
            request_timeout_s=request_timeout_ms / 1000,
            metadata_max_age_s=metadata_max_age_ms / 1000,
            entropy=entropy or SystemEntropy(),
        )
        self._subscription = Subscription(check_crcs=check_crcs)
        self._news = asyncio.Event()
        self._fetcher = Fetcher(self._session, options, self._news.set)
        self._discovery: asyncio.Task[None] | None = None
        self._current: Cursor | None = None
        """The cursor whose decoded batch `getone` is walking through."""
        self._is_open = False

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects, assigns the topics' partitions and finds out where to begin.

        With `latest`, records that are produced after this returns are read. Raises `ConnectFailed`, `UnknownTopic`.
        """
        if self._is_open:
            return
        await self._session.open()
        try:
            for topic in self._topics:
                self._subscription.add(await self._partitions_of(topic), self._reset)
            await self._fetcher.resolve(self._subscription.cursors())
        except BaseException:
            await self._session.close()
            raise
        self._is_open = True
        for cursor in self._subscription.cursors():
            self._fetcher.begin(cursor)
        if self._topics:
            self._discovery = asyncio.get_running_loop().create_task(self._discover())

    async def stop(self) -> None:
        """Closes; calls that wait for records raise `ClientClosed`. Idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        self._current = None
        self._news.set()
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)
        await self._fetcher.close()
        await self._session.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- reading -------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """The next record, of these partitions or of all; waits until there is one.

        Raises what stopped a partition: `DamagedBatch`, `OffsetOutOfRange`, `UnknownTopic`, ... Asking again tries
        again; `seek` to go around it.
        """
        if self._current is not None and not partitions:
            record = self._current.next_record()
            if record is not None:
                return record
        return await self._next_one(partitions)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What is there, of these partitions or of all, by partition; waits up to `timeout_ms` if there is nothing.

        At most `max_records` records in all; without it some hundred kilobytes. Raises as `getone`.
        """
        if max_records is not None and max_records < 1:
            raise InvalidRequest(f"max_records must be at least 1, not {max_records}")
        records_max = OFFSET_MAX if max_records is None else max_records
        bytes_max = HANDOUT_BYTES if max_records is None else OFFSET_MAX
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        await asyncio.sleep(0)  # a caller that never has to wait must not starve the fetches
        while True:
            self._news.clear()
            self._check_usable()
            try:
                found = self._subscription.take(partitions, records_max, bytes_max)
            finally:
                self._fetch_more()
            if found or loop.time() >= deadline_s:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await self._news.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if self._current is not None:
            record = self._current.next_record()
            if record is not None:
                return record
        try:
            return await self._next_one(())
        except ClientClosed:
            raise StopAsyncIteration from None

    async def _next_one(self, partitions: Sequence[TopicPartition]) -> ConsumerRecord:
        await asyncio.sleep(0)
        while True:
            self._news.clear()
            self._check_usable()
            try:
                cursor = self._subscription.next_cursor(partitions)
            finally:
                self._fetch_more()
            if cursor is not None:
                self._current = cursor
                record = cursor.next_record()
                assert record is not None
                return record
            await self._news.wait()

    def _fetch_more(self) -> None:
        for cursor in self._subscription.all:
            if cursor.wants_more:
                self._fetcher.wake(cursor)

    # -- which partitions ----------------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads these partitions, and no others, from where `auto_offset_reset` says or a `seek` moves them to.

        Raises `InvalidRequest` for a consumer that was given topics.
        """
        if self._topics:
            raise InvalidRequest("this consumer was given topics, and reads all their partitions; assign needs none")
        for cursor in self._subscription.clear():
            self._fetcher.end(cursor)
        self._current = None
        for cursor in self._subscription.add(partitions, self._reset):
            if self._is_open:
                self._fetcher.begin(cursor)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads, sorted."""
        return self._subscription.partitions

    async def partitions_for_topic(self, topic: str) -> list[int]:
        """The partitions that a topic has. Raises `UnknownTopic`."""
        return [partition for _, partition in await self._partitions_of(topic)]

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions until `resume`; their positions stay."""
        for cursor in self._subscription.cursors(partitions):
            cursor.is_paused = True
        self._current = None

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends a `pause`."""
        for cursor in self._subscription.cursors(partitions):
            cursor.is_paused = False
            self._fetcher.wake(cursor)
        self._news.set()

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return [cursor.partition for cursor in self._subscription.cursors() if cursor.is_paused]

    # -- positions -----------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be handed out."""
        cursor = self._subscription.cursor(partition)
        if cursor.reset is not None:
            self._check_usable()
            await self._fetcher.resolve([cursor])
        if cursor.position is None:
            raise InvalidRequest(f"{partition} has no position, and auto_offset_reset is none; `seek` first")
        return cursor.position

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of what was readable at the last fetch; None before the first."""
        return self._subscription.cursor(partition).high_watermark

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on at `offset`, which need not exist yet."""
        if not 0 <= offset <= OFFSET_MAX:
            raise InvalidRequest(f"offset {offset} is not between 0 and {OFFSET_MAX}")
        cursor = self._subscription.cursor(partition)
        cursor.seek(offset)
        self._begin_again([cursor])

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes on at the first record of these partitions, or of all."""
        await self._seek_to("earliest", partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes on with what is produced from now on, to these partitions or to all."""
        await self._seek_to("latest", partitions)

    async def _seek_to(self, policy: ResetPolicy, partitions: Sequence[TopicPartition]) -> None:
        self._check_usable()
        cursors = self._subscription.cursors(partitions)
        for cursor in cursors:
            self._fetcher.end(cursor)
            cursor.request_reset(policy)
        try:
            await self._fetcher.resolve(cursors)
        finally:
            self._begin_again(cursors)

    def _begin_again(self, cursors: Sequence[Cursor]) -> None:
        if self._is_open:
            for cursor in cursors:
                self._fetcher.begin(cursor)

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition; they need not be assigned."""
        return {found.key: found.extent()[0] for found in await self._offsets(dict.fromkeys(partitions))}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of what can be read of each partition: the offset that the next readable record will have."""
        return {found.key: found.extent()[1] for found in await self._offsets(dict.fromkeys(partitions))}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record whose timestamp (ms) is that or later; None if there is none."""
        return {found.key: _at_time(found) for found in await self._offsets(timestamps)}

    async def _offsets(self, timestamps: Mapping[TopicPartition, int | None]) -> list[PartitionOffsets]:
        self._check_usable()
        queries = [OffsetQuery(topic, partition, time) for (topic, partition), time in timestamps.items()]
        return await fetch_offsets(self._session, queries)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _partitions_of(self, topic: str) -> list[TopicPartition]:
        metadata = await self._session.topic(topic)
        return [TopicPartition(topic, partition.partition) for partition in metadata.partitions]

    async def _discover(self) -> None:
        """Assigns partitions that the topics get while we read. Nothing of them was missed: they begin at the start."""
        while True:
            await asyncio.sleep(self._session.metadata_max_age_s)
            for topic in self._topics:
                try:
                    fresh = self._subscription.add(await self._partitions_of(topic), "earliest")
                except TidelogError as error:
                    logger.info("topic %s: new partitions could not be looked for: %s", topic, error.message)
                    continue
                for cursor in fresh:
                    logger.info("%s is new, and read from its beginning", cursor.partition)
                    self._fetcher.begin(cursor)

    def _check_usable(self) -> None:
        if not self._is_open:
            raise ClientClosed("this consumer is closed, or was never started (use `async with`)")
        if self._fetcher.failure is not None:
            raise RuntimeError("a fetch died of a bug") from self._fetcher.failure


def _at_time(found: PartitionOffsets) -> OffsetAndTimestamp | None:
    found.extent()
    if found.offset is None or found.timestamp is None:
        return None
    return OffsetAndTimestamp(found.offset, found.timestamp)
