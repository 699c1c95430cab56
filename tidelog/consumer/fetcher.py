"""The consumer's fetch loops: one task per assigned partition, each with one fetch in flight ahead of the position.

A fetch is a long poll at the partition's leader: it returns as soon as there is data. Then the next fetch starts while
the records are returned to the caller; it pauses while two responses are unread, which bounds the memory.

More than `POLLS_MAX` partitions take turns, with shorter polls, so that a consumer of a thousand partitions does not
hold a thousand connections and still polls each about once per `fetch_max_wait_ms`.

Transient errors (a leader change, a restarting broker) are retried indefinitely, with backoff. Lasting errors (a
deleted topic, a damaged batch) become the cursor's error, and fetching pauses until it was raised to the caller.

**Early reads.** Where the consumer's order and the topic's `commit.order` allow it, a fetch at the high watermark also
asks for what is released above it, and names what it has of that. Such fetches go over HTTP, since Kafka's protocol has
no place for it; a partition that is behind is read by Kafka's protocol, as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import quote

from tidelog.consumer.cursor import Cursor, ResetPolicy
from tidelog.consumer.early_batches import split_at
from tidelog.consumer.fetch_frames import fetch_in_frames
from tidelog.consumer.options import FetchAnswer, FetchOptions
from tidelog.model.early_reads import is_read_early
from tidelog.model.errors import DamagedBatch, InvalidBatch, OffsetOutOfRange, TidelogError, UnknownTopic
from tidelog.transport.backoff import Backoff
from tidelog.transport.connections import Answer
from tidelog.transport.frames.codec import FetchQuery
from tidelog.transport.frames.session import RecordSession
from tidelog.transport.offsets import OffsetQuery, PartitionOffsets, wait_for_offsets
from tidelog.transport.session import needs_refresh

logger = logging.getLogger(__name__)

POLLS_MAX = 32


class Fetcher:
    """Fetches ahead of the consumer: one task per cursor (the read position in an assigned partition, with its fetched
    records). `on_news` is called whenever a cursor has new records or an error."""

    def __init__(self, session: RecordSession, options: FetchOptions, on_news: Callable[[], None]) -> None:
        self._session = session
        self._options = options
        self._on_news = on_news
        self._polls = asyncio.Semaphore(POLLS_MAX)
        self._tasks: dict[Cursor, asyncio.Task[None]] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._wanted: dict[Cursor, asyncio.Event] = {}
        self.failure: BaseException | None = None
        """The unexpected exception that ended a task, a bug, to be raised to the caller. None if there was none."""

    # -- tasks ---------------------------------------------------------------------------------------------------

    def begin(self, cursor: Cursor) -> None:
        """Starts fetching for a cursor. After a seek the fetch from the former position is cancelled, and the new one
        starts at once."""
        self.end(cursor)
        self._wanted[cursor] = asyncio.Event()
        task = self._tasks[cursor] = asyncio.get_running_loop().create_task(self._run(cursor))
        task.add_done_callback(self._ended)

    def end(self, cursor: Cursor) -> None:
        """Stops fetching for a cursor."""
        task = self._tasks.pop(cursor, None)
        if task is not None:
            del self._wanted[cursor]
            task.cancel()
            self._ending.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task in self._ending:
            self._ending.remove(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self._on_news()

    def wake(self, cursor: Cursor) -> None:
        """Lets the task of a cursor fetch again, after records were taken from the cursor or it was resumed."""
        may_want = self._wanted.get(cursor)
        if may_want is not None:
            may_want.set()

    async def close(self) -> None:
        """Cancels all tasks."""
        for cursor in list(self._tasks):
            self.end(cursor)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # -- one partition -------------------------------------------------------------------------------------------

    async def _run(self, cursor: Cursor) -> None:
        backoff = self._session.backoff()
        may_want = self._wanted[cursor]
        while True:
            may_want.clear()
            if not cursor.wants_more:
                await may_want.wait()
                continue
            generation = cursor.generation
            try:
                if cursor.reset is not None:
                    await self.resolve([cursor])
                    continue
                await self._fetch(cursor, generation)
                backoff.reset()
            except TidelogError as error:
                await self._recover(cursor, generation, error, backoff)

    async def _fetch(self, cursor: Cursor, generation: int) -> None:
        """Performs one fetch for a cursor. Raises the error in the broker's response, `ConnectFailed` or `NoAnswer`;
        `UnknownTopic`, `UnknownPartition` or `LeaderNotAvailable` if there is no leader to ask; `InvalidBatch` if the
        response has no whole batch."""
        topic, partition = cursor.partition
        options = self._options
        described = await self._session.topic(topic)  # from the cache, nearly always
        async with self._polls:
            wait_ms = options.wait_ms * POLLS_MAX // max(POLLS_MAX, len(self._tasks))
            bytes_max = options.bytes_max_of(len(self._tasks))
            query = FetchQuery(topic, partition, cursor.fetch_offset, bytes_max, options.bytes_min, wait_ms)
            address = self._session.leader(topic, partition)
            above = self._above(cursor, described.commit_order)
            answer = None
            if above is None:
                # By Kafka's protocol damage is told at once; over HTTP the broker waits for its repair.
                with suppress(DamagedBatch):
                    answer = await fetch_in_frames(self._session, address, query)
            if answer is None:
                answer = await self._fetch_over_http(address, query, above)
        self._note(cursor, answer)
        is_added = cursor.add(generation, answer.records, answer.lost)
        if cursor.add_early(generation, answer.early) or is_added:
            self._on_news()
        elif answer.records:
            raise InvalidBatch(f"{cursor.partition}: the answer at offset {cursor.fetch_offset} holds no whole batch")

    def _above(self, cursor: Cursor, commit_order: str) -> str | None:
        """Returns the offsets above the high watermark that are fetched already; None if nothing should be fetched
        early."""
        if self._session.transport == "kafka" or not is_read_early(commit_order, self._options.order):
            return None
        is_behind = cursor.fetch_offset < (cursor.high_watermark or 0)
        return None if is_behind else cursor.early.above(cursor.fetch_offset)

    async def _fetch_over_http(self, address: str, query: FetchQuery, above: str | None) -> FetchAnswer:
        target = (
            f"/topics/{quote(query.topic, safe='')}/partitions/{query.partition}/batches?offset={query.offset}"
            f"&max_bytes={query.bytes_max}&min_bytes={query.bytes_min}&wait_ms={query.wait_ms}"
        )
        if above is not None:
            target += f"&order={self._options.order}&above={above}"
        wait_s = query.wait_ms / 1000
        timeout_s = self._session.request_timeout_s + wait_s
        answer = await self._session.attempt("GET", address, target, timeout_s=timeout_s, expects_s=wait_s)
        if answer.error is not None:
            raise answer.error
        high_watermark, leader_epoch = (
            _number(answer, name) for name in ("Tidelog-High-Watermark", "Tidelog-Leader-Epoch")
        )
        records, early = (answer.body, b"") if above is None else split_at(answer.body, high_watermark or 0)
        return FetchAnswer(records, answer.lost, high_watermark, leader_epoch, early)

    def _note(self, cursor: Cursor, answer: FetchAnswer) -> None:
        if answer.high_watermark is not None:
            cursor.high_watermark = answer.high_watermark
        if answer.leader_epoch is not None:
            self._session.note_leader_epoch(*cursor.partition, answer.leader_epoch)

    async def _recover(self, cursor: Cursor, generation: int, error: TidelogError, backoff: Backoff) -> None:
        """Handles an error of a fetch. Out of range: resets the cursor. Lasting: stops the cursor with the error.
        Otherwise waits and refreshes the metadata."""
        if isinstance(error, OffsetOutOfRange) and self._options.reset is not None:
            logger.warning("%s: %s; going on from the %s offset", cursor.partition, error.message, self._options.reset)
            cursor.request_reset(self._options.reset)
            return
        is_gone = isinstance(error, UnknownTopic) and self._options.waits_for_topics
        if (error.definite and not error.retriable and not is_gone) or isinstance(error, DamagedBatch):
            cursor.fail(generation, error)
            self._session.invalidate(cursor.partition.topic)
            self._on_news()
            return
        wait_s = backoff.next_s()
        logger.info("%s: fetching again in %.3f s: %s", cursor.partition, wait_s, error.message)
        await asyncio.sleep(wait_s)
        if is_gone or needs_refresh(error):
            with suppress(TidelogError):
                await self._session.refresh(cursor.partition.topic)

    # -- resets --------------------------------------------------------------------------------------------------

    async def resolve(self, cursors: Sequence[Cursor]) -> None:
        """Looks up the start offsets of cursors with a pending reset, in one request. Raises the first error."""
        resetting = [(cursor, cursor.generation) for cursor in cursors if cursor.reset is not None]
        queries = [OffsetQuery(*cursor.partition) for cursor, _ in resetting]
        for (cursor, generation), offsets in zip(
            resetting, await wait_for_offsets(self._session, queries), strict=True
        ):
            policy = cursor.reset
            if policy is not None:
                cursor.resolve_reset(generation, _start(policy, offsets))


def _number(answer: Answer, header: str) -> int | None:
    text = answer.headers.get(header, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _start(policy: ResetPolicy, offsets: PartitionOffsets) -> int:
    start, end = offsets.extent()
    return start if policy == "earliest" else end
