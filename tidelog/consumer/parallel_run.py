"""A `run` of a consumer: its workers process records by the program's handler, until it is stopped or fails.

    fetches -> cursor -> PartitionDispatcher -> worker: await handler(record) -> processed offsets -> commit

There are a task for each worker and one that looks after the assignment: it rebalances, gives every partition that is
read a dispatcher, and raises what stopped a partition once all records before that are processed. A worker that is free
takes the next record of the partition whose turn it is; partitions take turns. Records are read ahead only when no
record that is held may be processed, so few are held unless keys keep each other waiting.

Of a topic whose `commit.order` allows it, records above the high watermark are read early; the rest is as ever.

**Rebalances.** While partitions are given up the others are processed on. No record is handed out of a partition that
this member is to give up or may have lost, nor of any while its lease has run out. A partition is given up when its
records that are being processed are finished, and committed; or after `patience_s`, and then they are not committed.

**The end** is a call of `end`, or the first error, of a handler or of anything else. No more records are handed out,
those being processed are waited for up to `patience_s`, and cancelled after that. Then all partitions go back to their
low offsets, so that the next `run` begins with the first record that is not processed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tidelog.consumer.consumer_group import ConsumerGroup
from tidelog.consumer.cursor import Cursor
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.intervals import ProcessedOffsets
from tidelog.consumer.partition_dispatcher import HeldRecord, Order, PartitionDispatcher
from tidelog.consumer.records import ConsumerRecord
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition

logger = logging.getLogger(__name__)

Handler = Callable[[ConsumerRecord], Awaitable[object]]

READ_MAX: Final = 500
"""The number of records that are decoded at once."""
CANCEL_S: Final = 5.0
"""The time that cancelled handlers are waited for (s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The settings of a run."""

    order: Order
    workers: int
    patience_s: float
    """How long records that are being processed are waited for (s)."""
    buffer_bytes: int
    """The size of all records that are held, at which no more are read (bytes)."""


@dataclass(eq=False)
class ParallelRun:
    """The workers of one `run`. `check_usable` raises if the consumer cannot read any more; `news` is set when fetched
    records, or the group, have changed something."""

    _handler: Handler
    _options: RunOptions
    _subscription: Subscription
    _fetcher: Fetcher
    _group: ConsumerGroup | None
    _check_usable: Callable[[], None]
    _news: asyncio.Event
    _dispatchers: dict[Cursor, PartitionDispatcher] = field(default_factory=dict, init=False)
    _turns: OrderedDict[Cursor, None] = field(default_factory=OrderedDict, init=False)
    """The partitions that may have a record to process, longest waiting first."""
    _idle: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)
    """The workers that wait for a record."""
    _workers: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _error: BaseException | None = field(default=None, init=False)
    _is_ending: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _has_finished: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set whenever a record is not being processed any more."""

    # -- from beginning to end ------------------------------------------------------------------------------------

    async def until_ended(self) -> None:
        """Processes records until `end` is called. Raises the first error; if cancelled, cancels the handlers."""
        loop = asyncio.get_running_loop()
        keeper = loop.create_task(self._keep())
        self._workers = [loop.create_task(self._work()) for _ in range(self._options.workers)]
        patience_s = 0.0
        try:
            await self._is_ending.wait()
            patience_s = self._options.patience_s
        finally:
            self._end()
            keeper.cancel()
            await self._drain(keeper, patience_s)
            self._is_over.set()
        if self._error is not None:
            if self._group is not None:
                await self._group.commit_processed()
            raise self._error

    def end(self) -> None:
        """Hands out no more records, which ends the run. Raises `InvalidRequest` in a handler, which it would wait
        for."""
        if asyncio.current_task() in self._workers:
            raise InvalidRequest("a handler cannot stop its consumer: raise an error, or have another task call `stop`")
        self._end()

    def _end(self) -> None:
        self._is_ending.set()
        while self._idle:
            self._wake()

    async def ended(self) -> None:
        """Waits until no record is being processed any more, for as long as the run may take to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.patience_s + 2 * CANCEL_S):
                await self._is_over.wait()

    async def _drain(self, keeper: asyncio.Task[None], patience_s: float) -> None:
        try:
            await _wait(self._workers, patience_s)
            late = sum(not worker.done() for worker in self._workers)
            if late and patience_s:
                logger.warning("%d records are not processed after %g s, and given up", late, patience_s)
        finally:
            for worker in self._workers:
                worker.cancel()
        await _wait([keeper, *self._workers], CANCEL_S)

    def rewind(self) -> list[Cursor]:
        """Moves all partitions back to their low offsets, to be fetched from there on; returns their cursors."""
        cursors = list[Cursor]()
        for cursor in self._dispatchers:
            committable = cursor.committable
            if committable is not None and cursor.reset is None and self._subscription.holds(cursor):
                cursor.processed = committable
                cursor.seek(committable.low)
                cursors.append(cursor)
            if self._options.order == "total":
                cursor.processed = None  # the position says it
        return cursors

    # -- the assignment -------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._is_ending.is_set():
                self._news.clear()
                self._check_usable()
                is_ready = self._group is None or await self._group.is_ready(loop.time())
                self._look(is_ready=is_ready)
                await self._news.wait()
        except Exception as error:  # noqa: BLE001 - it is raised by `until_ended`
            self._fail(error)

    def _look(self, *, is_ready: bool) -> None:
        """Gives all partitions a turn. Raises what stopped one of them, if all records before that are processed. While
        a rebalance is under way (not `is_ready`), new partitions may have no position yet."""
        for cursor in [cursor for cursor in self._dispatchers if not self._subscription.holds(cursor)]:
            del self._dispatchers[cursor]
        cursors = self._subscription.all
        for cursor in cursors:
            if cursor.is_paused:
                continue
            if is_ready:
                cursor.check_position()
            dispatcher = self._dispatcher_of(cursor)
            if dispatcher is not None:
                dispatcher.bytes_max = max(1, self._options.buffer_bytes // len(cursors))
                self._turns.setdefault(cursor)
            error = cursor.take_error() if dispatcher is None or dispatcher.is_idle else None
            if error is not None:
                raise error.with_traceback(None)
        self._wake()

    def _dispatcher_of(self, cursor: Cursor) -> PartitionDispatcher | None:
        """Returns a partition's dispatcher, begun anew after a seek; None while it is looked up where to begin."""
        dispatcher = self._dispatchers.get(cursor)
        if cursor.processed is None and cursor.position is not None:
            cursor.processed = ProcessedOffsets(cursor.position)
        if cursor.processed is None:
            return dispatcher
        if dispatcher is None:
            dispatcher = self._dispatchers[cursor] = PartitionDispatcher(self._options.order, cursor.processed)
        elif dispatcher.processed is not cursor.processed:
            dispatcher.begin(cursor.processed)
        return dispatcher

    async def give_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Hands out no more records of these, and waits until those that are being processed are finished, for
        `patience_s` at most."""
        going = set(partitions)
        dispatchers = [dispatcher for cursor, dispatcher in self._dispatchers.items() if cursor.partition in going]
        for dispatcher in dispatchers:
            dispatcher.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.patience_s):
                while any(dispatcher.taken for dispatcher in dispatchers):
                    self._has_finished.clear()
                    await self._has_finished.wait()
        late = sum(dispatcher.taken for dispatcher in dispatchers)
        if late:
            logger.warning(
                "%d records are not processed after %g s; their partitions are given up, and they come again",
                late,
                self._options.patience_s,
            )

    # -- workers --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._is_ending.is_set():
            taken = self._next()
            if taken is None:
                await self._until_woken()
                continue
            self._wake()  # there may be a record for another worker
            await self._process(*taken)
            await asyncio.sleep(0)  # a handler that never waits must not starve the fetches

    async def _until_woken(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        await waiting

    def _wake(self) -> None:
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    async def _process(self, cursor: Cursor, held: HeldRecord) -> None:
        dispatcher = self._dispatchers[cursor]
        try:
            await self._handler(held.record)
        except BaseException as error:  # noqa: BLE001 - it is raised by `until_ended`
            dispatcher.abandon(held)
            self._fail(error)
        else:
            dispatcher.finish(held)
            self._turns.setdefault(cursor)
            self._tell_error(cursor, dispatcher)
        self._has_finished.set()

    def _fail(self, error: BaseException) -> None:
        """Ends the run with an error; one that comes later is logged, and no more."""
        if not self._is_ending.is_set():
            self._error = error
            self._end()
        elif not isinstance(error, asyncio.CancelledError):
            logger.error("while records were waited for to be processed: %r", error, exc_info=error)

    # -- which record comes next ----------------------------------------------------------------------------------

    def _next(self) -> tuple[Cursor, HeldRecord] | None:
        """Returns the next record to process, and its partition's cursor; None if no record may be processed now."""
        while self._turns:
            cursor, _ = self._turns.popitem(last=False)
            held = self._next_of(cursor) if self._may_process(cursor) else None
            if held is not None:
                self._turns[cursor] = None
                return cursor, held
        return None

    def _may_process(self, cursor: Cursor) -> bool:
        if cursor.is_paused or not self._subscription.holds(cursor):
            return False
        return self._group is None or self._group.may_process(cursor.partition)

    def _next_of(self, cursor: Cursor) -> HeldRecord | None:
        dispatcher = self._dispatcher_of(cursor)
        if dispatcher is None:
            return None
        while (held := dispatcher.take()) is None and self._read_ahead(cursor, dispatcher):
            pass
        return held

    def _read_ahead(self, cursor: Cursor, dispatcher: PartitionDispatcher) -> bool:
        """Adds fetched records of a partition to those that are held: those read in order, or else those read early.
        Returns False if there are none, or no room."""
        cursor.early.is_wanted = dispatcher.wants_early
        if not dispatcher.wants_more:
            return False
        has_record = cursor.has_record or cursor.decode() > 0
        start = cursor.position
        records = cursor.take(min(READ_MAX, dispatcher.room)) if has_record else []
        position = cursor.position
        if start is None or position is None:
            return False
        if start < dispatcher.end:  # the end of the log was lost, and reading went back
            cursor.processed = ProcessedOffsets(start)
            dispatcher.begin(cursor.processed)
        dispatcher.add(records, position)
        if not records and cursor.early.is_wanted:
            records = cursor.take_early()
            dispatcher.add_early(records)
        if cursor.wants_more:
            self._fetcher.wake(cursor)
        self._tell_error(cursor, dispatcher)
        return bool(records)

    def _tell_error(self, cursor: Cursor, dispatcher: PartitionDispatcher) -> None:
        """Has an error of a partition raised, once all records before it are processed."""
        if cursor.error is not None and dispatcher.is_idle:
            self._news.set()


async def _wait(tasks: Sequence[asyncio.Task[None]], timeout_s: float) -> None:
    """Waits until these tasks are done, for `timeout_s` at most, without cancelling them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*map(asyncio.shield, tasks), return_exceptions=True)
