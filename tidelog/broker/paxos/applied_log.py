"""The state machine of a Paxos partition: its `PartitionLog`, which holds what is applied, in order, and nothing else.

Batches are placed before they are proposed, so every replica's log is made of the same bytes at the same offsets. What
is void, or no batch at all, leaves a gap in the offsets, or nothing. The log's end is the high watermark: all of it is
agreed on. Readers are woken, and producers answered, when a batch is here.

**What a disk gives back** is compared (`comparison`), as it is applied again, and truncated where something else is
chosen; or with other logs (`doubts`), where it is not applied again.

**Where it begins** is agreed on, too: a DELETE in the log says it (Kafka's DeleteRecords, and retention). The files go
when this log is durable so far, which may be a little later. Nobody has to remember that: the floor of the journal
knows where the log begins, and what is behind the floor is applied again.

**What is lost.** A value may come without its batches, for nobody has them any more: the log then has its offsets as
damaged ones, like any that rot later, and a copy that turns up repairs them.

**Durability.** The journals of a majority have every batch before it comes here, and give it up only when their logs
are durable. So nobody waits for this log's flushes, unless he says so (`hurry`). A loss of power costs no more than
applying so much again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import structlog

from tidelog.broker.consensus.payloads import digest_of
from tidelog.broker.paxos.ballots import epoch_of
from tidelog.broker.paxos.comparison import Comparison, row_identity
from tidelog.broker.paxos.doubts import ReportedBatch, compare
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.broker.runtime.stats import Stats
from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.model.errors import DiskFull, Overloaded, TidelogError
from tidelog.model.ports import Buffer, Clock
from tidelog.model.producers import ProducerState
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind, Prefix, Value
from tidelog.storage.partition_log import PartitionLog

FLUSH_S = 1.0
"""A second is well below the voter reconciler's `BEHIND_S`, so that a replica that has caught up looks so."""
FLUSH_BYTES = 8 << 20
"""Far less than a journal may hold, and no more than producers can wait for."""
RETRY_S = 0.1
WAITING_MAX = 64
"""Values that may wait for room here."""

PIECE_BYTES = 1 << 20
PAYLOAD_BYTES_MAX = 64 << 20
"""No value is larger: it comes in one frame of a peer."""

logger = structlog.get_logger("tidelog.paxos")


class _Waiting(NamedTuple):
    applied: Applied
    batches: list[RecordBatch]
    is_lost: bool
    """True if no replica has the batches of this value."""

    @property
    def next_offset(self) -> int:
        """The end of what the log is to hold of it; 0 if that is nothing."""
        if self.batches:
            return self.batches[-1].header.next_offset
        return self.applied.value.base_offset + self.applied.value.count if self.is_lost else 0


