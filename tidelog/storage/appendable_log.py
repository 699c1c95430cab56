"""The end of a log: batches go in, become durable together, and segments are rolled.

The write path has three steps, so that one fsync serves all that waited and the event loop never blocks:

1. `append` gathers many batches into one write per file. They can be read, and must not be acknowledged yet.
2. `begin_flush` hands out what is to be made durable; its `run` does nothing but fsyncs, on the disk threads, while
   further appends go on.
3. `end_flush` moves `durable_offset` up to what the flush covered, or takes the log offline: a failed fsync is final,
   because the kernel marks the lost pages clean and a second fsync would lie.

A write that fails for want of space is undone, durably, before the caller is told "nothing was appended". Any other
failed write leaves the outcome unknown, and the log offline. Reads go on in both cases.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelog.model.batch_header import RecordBatch, SpreadBatch
from tidelog.model.errors import (
    DiskFull,
    InternalError,
    LogOffline,
    Overloaded,
    TidelogError,
)
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer
from tidelog.model.producers import ProducerTable
from tidelog.storage.flush import Flush, Unflushed
from tidelog.storage.lineage import begin_epoch
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.readable_log import ReadableLog
from tidelog.storage.rows import NO_TIMESTAMP, ROW_BYTES, Kind, RowCodec, Tail
from tidelog.storage.segment import Segment

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What a log needs of its topic's configuration."""

    segment_bytes: int
    """A segment that has reached this is rolled before the next append; one gathered append is never split."""
    segment_ms: int
    segment_rows_max: int = 131_072
    """Opening reads the rows of the last segment: this bounds it to a third of a second, however small batches are."""
    producers_max: int = 65_536


