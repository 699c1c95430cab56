"""The state machine of a Paxos partition: its `PartitionLog`, which holds exactly the applied batches, in log order.

The leader assigns offsets before it proposes a batch, so every replica's log has the same bytes at the same offsets. A
void value (chosen, but without effect) leaves a gap in the offsets; values without batches leave none. The log's end is
the high watermark, since everything in the log is chosen. Appending wakes waiting readers and, at the leader, answers
producers.

**After a restart** the log's own rows are compared (`comparison`) with the values that are applied again, and the log
is truncated where another value is chosen. Rows below the journal's floor, whose values are not applied again, are
compared with other replicas' logs (`doubts`).

**The log start offset** is agreed on, too, by a DELETE value (Kafka's DeleteRecords, and retention). The segments are
deleted once this log is durable up to that offset, which may be a little later. Nothing else has to remember that: the
journal's floor names the log start offset, and values behind the floor are applied again.

**Lost batches.** A value may be delivered without its batches because no replica has them any more. Its offsets are
then marked as damaged, as if the batches had rotted later, and a copy that turns up repairs them.

**Durability.** The journals of a majority have every batch before it is applied, and are truncated only when their logs
are durable. So no request waits for this log's flushes, unless it asks for one (`hurry`). After a loss of power the
unflushed part is applied again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import structlog

from tidelog.broker.consensus.payloads import digest_of
from tidelog.broker.paxos.ballots import epoch_of
from tidelog.broker.paxos.comparison import Comparison, row_identity
from tidelog.broker.paxos.doubts import Doubts
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
"""Seconds between an append and the flush of the applied log. It is well below the `BEHIND_S` of the voter reconciler,
so that a replica that has caught up is seen as caught up."""
FLUSH_BYTES = 8 << 20
"""Unflushed bytes at which the applied log is flushed at once. Far less than a journal may hold, and little enough for
producers to wait for."""
RETRY_S = 0.1
WAITING_MAX = 64
"""Delivered values that may wait until the disk has room for their batches."""

PIECE_BYTES = 1 << 20
PAYLOAD_BYTES_MAX = 64 << 20
"""Upper bound of a value's payload in bytes: a value is sent between brokers in a single frame."""

logger = structlog.get_logger("tidelog.paxos")


class _Waiting(NamedTuple):
    applied: Applied
    batches: list[RecordBatch]
    is_lost: bool
    """True if no replica has the batches of this value."""

    @property
    def next_offset(self) -> int:
        """The log end offset after this value is written; 0 if it writes no batches."""
        if self.batches:
            return self.batches[-1].header.next_offset
        return self.applied.value.base_offset + self.applied.value.count if self.is_lost else 0