class AppliedLog:
    """The applied log of one replica. `applied` is called with each value once it is here, `durable` with each flush,
    and `failed` when the log has gone offline.
    """

    def __init__(
        self,
        log: PartitionLog,
        log_writer: LogWriter,
        clock: Clock,
        stats: Stats,
        *,
        applied: Callable[[Applied], None],
        durable: Callable[[], None],
        failed: Callable[[str], None],
        comparison: Comparison,
        is_accounted: Callable[[int, Value], bool],
        differs: Callable[[int], None],
    ) -> None:
        """`is_accounted` tells if the journal has a value on its disk. `differs` is called with the offset from which
        on the log is to be truncated (`truncate`); nothing is written before."""
        self.log = log
        self.watchers = Watchers()
        self.is_truncating = False
        """The log is being truncated or emptied: it is the disk thread's."""
        self._log_writer = log_writer
        self._clock = clock
        self._stats = stats
        self._applied = applied
        self._durable = durable
        self._failed = failed
        self._comparison = comparison
        self._is_accounted = is_accounted
        self._differs = differs
        self._waiting: deque[_Waiting] = deque()
        self.start_offset = 0
        """The log start offset that the applied values ask for; it takes effect when the log is durable so far."""
        self._retry: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        """The timer of the next flush."""
        self._unflushed_bytes = 0

    @property
    def high_watermark(self) -> int:
        """The end of what is applied here, and was compared if it had to be."""
        return self._shown(self.log.log_end_offset)

    @property
    def is_compared(self) -> bool:
        """False while the log holds what may yet differ from what is chosen."""
        return self._comparison.is_done

    def hidden_below(self, offset: int) -> int:
        """Returns what `Comparison.hidden_below` does."""
        return self._comparison.hidden_below(offset)

    def _shown(self, offset: int) -> int:
        hidden_from = self._comparison.hidden_from
        # What was not compared yet may be something that nobody else has ever heard of.
        return offset if hidden_from is None else min(offset, hidden_from)

    @property
    def end_offset(self) -> int:
        """The end offset of the log once all delivered values are written."""
        return self._shown(self._end)

    @property
    def _end(self) -> int:
        # Values without batches change no offset, so the newest with batches tells the end.
        for waiting in reversed(self._waiting):
            if end := waiting.next_offset:
                return end
        return self.log.log_end_offset

    @property
    def durable_offset(self) -> int:
        return self._shown(self.log.durable_offset)

    @property
    def is_out_of_room(self) -> bool:
        """True while something waits that the disk has no room for."""
        return self._retry is not None

    @property
    def is_full(self) -> bool:
        """True while no more should be delivered."""
        return len(self._waiting) >= WAITING_MAX

    def holds(self, position: int, value: Value) -> bool:
        """Returns True if all of this value, which is applied, is in the log. While another waits to be compared, none
        is."""
        # Offsets are given out once and rise with the positions, so the end alone tells what is here.
        if value.kind is not Kind.APPEND or value.base_offset + value.count > self._end:
            return False
        return self._comparison.is_done or (not self._waiting and self._comparison.agrees(position, value))

    def payload_of(self, value: Value) -> bytes | None:
        """Returns the batches of a value, as `payload_in` does."""
        return payload_in(self.log, value)

    def producers_before(self, offset: int) -> bytes:
        """Returns PRODUCER rows of what was known when the log ended at `offset`, not far behind its start: for a
        replica that starts over there. Raises `Overloaded`."""
        return self.log.files.codec.pack_producers(self.log.producers_before(offset, self._clock.wall_ms()))

    def take(self, applied: Applied, payload: Buffer | None) -> None:
        """Takes the next value in order; an APPEND that is not here yet with its batches, or None if they are lost."""
        counts = applied.verdict is Verdict.APPLIED and applied.value.kind is Kind.APPEND
        batches = list(iter_batches(payload)) if counts and payload else []
        self._waiting.append(_Waiting(applied, batches, counts and payload is None))
        self._go_on()

    def delete_below(self, offset: int) -> None:
        """Takes in an applied value that has the log begin at `offset`: the records below go as soon as they may."""
        self.start_offset = max(self.start_offset, offset)
        self._go_on()

    def _go_on(self) -> None:
        if self._retry is None and not self.is_truncating:
            self._write()

    def _write(self) -> None:
        self._retry = None
        try:
            self._delete()
            while self._waiting:
                if self._is_at_odds(self._waiting[0].applied):
                    return
                self._write_first(self._waiting[0])
                # Told only when it is written: whoever is answered reads from this log.
                waiting = self._waiting.popleft()
                self._applied(waiting.applied)
            self._delete()
        except (DiskFull, Overloaded):
            # A full disk is a slow disk: what is chosen waits here in its order, and what is delivered meanwhile in the
            # journal.
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._write)
        except TidelogError as error:
            self._failed(str(error))

    def _delete(self) -> None:
        """Deletes the records below the log start offset, as far as the log is durable: of others nobody could tell
        after a loss of power that they were deleted."""
        log = self.log
        offset = min(self.start_offset, log.durable_offset)
        if offset > log.log_start_offset:
            if offset == log.log_end_offset:
                with suppress(DiskFull):  # it stays one segment then, and the others go
                    log.roll(self._clock.wall_ms())
            before = len(log.segments)
            # Not before the log is durable so far: else a crash leaves a log of which nobody can tell what was deleted.
            # Nobody has to remember the rest: the journal's floor says where the log begins, and a DELETE behind it is
            # applied again.
            log.delete_records(offset)
            self._stats.deleted_segments += before - len(log.segments)
            # What is deleted needs no comparison any more.
            self.doubted()
            self._log_writer.submit(self)
            self.watchers.wake_all()
        if log.durable_offset < min(self.start_offset, log.log_end_offset):
            self._log_writer.submit(self)

    def _write_first(self, waiting: _Waiting) -> None:
        value, end = waiting.applied.value, self.log.log_end_offset
        if value.kind is Kind.DELETE and waiting.applied.verdict is Verdict.APPLIED:
            self.start_offset = max(self.start_offset, value.base_offset)
        # Damaged offsets keep the numbering equal on all replicas, and a copy that turns up repairs them.
        if waiting.is_lost and waiting.next_offset > end:
            start, epoch = max(value.base_offset, end), epoch_of(value.birth)
            self.log.append_lost(start, waiting.next_offset, epoch, self._clock.wall_ms())
            self._flush_later(0)
            self.watchers.wake_all()
        # After a restart the journal is applied again from its floor. Offsets are given out once, and rise with the
        # positions: so what begins below the log's end is here already, whatever the journal has forgotten of its being
        # learned, and no position has to be remembered.
        batches = [batch for batch in waiting.batches if batch.header.base_offset >= end]
        if not batches:
            return
        position = waiting.applied.position
        # The row says if the journal had the value durably: if that is so, and the journal lacks it later, it has lost
        # its end.
        identity = row_identity(position, value.birth, is_accounted=self._is_accounted(position, value))
        # Void values leave gaps in the offsets.
        self.log.append(batches, self._clock.wall_ms(), may_skip=True, identities=[identity] * len(batches))
        self._flush_later(sum(batch.header.size for batch in batches))
        self.watchers.wake_all()

    def append_copied(self, batches: list[RecordBatch]) -> None:
        """Takes batches from another replica's log, which are applied there. Raises as `PartitionLog.append`."""
        self.log.append(batches, self._clock.wall_ms(), may_skip=True)
        self._flush_later(sum(batch.header.size for batch in batches))
        self.watchers.wake_all()

    def append_lost(self, end_offset: int) -> None:
        """Goes on at this offset, since the batches up to there are damaged in all other logs. Raises as
        `PartitionLog.append`."""
        self.log.append_lost(self.log.log_end_offset, end_offset, 0, self._clock.wall_ms())
        self._flush_later(0)
        self.watchers.wake_all()

    def _flush_later(self, size: int) -> None:
        self._unflushed_bytes += size
        if self._unflushed_bytes >= FLUSH_BYTES:
            self.hurry()
        # These flushes compete with the journal's, which producers wait for, and nobody waits for these: so one flush
        # covers a second's writes, or `FLUSH_BYTES`.
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(FLUSH_S, self.hurry)

    def _is_at_odds(self, applied: Applied) -> bool:
        """Compares the next value with what the log holds; True if the log has to be truncated first."""
        if self._comparison.is_done:
            return False
        shown = self._comparison.hidden_from
        self._comparison.pass_over(self.log.log_start_offset)
        offset = self._comparison.at_odds(applied)
        # More of the log was compared just now, and may be shown.
        if shown != self._comparison.hidden_from:
            self.watchers.wake_all()
        return self._order_truncation(offset)

    def _order_truncation(self, offset: int | None) -> bool:
        if offset is not None and not self.is_truncating:
            self.is_truncating = True
            self._differs(offset)
        return offset is not None

    def jumped(self, floor: Prefix) -> None:
        """Compares with a floor at which the engine goes on, without the values before."""
        self._order_truncation(self._comparison.jumped(floor))

    def doubted(self) -> range:
        """Returns the offsets of this log that are to be compared with other replicas' logs before they are shown. What
        is deleted, or was never here, is doubted no more."""
        doubted_offsets = self._comparison.doubted
        here = range(
            max(doubted_offsets.start, self.log.log_start_offset), min(doubted_offsets.stop, self.log.log_end_offset)
        )
        if doubted_offsets and here.start > doubted_offsets.start:
            self.settle(here.start)
        if doubted_offsets and not here:
            self.settle(doubted_offsets.stop)
        return here

    def settle(self, offset: int) -> None:
        """Shows what is doubted below this offset: it was compared."""
        self._comparison.settled(offset)
        self.watchers.wake_all()

    def compare(self, reported: Iterable[ReportedBatch]) -> bool:
        """Compares what is doubted with what another log holds from there on; returns True if that told something."""
        doubted = self.doubted()
        offset, is_at_odds = compare(self.log, doubted, reported)
        if offset > doubted.start:
            self.settle(offset)
        return self._order_truncation(offset if is_at_odds else None) or offset > doubted.start

    def begins_later(self, offset: int) -> bool:
        """Deletes what is doubted here below the beginning of another log. Returns True if it is gone, or goes."""
        start = self.log.log_start_offset
        # Nothing of the other log can be compared, and all that is here was deleted there: another log stands for it.
        if offset >= self.log.log_end_offset:
            return self._order_truncation(self.doubted().start)
        self.delete_below(offset)
        return self.log.log_start_offset > start

    async def truncate(self, offset: int) -> None:
        """Truncates the log where it is at odds with what is chosen; then goes on. Raises as
        `PartitionLog.truncate_to`."""
        now_ms = self._clock.wall_ms()
        await self._log_writer.exclusively(
            self, lambda: self.log.truncate_to(offset, high_watermark=offset, now_ms=now_ms)
        )
        # Only now, when the truncation has ended: a failed one leaves everything to be compared again.
        self._comparison.truncated(offset)
        self.is_truncating = False
        self._go_on()
        self.watchers.wake_all()

    async def start_over(self, offset: int, producers: list[tuple[int, ProducerState]]) -> None:
        """Drops everything; the log goes on at `offset`, and remembers these producers. Raises as
        `PartitionLog.start_over`: it is offline then."""
        now_ms = self._clock.wall_ms()
        self.is_truncating = True
        await self._log_writer.exclusively(
            self, lambda: self.log.start_over(offset, now_ms=now_ms, producers=producers)
        )
        self.is_truncating = False
        self._go_on()
        self.watchers.wake_all()

    def hurry(self) -> None:
        """Flushes the log now, since a request waits for that, or has waited long enough."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._unflushed_bytes = 0
        if self.log.is_dirty:
            self._log_writer.submit(self)

    def on_flushed(self) -> None:
        """Takes the log writer's report that a flush has ended, or failed."""
        if self.log.offline_reason is not None:
            self._failed(self.log.offline_reason)
            return
        self._go_on()
        self._durable()

    def close(self) -> None:
        """Drops the values that wait for room; the journal still has them. Whoever closes the log flushes it."""
        if self._due is not None:
            self._due.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._waiting.clear()
        self.watchers.wake_all()


def payload_in(log: PartitionLog, value: Value) -> bytes | None:
    """Returns the batches of a value that is in the log, whole; None if they are not, or cannot be read."""
    pieces: list[bytes] = []
    offset, end_offset, size = value.base_offset, value.base_offset + value.count, 0
    if value.kind is not Kind.APPEND or offset < log.log_start_offset or end_offset > log.log_end_offset:
        return None
    try:
        while offset < end_offset:
            extent = log.read(offset, PIECE_BYTES, end_offset)
            size += len(extent.data)
            if not extent.data or size > PAYLOAD_BYTES_MAX:
                return None
            pieces.append(bytes(extent.data))
            offset = extent.next_offset
    except TidelogError:
        return None
    payload = b"".join(pieces)
    # The log may hold other batches at these offsets: only the digest tells.
    return payload if digest_of(payload) == value.digest else None