class AppendableLog(ReadableLog):
    """A log that can be appended to. Single-threaded, but for `Flush.run`."""

    def __init__(
        self,
        opened: OpenFiles,
        directory: str,
        identity: PartitionId,
        settings: LogSettings,
        segments: list[Segment],
        tail: Tail,
        lineage: list[tuple[int, int]],
        producers: ProducerTable,
        now_ms: int,
        *,
        marked: int,
    ) -> None:
        assert tail.durable == tail.sequence, "a log is opened with all of it durable"
        super().__init__(identity, segments, tail)
        self.directory = directory
        self.settings = settings
        self.lineage = lineage
        """(leader epoch, first offset) of what is here, both strictly increasing."""
        self.producers = producers
        self.durable_offset = tail.offset
        self.offline_reason: str | None = None
        self.sequences_used = 0
        """See `Metainfo.sequences_used`. While the log is not beyond it, the next append begins a new segment."""
        self._opened = opened
        self._codec = RowCodec(identity)
        self._rolled_ms = now_ms
        self._marked = marked
        self._unflushed = Unflushed(opened, directory)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    # -- append ---------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[RecordBatch | SpreadBatch],
        now_ms: int,
        *,
        may_skip: bool = False,
        places: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Writes batches, whose offsets and epoch are assigned, behind the end: all of them or none.

        Each goes right behind the one before it; with `may_skip`, also further on: the offsets between hold nothing.
        `places` are position and number of each in a Paxos log, for their catalog rows.
        Raises `DiskFull` or `Overloaded` (nothing was appended, try again later), `LogOffline` (nothing was appended,
        nor will be), or `InternalError` (the write failed half-way: the outcome is unknown; the log is offline now).
        """
        self._require_online()
        if self._is_time_to_roll(now_ms):
            self.roll(now_ms)
        tail, rows = self.tail, []
        for number, batch in enumerate(batches):
            header = batch.header
            assert header.base_offset == tail.offset or (may_skip and header.base_offset > tail.offset)
            assert header.leader_epoch >= tail.epoch
            rows.append(self._codec.batch(tail, header, batch.buffers, places[number] if places else None))
            tail = Tail(
                tail.sequence + 1, tail.durable, header.leader_epoch, header.next_offset,
                tail.file_position + header.size, max(tail.running_max_timestamp, header.max_timestamp),
                tail.log_start_offset,
            )  # fmt: skip
        self._write([buffer for batch in batches for buffer in batch.buffers], rows, tail)
        self._marked = tail.durable  # the rows say so
        for batch in batches:
            self._note(batch, now_ms)

    def _note(self, batch: RecordBatch | SpreadBatch, now_ms: int) -> None:
        header = batch.header
        begin_epoch(self.lineage, header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self.producers.remember(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
                header.base_offset,
                now_ms,
            )

    def _write(self, data: Sequence[Buffer], rows: list[bytes], tail: Tail) -> None:
        """Log first, then catalog: a row never precedes its batch."""
        segment = self.active
        try:
            # Both handles before either write: a process short of descriptors has written nothing.
            log = self._unflushed.soil(segment.log_path) if data else None
            catalog = self._unflushed.soil(segment.catalog_path)
            if log is not None:
                log.pwritev(data, self.tail.file_position)
            catalog.pwritev([b"".join(rows)], segment.slots * ROW_BYTES)
        except OSError as error:
            raise self._undo(error, segment) from error
        self._unflushed.file_bytes += tail.file_position - self.tail.file_position + len(rows) * ROW_BYTES
        segment.extend(len(rows), tail)
        self.tail = tail

    def _undo(self, error: OSError, segment: Segment) -> DiskFull | InternalError:
        """Makes a failed append invisible for ever, or says that this cannot be known."""
        if error.errno in OUT_OF_SPACE:
            try:
                segment.log.truncate(segment.log_bytes)
                segment.catalog.truncate(segment.slots * ROW_BYTES)
                segment.log.sync()
                segment.catalog.sync()
            except OSError as undo_error:
                error = undo_error
            else:
                return DiskFull(f"no space left for partition {self.identity}; nothing was appended")
        self.take_offline(f"write failed: {error}")
        return InternalError(f"writing to partition {self.identity} failed ({error}); the outcome is unknown")

    def take_offline(self, reason: str) -> None:
        """No more writes until the log is loaded again; what is committed can still be read."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def _require_online(self) -> None:
        if self.offline_reason is not None:
            raise LogOffline(
                f"the log of partition {self.identity} is offline ({self.offline_reason}); check the disk and restart"
            )

    # -- roll -----------------------------------------------------------------------------------------------------

    def _is_time_to_roll(self, now_ms: int) -> bool:
        active = self.active
        is_old = now_ms - self._rolled_ms >= self.settings.segment_ms
        is_full = active.log_bytes >= self.settings.segment_bytes or active.body_rows >= self.settings.segment_rows_max
        return self._is_behind_a_truncation or (active.log_bytes > 0 and (is_full or is_old))

    @property
    def _is_behind_a_truncation(self) -> bool:
        """True if the next row would take the sequence of one that was dropped."""
        return self.tail.sequence < self.sequences_used

    def roll(self, now_ms: int) -> None:
        """Seals the active segment, if there is anything in it, and starts the next. Raises as `append`."""
        self._require_online()
        if self.active.end_offset == self.active.base_offset:
            return
        old, sealed = self.active, self.tail._replace(sequence=self.tail.sequence + 1)
        new = Segment(self._opened, self.directory, sealed.offset, self._codec)
        first = max(sealed.sequence, self.sequences_used)
        tail = sealed._replace(sequence=first, file_position=0, running_max_timestamp=NO_TIMESTAMP)
        checkpoint = self._checkpoint(tail)
        seal = self._codec.note(Kind.SEAL, self.tail, start_offset=self.tail.log_start_offset)
        try:
            self._unflushed.soil(new.log_path, create=True)
            self._unflushed.soil(new.catalog_path, create=True).pwritev([b"".join(checkpoint)], 0)
            self._unflushed.soil(old.catalog_path).pwritev([seal], old.slots * ROW_BYTES)
        except (OSError, Overloaded) as error:
            raise self._undo_roll(error, old, new) from error
        old.extend(1, sealed)
        old.is_sealed = True
        new.first_sequence, new.body_slot, new.slots = tail.sequence, len(checkpoint), len(checkpoint)
        self.segments.append(new)
        self.tail = tail._replace(sequence=new.next_sequence)
        self._unflushed.has_names = True
        self._rolled_ms = now_ms

    def begin_anew(self, now_ms: int) -> None:
        """Gives the log's last segment a sound checkpoint, so that those before it can be deleted at any time: a new
        segment, or, while it is empty, its own catalog written afresh. Durable. Raises `OSError`, or as `append`."""
        if self.active.end_offset > self.active.base_offset:
            self.roll(now_ms)
            self.flush()
            self._require_online()
            return
        self._write_catalog_afresh()

    def _write_catalog_afresh(self) -> None:
        """The catalog of the last segment, which is empty, with sequences that no row had. Raises `OSError`."""
        first = max(self.tail.sequence, self.sequences_used)
        tail = self.tail._replace(sequence=first, file_position=0, running_max_timestamp=NO_TIMESTAMP)
        rows = self._checkpoint(tail)
        self.active.first_sequence, self.active.body_slot = tail.sequence, len(rows)
        self.active.truncate(0, rows, tail)
        sequence = tail.sequence + len(rows)
        self.tail = tail._replace(sequence=sequence, durable=sequence)

    def _checkpoint(self, tail: Tail) -> list[bytes]:
        """A segment's first rows."""
        return self._codec.checkpoint(tail, self.lineage, self.producers.items())

    def _undo_roll(self, error: OSError | Overloaded, old: Segment, new: Segment) -> TidelogError:
        try:
            for path in (new.catalog_path, new.log_path):
                self._unflushed.disown(path)
                self._opened.close(path)
                if self._opened.files.exists(path):
                    self._opened.files.remove(path)
            self._opened.files.sync_dir(self.directory)
        except OSError as undo_error:
            error = undo_error
        return self._undo(error, old) if isinstance(error, OSError) else Overloaded(error.message)

    # -- flush ---------------------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """True if something waits for a flush."""
        return bool(self._unflushed) and self.offline_reason is None

    def begin_flush(self) -> Flush:
        """Takes all that was written so far. One flush at a time: `end_flush` before the next."""
        assert self.is_dirty
        return self._unflushed.take(self.tail.sequence, self.tail.offset)

    def end_flush(self, flush: Flush, error: OSError | None) -> None:
        """Takes in a flush's outcome; on success `durable_offset` covers it."""
        flush.release()
        if error is not None:
            self.take_offline(f"fsync failed: {error}")
        if self.offline_reason is not None:
            return
        assert flush.sequence >= self.tail.durable
        self.tail = self.tail._replace(durable=flush.sequence)
        self.durable_offset = flush.offset

    def flush(self) -> None:
        """A flush in one go. Blocking; no other may be under way."""
        flush = self.begin_flush()
        try:
            flush.run()
        except OSError as error:
            self.end_flush(flush, error)
        else:
            self.end_flush(flush, None)

    def mark(self) -> None:
        """Notes in the catalog how far the log is durable, for a log that has gone idle. Best effort, no fsync."""
        if self._marked == self.tail.durable or self.offline_reason is not None or self._is_behind_a_truncation:
            return
        path = self.active.catalog_path
        is_awaited = path in self._unflushed
        with suppress(DiskFull, InternalError, Overloaded):
            self._note_row(Kind.MARK, self.tail.log_start_offset)
        if not is_awaited:
            self._unflushed.disown(path)
        self._marked = self.tail.durable

    def _note_row(self, kind: Kind, start_offset: int) -> None:
        row = self._codec.note(kind, self.tail, start_offset=start_offset)
        self._write([], [row], self.tail._replace(sequence=self.tail.sequence + 1, log_start_offset=start_offset))
