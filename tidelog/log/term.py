"""A writer's term: from its claim to the claim of another writer, or to an unknown outcome.

    claim | entry | entry entry entry | entry | ...     each request directly after the one before it

One request is in flight; entries that arrive meanwhile are sent together in the next one, so a slow disk makes requests
larger, not more. Each names the expected log end, and a broker appends it only there. Nothing is sent after a request
with an unknown outcome: so the end is always known, and the writer exclusive (decision 0018).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, Protocol

from tidelog.log.entries import RECORD_OVERHEAD_BYTES
from tidelog.log.errors import WriterFenced
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import EndOffsetMoved, TidelogError
from tidelog.model.ids import ProducerId
from tidelog.model.ports import Buffer
from tidelog.model.producers import SEQUENCES
from tidelog.model.records import Record
from tidelog.transport.errors import BufferFull, ClientClosed, DeliveryExpired, DeliveryUnknown

WAITING_BYTES_MAX: Final = 32 << 20
GROUP_ENTRIES_MAX: Final = 10_000


class Appender(Protocol):
    """The part of `LogPartition` that a term needs."""

    async def append(self, batch: Buffer, deadline_s: float, *, expected_end: int | None = None) -> int: ...


class _PendingEntry(NamedTuple):
    """An entry without an outcome yet."""

    record: Record
    deadline_s: float
    done: asyncio.Future[int]

    @property
    def size(self) -> int:
        return RECORD_OVERHEAD_BYTES + len(self.record.value or b"")


class Term:
    """A writer's term. `end` is the position after its last committed entry; `over` is the error that ended the term,
    None while it lasts."""

    def __init__(self, log: Appender, producer_id: ProducerId, end: int, group_bytes_max: int) -> None:
        self.end = end
        self.over: TidelogError | None = None
        self._log = log
        self._producer_id = producer_id
        self._sequence = 1  # the claim had 0
        self._group_bytes_max = group_bytes_max
        self._waiting: deque[_PendingEntry] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def submit(self, record: Record, deadline_s: float) -> asyncio.Future[int]:
        """Queues an entry; returns a future of its position. Raises `BufferFull`, or the error that ended the term."""
        if self.over is not None:
            raise self.over.with_traceback(None)
        entry = _PendingEntry(record, deadline_s, asyncio.get_running_loop().create_future())
        # One entry is always taken, however large: `Writer.append` has judged its size.
        if self._waiting_bytes + entry.size > WAITING_BYTES_MAX and self._waiting:
            raise BufferFull(f"{len(self._waiting)} entries wait already; append fewer at a time")
        self._waiting.append(entry)
        self._waiting_bytes += entry.size
        # One task drains, so one request is under way. A second one would have to name an end that is not known yet.
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return entry.done

    async def finish(self) -> None:
        """Takes no more entries, and waits until all have an outcome, at the latest at their deadlines."""
        # The first reason stays: a writer that was fenced before it was closed was fenced.
        self.over = self.over or ClientClosed("the writer is closed")
        if self._task is not None:
            await asyncio.wait([self._task])

    async def abort(self) -> None:
        """Ends the term at once. Entries in flight have an unknown outcome; queued ones are not appended."""
        # What waits was never sent, so it is surely not in the log. What is under way is for `_append` to tell:
        # unknown.
        self._end(self.over or ClientClosed("the writer was started again; nothing was appended"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        try:
            while group := self._take():
                await self._append(group)
        finally:
            self._task = None

    def _take(self) -> list[_PendingEntry]:
        """Removes and returns the entries for the next request; none if none are queued."""
        now_s = asyncio.get_running_loop().time()
        group: list[_PendingEntry] = []
        room = self._group_bytes_max
        while self._waiting and len(group) < GROUP_ENTRIES_MAX:
            entry = self._waiting[0]
            # At least one entry, or one that is larger than a group would wait for ever.
            if group and entry.size > room:
                break
            self._waiting.popleft()
            self._waiting_bytes -= entry.size
            # Judged before it is sent: afterwards its outcome would be unknown, and the term over.
            if now_s >= entry.deadline_s:
                _fail([entry], DeliveryExpired("it waited for the entries before it, and time ran out"))
            # Its caller was cancelled while it waited, so nobody wants it in the log.
            elif not entry.done.done():
                group.append(entry)
                room -= entry.size
        return group

    async def _append(self, group: list[_PendingEntry]) -> None:
        try:
            batch = encode_batch(
                [entry.record for entry in group],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
            # The first one's deadline is the earliest. When it is over, the fate of all of them is the same.
            base = await self._log.append(batch, group[0].deadline_s, expected_end=self.end)
        except TidelogError as error:
            self._failed(group, error)
            return
        # Cancelled with a request under way: it may be in the log, or may yet arrive, and this term cannot tell where
        # the log ends.
        except BaseException:
            self._end(self.over or ClientClosed("the writer has broken off; start it again"))
            _fail(group, DeliveryUnknown("the writer was stopped with this entry under way"))
            raise
        # Numbers and end move together, and only when the outcome is known. A repeat of this batch gets its first
        # answer by these numbers, whatever end it expects.
        self._sequence = (self._sequence + len(group)) % SEQUENCES
        self.end = base + len(group)
        for position, entry in enumerate(group, base):
            if not entry.done.done():
                entry.done.set_result(position)

    def _failed(self, group: list[_PendingEntry], error: TidelogError) -> None:
        """Settles the entries of a failed request. After a definite error the term continues, with the same log end and
        sequence numbers."""
        # Only another writer's claim, or a stray producer, moves the end: this writer has nothing under way but this.
        if isinstance(error, EndOffsetMoved):
            error = WriterFenced(f"another writer has claimed the log since: {error.message}")
            self._end(error)
        # Nothing more is sent. Where the log ends is unknown, and a late copy of this group may still find its place.
        elif not error.definite:
            self._end(ClientClosed("it is unknown what became of an earlier entry: start the writer again"))
        _fail(group, error)

    def _end(self, error: TidelogError) -> None:
        self.over = error
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        _fail(waiting, error)


def _fail(entries: list[_PendingEntry] | deque[_PendingEntry], error: TidelogError) -> None:
    for entry in entries:
        if not entry.done.done():
            entry.done.set_exception(error)
