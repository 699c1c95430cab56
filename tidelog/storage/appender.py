"""The end of a log: batches are appended, and segments are rolled.

An append gathers many batches into one write per file. They can be read at once, and must not be acknowledged before
they are flushed.

A write that fails for want of space is undone, durably, before the caller gets `DiskFull` ("nothing was appended"). Any
other failed write leaves the outcome unknown, and takes the log offline. Reads go on in both cases.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress

from tidelog.model.batch_header import RecordBatch, SpreadBatch
from tidelog.model.errors import DiskFull, InternalError, Overloaded, TidelogError
from tidelog.model.ports import Buffer
from tidelog.storage.flush import Flusher
from tidelog.storage.lineage import begin_epoch
from tidelog.storage.log_state import LogState
from tidelog.storage.rows import NO_TIMESTAMP, ROW_BYTES, Kind, Tail
from tidelog.storage.segment import NO_COPY, Damage, Segment

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Appender:
    """Appends batches and notes to the end of one log, and rolls its segments."""

    def __init__(self, state: LogState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._opened = state.files.opened
        self._codec = state.files.codec

    # -- append ---------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[RecordBatch | SpreadBatch],
        now_ms: int,
        *,
        may_skip: bool = False,
        identities: Sequence[tuple[int, int]] = (),
        names: Sequence[bytes] = (),
    ) -> None:
        """Appends batches, whose offsets and leader epoch are assigned already: all of them or none.

        Each batch begins at the offset where the one before it ends; with `may_skip` it may begin later, and the
        offsets between belong to no record. `identities` are the Paxos position and the proposal number of each batch,
        for its catalog row. `names` are contents of NAME rows, each written before its batch's row; an empty one writes
        no row.

        Raises `DiskFull` or `Overloaded` (nothing was appended, try again later), `LogOffline` (nothing was appended,
        nor will be), or `InternalError` (the write failed half-way: the outcome is unknown; the log is offline now).
        """
        state = self._state
        state.require_online()
        self._require_epoch(batches)
        # The roll comes first: what is gathered in one append lies in one segment, and is undone there if it fails.
        if self._is_time_to_roll(now_ms):
            self.roll(now_ms)
        tail, rows = state.tail, list[bytes]()
        data: list[Buffer] = []
        for number, batch in enumerate(batches):
            header = batch.header
            # Offsets are skipped in Paxos logs alone, where a void value had them. In an ISR log a gap would be a lost
            # batch.
            assert header.base_offset == tail.offset or (may_skip and header.base_offset > tail.offset)
            assert header.leader_epoch >= tail.epoch
            if names and names[number]:
                # The NAME row stands before its BATCH row, so a power cut that tears this write leaves no entry that
                # nobody can name: a voter must know which slot it has lost.
                rows.append(self._codec.name(tail, names[number]))
                tail = tail._replace(sequence=tail.sequence + 1)
            buffers = batch.buffers
            data += buffers
            rows.append(self._codec.batch(tail, header, buffers, identities[number] if identities else None))
            tail = Tail(
                tail.sequence + 1, tail.durable, header.leader_epoch, header.next_offset,
                tail.file_position + header.size, max(tail.running_max_timestamp, header.max_timestamp),
                tail.log_start_offset,
            )  # fmt: skip
        self._write(data, rows, tail)
        state.marked = tail.durable  # the rows say so
        for batch in batches:
            self._note(batch, now_ms)

    def _require_epoch(self, batches: Sequence[RecordBatch | SpreadBatch]) -> None:
        """Takes the log offline if its last batch is of a later leader epoch than the first of these batches."""
        state = self._state
        # No checksum covers the epoch in a batch. Where a power cut took its row, the row was made again from an epoch
        # that may have rotted, and everything that is appended by the right epoch would then look like a step back.
        if batches and batches[0].header.leader_epoch < state.tail.epoch:
            epoch = batches[0].header.leader_epoch
            state.take_offline(f"it ends in leader epoch {state.tail.epoch}, and the next batch is of epoch {epoch}")
            state.require_online()

    def append_lost(self, start: int, end: int, epoch: int, now_ms: int) -> None:
        """Appends a LOST row for offsets [start, end), whose batches are committed but can be read nowhere, so that the
        log can go on behind them. Reads of these offsets fail as damaged (`lost_offsets`). Raises `DiskFull` or
        `Overloaded` (nothing was written, try again later), `LogOffline` (nothing was written), or `InternalError` (the
        outcome is unknown; the log is offline now)."""
        state = self._state
        state.require_online()
        assert state.tail.offset <= start < end
        self.roll(now_ms)
        placed = state.tail._replace(offset=start, epoch=max(epoch, state.tail.epoch))
        skipped, start_offset = start - state.tail.offset, state.tail.log_start_offset
        row = self._codec.note(Kind.LOST, placed, start_offset=start_offset, offsets=end - start, skipped=skipped)
        self._write([], [row], placed._replace(sequence=placed.sequence + 1, offset=end))
        # From here on the segment is closed to appends (`_is_time_to_roll`): a batch behind the LOST row would lie
        # where a copy of the lost ones has to go.
        state.active.lost_at_end = end - start
        state.damage.note(Damage(start, end, NO_COPY))
        with suppress(DiskFull, Overloaded):  # then the next append does
            self.roll(now_ms)

    def _note(self, batch: RecordBatch | SpreadBatch, now_ms: int) -> None:
        state, header = self._state, batch.header
        begin_epoch(state.lineage, header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            state.producers.remember(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
                header.base_offset,
                now_ms,
            )

    def _write(self, data: Sequence[Buffer], rows: list[bytes], tail: Tail) -> None:
        """Writes batches to the log file, then their rows to the catalog, and moves the log's end. Raises `DiskFull` or
        `Overloaded` (nothing was written, try again later), `LogOffline` (nothing was written), or `InternalError` (the
        outcome is unknown; the log is offline now)."""
        state = self._state
        segment = state.segments[-1]
        try:
            # Both handles before either write: a process short of descriptors has written nothing.
            log = self._flusher.soil(segment.log_path) if data else None
            catalog = self._flusher.soil(segment.catalog_path)
            if log is not None:
                log.pwritev(data, state.tail.file_position)
            # A process that is killed between the two writes leaves batches without rows, which the next opening takes
            # in. Rows without batches would be taken for damage, and offsets of nothing answered with an error.
            catalog.pwritev([b"".join(rows)], segment.slots * ROW_BYTES)
        except OSError as error:
            raise self._undo(error, segment) from error
        self._flusher.file_bytes += tail.file_position - state.tail.file_position + len(rows) * ROW_BYTES
        segment.extend(len(rows), tail)
        state.tail = tail

    def _undo(self, error: OSError, segment: Segment) -> DiskFull | InternalError:
        """Undoes a failed append durably if the disk was full, and returns `DiskFull`; else takes the log offline, and
        returns `InternalError`."""
        state = self._state
        # Only a full disk says what it did. After EIO nobody knows which bytes are there, or will be.
        if error.errno in OUT_OF_SPACE:
            try:
                segment.log.truncate(segment.log_bytes)
                segment.catalog.truncate(segment.slots * ROW_BYTES)
                # Synced before the caller hears of it: DiskFull is definite, so a client sends the batch again. If a
                # power cut brought this one back, the record would be in the log twice.
                segment.log.sync()
                segment.catalog.sync()
            except OSError as undo_error:
                error = undo_error
            else:
                return DiskFull(f"no space left for partition {state.name}; nothing was appended")
        state.take_offline(f"write failed: {error}")
        return InternalError(f"writing to partition {state.name} failed ({error}); the outcome is unknown")

    # -- roll -----------------------------------------------------------------------------------------------------

    def _is_time_to_roll(self, now_ms: int) -> bool:
        state, settings = self._state, self._state.settings
        active = state.segments[-1]
        # Age counts from the last roll, not by timestamps of records, which clients choose.
        is_old = now_ms - state.rolled_ms >= settings.segment_ms
        is_full = active.log_bytes >= settings.segment_bytes or active.body_rows >= settings.segment_rows_max
        is_due = active.log_bytes > 0 and (is_full or is_old)
        # Behind a truncation the next row would have the sequence of a dropped one; only another segment begins with a
        # higher one. Without that, a leftover of the dropped row would fit again, and its `durable` be believed.
        return state.is_behind_a_truncation or is_due or active.lost_at_end > 0

    def roll(self, now_ms: int) -> None:
        """Seals the active segment, unless it has no offsets, and starts the next one. Raises `DiskFull` or
        `Overloaded` (nothing was written, try again later), `LogOffline` (nothing was written), or `InternalError` (the
        outcome is unknown; the log is offline now)."""
        state = self._state
        state.require_online()
        if state.active.end_offset == state.active.base_offset:
            return
        old, sealed = state.active, state.tail._replace(sequence=state.tail.sequence + 1)
        new = Segment(self._opened, state.directory, sealed.offset, self._codec)
        spare = old.lost_at_end  # a batch has one record at least
        # Above every sequence that a row of this log ever had, dropped ones included.
        first = max(sealed.sequence + spare, state.sequences_used)
        tail = sealed._replace(sequence=first, file_position=0, running_max_timestamp=NO_TIMESTAMP)
        checkpoint = self._checkpoint(tail)
        seal = self._codec.note(Kind.SEAL, state.tail, start_offset=state.tail.log_start_offset)
        try:
            self._flusher.soil(new.log_path, create=True)
            self._flusher.soil(new.catalog_path, create=True).pwritev([b"".join(checkpoint)], 0)
            self._flusher.soil(old.catalog_path).pwritev([seal], old.slots * ROW_BYTES)
        except (OSError, Overloaded) as error:
            raise self._undo_roll(error, old, new) from error
        old.extend(1, sealed)
        old.is_sealed = True
        new.first_sequence, new.body_slot, new.slots = tail.sequence, len(checkpoint), len(checkpoint)
        state.segments.append(new)
        state.tail = tail._replace(sequence=new.next_sequence)
        # A name is durable only by an fsync of the directory, which the next flush does as well.
        self._flusher.has_names = True
        state.rolled_ms = now_ms

    def begin_anew(self, now_ms: int) -> None:
        """Gives the log's last segment an undamaged checkpoint, so that older segments can be deleted at any time.

        The checkpoint is the first part of a segment's catalog (its index file), and holds the leader epochs and the
        producers' states of all segments before. If the last segment has batches, a new one is rolled; else its catalog
        is written again. Durable. Raises `OSError`, `DiskFull`, `Overloaded`, `LogOffline` or
        `InternalError`."""
        state = self._state
        if state.active.end_offset > state.active.base_offset:
            self.roll(now_ms)
            self._flusher.flush()
            state.require_online()
            return
        self.write_catalog_afresh()

    def write_catalog_afresh(self) -> None:
        """Writes the catalog of the last segment, which has no batches, again. Its rows get sequence numbers that no
        row of this log ever had. Raises `OSError`."""
        state = self._state
        first = max(state.tail.sequence, state.sequences_used)
        tail = state.tail._replace(sequence=first, file_position=0, running_max_timestamp=NO_TIMESTAMP)
        rows = self._checkpoint(tail)
        state.active.first_sequence, state.active.body_slot = tail.sequence, len(rows)
        # This syncs the catalog, so everything below the new tail is durable when it returns.
        state.active.truncate(0, rows, tail)
        sequence = tail.sequence + len(rows)
        state.tail = tail._replace(sequence=sequence, durable=sequence)

    def _checkpoint(self, tail: Tail) -> list[bytes]:
        """Returns the header and checkpoint rows with which a segment's catalog begins; `tail` is the end of
        the log."""
        return self._codec.checkpoint(tail, self._state.lineage, self._state.producers.items())

    def _undo_roll(self, error: OSError | Overloaded, old: Segment, new: Segment) -> TidelogError:
        try:
            # Disowned first: the next flush must not sync a file that is gone, and fail the log for that.
            for path in (new.catalog_path, new.log_path):
                self._flusher.disown(path)
                self._opened.close(path)
                if self._opened.files.exists(path):
                    self._opened.files.remove(path)
            self._opened.files.sync_dir(self._state.directory)
        except OSError as undo_error:
            error = undo_error
        return self._undo(error, old) if isinstance(error, OSError) else Overloaded(error.message)

    # -- notes ----------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Appends a MARK row, which says up to where the log is durable, to the catalog (the index file of the last
        segment), for a log that has gone idle. Best effort, no fsync."""
        state = self._state
        if state.marked == state.tail.durable or state.offline_reason is not None or state.is_behind_a_truncation:
            return
        # Nobody waits for a mark. If the catalog was clean, its file is disowned again, and an idle log costs no fsync.
        path = state.active.catalog_path
        is_awaited = path in self._flusher
        with suppress(DiskFull, InternalError, Overloaded):
            self.vouch()
        if not is_awaited:
            self._flusher.disown(path)
        state.marked = state.tail.durable

    def vouch(self) -> None:
        """Appends a MARK row, which says up to where the log is durable, to the catalog (the index file of the last
        segment). The row itself waits for a flush. Raises `DiskFull`, `Overloaded`, `LogOffline` or `InternalError`."""
        state = self._state
        assert not state.is_behind_a_truncation, "a truncation's own rows vouch for the log"
        self.note_row(Kind.MARK, state.tail.log_start_offset)
        state.marked = state.tail.durable

    def note_row(self, kind: Kind, start_offset: int) -> None:
        """Appends a row without a batch to the catalog (the index file of the last segment); `start_offset` is the log
        start offset from then on. Raises `DiskFull` or `Overloaded` (nothing was written, try again later),
        `LogOffline` (nothing was written), or `InternalError` (the outcome is unknown; the log is offline now)."""
        state = self._state
        row = self._codec.note(kind, state.tail, start_offset=start_offset)
        self._write([], [row], state.tail._replace(sequence=state.tail.sequence + 1, log_start_offset=start_offset))