class AppliedLog:
    """The log of applied batches on one replica.

    `applied` is called with each value once its batches are in the log, `durable` after each flush, and `failed` with
    the reason when the log has gone offline.
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
        """`is_accounted` returns whether the journal has a value durably. `differs` is called with the offset from
        which on the log has to be truncated (`truncate`); nothing is appended before that is done."""
        self.log = log
        self.watchers = Watchers()
        self.is_truncating = False
        """True while the disk thread truncates or empties the log, which nothing else may write to then."""
        self._log_writer = log_writer
        self._clock = clock
        self._stats = stats
        self._applied = applied
        self._durable = durable
        self._failed = failed
        self.comparison = comparison
        self.doubts = Doubts(log, comparison, self.watchers, self._order_truncation, self.delete_below)
        """The batches of this log that only other replicas' logs can confirm."""
        self._is_accounted = is_accounted
        self._differs = differs
        self._waiting: deque[_Waiting] = deque()
        self.start_offset = 0
        """The log start offset that the applied DELETE values ask for; records below it are deleted once the log is
        durable up to it."""
        self._retry: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        self._unflushed_bytes = 0

    @property
    def high_watermark(self) -> int:
        """The end of the applied batches that readers may see; batches that still have to be compared with the chosen
        values are hidden."""
        return self._shown(self.log.log_end_offset)

    def _shown(self, offset: int) -> int:
        hidden_from = self.comparison.hidden_from
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
        """True while an applied value waits because the disk is full."""
        return self._retry is not None

    @property
    def is_full(self) -> bool:
        """True while `WAITING_MAX` values wait: the caller should deliver no more."""
        return len(self._waiting) >= WAITING_MAX

    def holds(self, position: int, value: Value) -> bool:
        """Returns True if all batches of this applied value are in the log. False as well while another value waits to
        be compared with the log."""
        # Offsets are given out once and rise with the positions, so the end alone tells what is here.
        if value.kind is not Kind.APPEND or value.base_offset + value.count > self._end:
            return False
        return self.comparison.is_done or (not self._waiting and self.comparison.agrees(position, value))

    def payload_of(self, value: Value) -> bytes | None:
        """Returns the payload of a value from the log; None if the log does not hold it whole and readable."""
        return payload_in(self.log, value)

    def producers_before(self, offset: int) -> bytes:
        """Returns PRODUCER rows: the producers' sequence numbers as known when the log ended at `offset`, which is near
        the log start. A replica that starts its log over at `offset` needs them. Raises `Overloaded`."""
        return self.log.files.codec.pack_producers(self.log.producers_before(offset, self._clock.wall_ms()))

    def take(self, applied: Applied, payload: Buffer | None) -> None:
        """Appends the next applied value, in log order. `payload` are its batches, or None for an APPEND whose batches
        no replica has any more."""
        counts = applied.verdict is Verdict.APPLIED and applied.value.kind is Kind.APPEND
        batches = list(iter_batches(payload)) if counts and payload else []
        self._waiting.append(_Waiting(applied, batches, counts and payload is None))
        self._go_on()

    def delete_below(self, offset: int) -> None:
        """Raises the log start offset to `offset`, as an applied value asks; the records below are deleted once the log
        is durable up to there."""
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
        """Deletes the records below the log start offset, but only durable ones: after a loss of power nothing would
        show that unflushed records had been deleted."""
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
            self.doubts.offsets()
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
            self._appended(0)
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
        self._appended(sum(batch.header.size for batch in batches))

    def append_copied(self, batches: list[RecordBatch]) -> None:
        """Appends batches copied from another replica's log, where they are applied. Raises `DiskFull`, `Overloaded` or
        `LogOffline` (nothing was appended), or `InternalError` (unknown; the log is offline now)."""
        self.log.append(batches, self._clock.wall_ms(), may_skip=True)
        self._appended(sum(batch.header.size for batch in batches))

    def append_lost(self, end_offset: int) -> None:
        """Marks the offsets from the log's end up to `end_offset` as damaged, since all other replicas' logs have these
        batches damaged. Raises `DiskFull`, `Overloaded` or `LogOffline` (nothing was appended), or `InternalError`
        (unknown; the log is offline now)."""
        self.log.append_lost(self.log.log_end_offset, end_offset, 0, self._clock.wall_ms())
        self._appended(0)

    def _appended(self, size: int) -> None:
        self._unflushed_bytes += size
        if self._unflushed_bytes >= FLUSH_BYTES:
            self.hurry()
        # These flushes compete with the journal's, which producers wait for, and nobody waits for these: so one flush
        # covers a second's writes, or `FLUSH_BYTES`.
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(FLUSH_S, self.hurry)
        self.watchers.wake_all()

    def _is_at_odds(self, applied: Applied) -> bool:
        """Compares the next applied value with the batch that the log holds there; returns True if the log has to be
        truncated first."""
        if self.comparison.is_done:
            return False
        shown = self.comparison.hidden_from
        self.comparison.pass_over(self.log.log_start_offset)
        offset = self.comparison.at_odds(applied)
        # More of the log was compared just now, and may be shown.
        if shown != self.comparison.hidden_from:
            self.watchers.wake_all()
        return self._order_truncation(offset)

    def _order_truncation(self, offset: int | None) -> bool:
        """Has the log truncated at `offset`, unless that is None or is ordered already; returns True unless it is
        None."""
        if offset is not None and not self.is_truncating:
            self.is_truncating = True
            self._differs(offset)
        return offset is not None

    def jumped(self, floor: Prefix) -> None:
        """Compares the log with a floor (start of a journal) to which the engine has jumped, skipping the values below
        it."""
        self._order_truncation(self.comparison.jumped(floor))

    async def truncate(self, offset: int) -> None:
        """Truncates the log to `offset`, from where it differs from the chosen values, and then appends the waiting
        ones. Raises `OffsetOutOfRange`, or `OSError`: the log is offline then."""
        now_ms = self._clock.wall_ms()
        await self._log_writer.exclusively(
            self, lambda: self.log.truncate_to(offset, high_watermark=offset, now_ms=now_ms)
        )
        # Only now, when the truncation has ended: a failed one leaves everything to be compared again.
        self.comparison.truncated(offset)
        self.is_truncating = False
        self._go_on()
        self.watchers.wake_all()

    async def start_over(self, offset: int, producers: list[tuple[int, ProducerState]]) -> None:
        """Empties the log and lets it begin at `offset`, with these producers' sequence numbers. Raises `OSError`: the
        log is offline then."""
        now_ms = self._clock.wall_ms()
        self.is_truncating = True
        await self._log_writer.exclusively(
            self, lambda: self.log.start_over(offset, now_ms=now_ms, producers=producers)
        )
        self.is_truncating = False
        self._go_on()
        self.watchers.wake_all()

    def hurry(self) -> None:
        """Flushes the log now instead of at the end of `FLUSH_S`."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._unflushed_bytes = 0
        if self.log.is_dirty:
            self._log_writer.submit(self)

    def on_flushed(self) -> None:
        """Handles the log writer's report that a flush of this log has ended, or failed."""
        if self.log.offline_reason is not None:
            self._failed(self.log.offline_reason)
            return
        self._go_on()
        self._durable()

    def close(self) -> None:
        """Cancels the timers and drops the values that wait for disk space; the journal still has them. The caller has
        to flush and close the log."""
        if self._due is not None:
            self._due.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._waiting.clear()
        self.watchers.wake_all()


def payload_in(log: PartitionLog, value: Value) -> bytes | None:
    """Returns the payload of an APPEND value from the log; None if the log does not hold all its batches readable and
    with the value's digest."""
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
