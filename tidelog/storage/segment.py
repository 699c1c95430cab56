"""A segment: `<base_offset>.log`, nothing but batches, and `<base_offset>.catalog`, a row for each.

There is no index in memory. A lookup bisects the catalog itself (a few small `pread`s), so a partition costs the same
whether its segments hold a megabyte or a gigabyte, and no index has to be rebuilt or kept in step. The places of
readers that read on sequentially are remembered in a small table of hints, which spares them the search.

Everything read is verified: rows by their checksum, batches by the row's digest. What does not verify is never served
and never removed. A row that is lost is made again from the batch it described; a batch that is lost is a `Damage` that
names its offsets; all others stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog.model.batch_header import HEADER_BYTES, parse_header, verify_batch
from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import File
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.retention import SegmentSummary
from tidelog.storage.rows import NO_TIMESTAMP, ROW_BYTES, HeaderRow, Kind, Row, RowCodec, Tail
from tidelog.storage.wipe import wipe

HINTS_MAX = 128
SECTOR_BYTES = 512
NO_COPY = "nobody has a copy of it"
ROWS_PER_READ = 32
ROWS_PER_READ_MAX = 1024
"""Catalog rows that one read takes at most. A scan begins with 32 (4 KiB), enough for a few batches, and doubles."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets [start, end) whose batch, or whose identity (its row in the catalog, the index file), is lost on this
    disk."""

    start: int
    end: int
    reason: str
    epoch: int | None = None
    """Leader epoch of the damaged batch, if its catalog row is sound: `start` and `epoch` then name the batch that
    repairs it. None if the row is lost."""


Entry = Row | Damage


def end_of(entry: Entry) -> int:
    """Returns the offset behind an entry: a catalog row's batch, or a damaged range."""
    return entry.next_offset if isinstance(entry, Row) else entry.end


class Extent(NamedTuple):
    """Batches that were read and verified: complete, in order, from one segment."""

    data: bytes
    next_offset: int
    damage: Damage | None
    """The damage that stopped the read; None if it was not stopped by damage."""


NOTES_MAX = 64
"""Rows that are looked at to find a segment's last row with offsets, before the search ends."""


class Segment:
    """A log file and its catalog (index file with a row for each batch). Changed only by its `PartitionLog` and the
    loader.

    Invariant: catalog rows at slots below `slots` describe exactly the first `log_bytes` of the log file; anything
    behind either end in the files is no part of the segment.
    """

    def __init__(self, opened: OpenFiles, directory: str, base_offset: int, codec: RowCodec) -> None:
        self._opened = opened
        self._codec = codec
        self.base_offset = base_offset
        self.log_path = f"{directory}/{base_offset:020}.log"
        self.catalog_path = f"{directory}/{base_offset:020}.catalog"
        self.first_sequence = 0
        self.body_slot = 1
        self.slots = 0
        self.end_offset = base_offset
        self.log_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.is_sealed = False
        self.lost_at_end = 0
        """Number of offsets that a LOST row at the segment's end stands for (`lost_offsets`); 0 if there is none."""
        self._hints: dict[int, int] = {}

    # -- files ----------------------------------------------------------------------------------------------------

    @property
    def log(self) -> File:
        return self._opened.get(self.log_path)

    @property
    def catalog(self) -> File:
        return self._opened.get(self.catalog_path)

    @property
    def next_sequence(self) -> int:
        return self.first_sequence + self.slots

    @property
    def body_rows(self) -> int:
        return self.slots - self.body_slot

    @property
    def is_lost(self) -> bool:
        """Returns True if the segment spans offsets, and has no batch."""
        return self.log_bytes == 0 and self.end_offset > self.base_offset

    def summary(self) -> SegmentSummary:
        return SegmentSummary(self.base_offset, self.end_offset, self.log_bytes, self.max_timestamp)

    def extend(self, rows: int, tail: Tail) -> None:
        """Moves the segment's end behind rows, and the batches they describe, that were appended; `tail` is the log's
        new end."""
        # A reader that waits at the end comes for just this offset.
        self.hint(self.end_offset, self.slots)
        self.slots += rows
        self.end_offset = tail.offset
        self.log_bytes = tail.file_position
        self.max_timestamp = tail.running_max_timestamp

    def restate(self, slots: int, log_bytes: int, max_timestamp: int) -> None:
        """Sets the segment's size after rows or batches before its end were rewritten."""
        self.slots, self.log_bytes, self.max_timestamp = slots, log_bytes, max_timestamp
        self._hints.clear()

    def truncate(self, slot: int, rows: Sequence[bytes], tail: Tail) -> None:
        """Replaces the catalog rows from `slot` on by `rows`, and ends the log file at `tail`. The catalog is truncated
        first, and durably: an opening can make rows for batches without any, but rows without batches are damage. The
        caller has to sync the log file."""
        catalog = self.catalog
        # The catalog first, and durably. A crash in between leaves batches without rows, which are taken in again, so
        # the log is as long as before; rows without batches would be damage.
        catalog.truncate(slot * ROW_BYTES)
        catalog.pwritev([b"".join(rows)], slot * ROW_BYTES)
        catalog.sync()
        log = self.log
        # An old block may come back in the place of a write that a power cut took; as zeros it is no batch.
        wipe(log, tail.file_position)
        log.truncate(tail.file_position)
        self.slots, self.end_offset, self.log_bytes = slot + len(rows), tail.offset, tail.file_position
        self.max_timestamp, self.is_sealed = tail.running_max_timestamp, False
        self._hints.clear()
        self.look_for_lost_end()

    def look_for_lost_end(self) -> None:
        """Sets `lost_at_end` from the last row that has offsets."""
        self.lost_at_end = 0
        for slot in range(self.slots - 1, max(self.body_slot, self.slots - NOTES_MAX) - 1, -1):
            row = self.row(slot)
            # Notes may follow the LOST row, and take no offsets. Behind a damaged row nobody knows; the segment then
            # counts as one that goes on.
            if row is None or row.kind in (Kind.BATCH, Kind.LOST):
                self.lost_at_end = row.last_offset_delta + 1 if row is not None and row.kind == Kind.LOST else 0
                return

    def hint(self, offset: int, slot: int) -> None:
        """Remembers that the catalog row for `offset` is, or will be, at `slot`, so that a read that goes on from there
        need not search."""
        self._hints[offset] = slot
        if len(self._hints) > HINTS_MAX:
            del self._hints[next(iter(self._hints))]

    # -- rows -----------------------------------------------------------------------------------------------------

    def raw_rows(self, slot: int, count: int) -> bytes:
        """Returns the bytes of up to `count` rows; a sector that cannot be read is returned as zeros, which count as
        damage."""
        try:
            return self.catalog.pread(count * ROW_BYTES, slot * ROW_BYTES)
        except OSError:
            # One sector that cannot be read fails the whole read, so rows are read one by one: four of them share a
            # sector.
            if count == 1:
                return bytes(ROW_BYTES)
            rows = (self.raw_rows(slot + i, 1) for i in range(count))
            return b"".join(row for row in rows if row)

    def row(self, slot: int) -> Row | None:
        """Returns the body row (not of the catalog's header or checkpoint) at a slot; None if it is damaged or has
        another slot's sequence."""
        return next(self._codec.bodies(self.raw_rows(slot, 1), self.first_sequence + slot), None)

    def rows(self, slot: int) -> Iterator[Row | None]:
        """Returns the body rows from `slot` to the end of the catalog; None for each that is damaged."""
        return chain.from_iterable(self._row_runs(slot))

    def _row_runs(self, slot: int) -> Iterator[Iterable[Row | None]]:
        size = ROWS_PER_READ
        while slot < self.slots:
            count = min(size, self.slots - slot)
            raw = self.raw_rows(slot, count)
            yield self._codec.bodies(raw, self.first_sequence + slot)
            # The file is shorter than it should be. Each row that is missing is yielded all the same, or the slots of
            # those behind would shift.
            yield repeat(None, count - len(raw) // ROW_BYTES)
            slot, size = slot + count, min(2 * size, ROWS_PER_READ_MAX)

    def count_bad_rows(self, slot: int, count: int) -> int:
        """Returns how many of `count` rows of any kind from `slot` on do not verify. Checkpoint rows that the header
        declares invalid are not checked."""
        raw = memoryview(self.raw_rows(slot, count))
        split = min(max(self.body_slot - slot, 0), count)
        head = (raw[i * ROW_BYTES : (i + 1) * ROW_BYTES] for i in range(split))
        bad = [row_slot for row_slot, row in enumerate(head, start=slot) if not self._codec.is_sound(row)]
        # A bad header (slot 0) is bad in any case. Checkpoint rows that the header disclaims count for nothing.
        if any(bad) and not self._may_have_checkpoint():
            bad = [row_slot for row_slot in bad if row_slot == 0]
        body = self._codec.bodies(raw[split * ROW_BYTES :], self.first_sequence + slot + split)
        return len(bad) + count - split - sum(row is not None for row in body)

    def _may_have_checkpoint(self) -> bool:
        header = self._codec.parse_header(self.raw_rows(0, 1))
        return header is None or header.base_offset != self.base_offset or header.has_checkpoint

    @property
    def has_lost_checkpoint(self) -> bool:
        """Returns True if checkpoint rows are damaged, and the header does not declare the checkpoint invalid."""
        return self.count_bad_rows(1, self.body_slot - 1) > 0

    def _search(self, is_at_or_before: Callable[[Row], bool]) -> int:
        """Returns the last slot with a sound row that satisfies a predicate which holds for a prefix of the rows; one
        less than the first body slot if there is none. Damaged rows are skipped."""
        low, high = self.body_slot, self.slots
        while low < high:
            # Bisection holds for rows of any kind, as offsets, positions and running maxima never fall. A damaged row
            # is replaced by the next sound one within the bounds; if there is none, the upper half is given up.
            middle = probe = (low + high) // 2
            row = self.row(probe)
            while row is None and probe + 1 < high:
                probe += 1
                row = self.row(probe)
            if row is not None and is_at_or_before(row):
                low = probe + 1
            else:
                high = middle
        return low - 1

    # -- entries --------------------------------------------------------------------------------------------------

    def entries(self, offset: int) -> Iterator[Entry]:
        """Returns the catalog rows of the batches, and the damaged ranges, in order of offsets, from the one that holds
        `offset` on."""
        slot = self._hints.get(offset)
        if slot is None:
            # The last row at or before the offset; those that end before it are skipped below.
            slot = max(self._search(lambda row: row.base_offset <= offset), self.body_slot)
        entries = self._entries_from(slot)
        for entry in entries:
            if end_of(entry) > offset:
                return chain((entry,), entries)
        return entries

    def _entries_from(self, slot: int) -> Iterator[Entry]:
        last: Row | None = None
        has_gap = False
        for row in self.rows(slot):
            if row is None:
                has_gap = True
                continue
            if has_gap:
                # Rows are missing between two sound ones, which say where the batches between them begin and end. So
                # the log is asked for itself, and only what it cannot show is damage.
                yield from self._salvage(last or self._sound_before(slot), row.first_offset, row.file_position)
                has_gap = False
            if row.kind == Kind.BATCH:
                yield row
            elif row.kind == Kind.LOST:
                yield Damage(row.base_offset, row.next_offset, "lost with its catalog row")
            last = row
        # The rows end before the segment does: those behind are damaged, or the catalog is shorter than it was.
        if has_gap or (last is not None and last.next_offset < self.end_offset):
            yield from self._salvage(last or self._sound_before(slot), self.end_offset, self.log_bytes)

    def _sound_before(self, slot: int) -> Row | None:
        while slot > self.body_slot:
            slot -= 1
            row = self.row(slot)
            if row is not None:
                return row
        return None

    def _salvage(self, last: Row | None, end_offset: int, end_position: int) -> Iterator[Entry]:
        """Yields rows for sound batches that the log file has where catalog rows behind `last` are damaged, then a
        damaged range for the other offsets."""
        offset, position, epoch = self.base_offset, 0, 0
        if last is not None:
            offset, position, epoch = last.next_offset, last.end_position, last.epoch
        for row in self.walk(offset, position, end_position, epoch):
            # A batch across the next sound row contradicts that row, and a row is the better witness.
            if row.next_offset > end_offset:
                break
            yield row
            offset = row.next_offset
        if offset < end_offset:
            yield Damage(offset, end_offset, "batch and catalog row are both damaged")

    def walk(self, offset: int, position: int, end_position: int, epoch: int) -> Iterator[Row]:
        """Yields rows made from the batches in the log file from `position` on: each verifies, follows the one before
        it without a gap, and has no older leader epoch."""
        tail = Tail(0, 0, epoch, offset, position, NO_TIMESTAMP, 0)
        while True:
            data = self._batch_at(tail.file_position, end_position)
            if data is None:
                return
            header = parse_header(data)
            # The batch has a sound CRC, which covers neither offset nor epoch: that it continues the log is what tells
            # it from an old block.
            if header.base_offset != tail.offset or header.leader_epoch < tail.epoch:
                return
            row = self._codec.body(self._codec.batch(tail, header, (data,)))
            assert row is not None
            yield row
            tail = tail._replace(offset=row.next_offset, file_position=row.end_position, epoch=row.epoch)

    def _batch_at(self, position: int, end_position: int) -> bytes | None:
        """Returns the bytes of a sound batch at a position of the log file, or None."""
        if position + HEADER_BYTES > end_position:
            return None
        try:
            header = parse_header(self.log.pread(HEADER_BYTES, position))
            # The length is not checked by anything yet, so it is bounded before it is read.
            if header.batch_length <= 0 or position + header.size > end_position:
                return None
            data = self.log.pread(header.size, position)
            verify_batch(data)
        except (OSError, InvalidBatch):
            return None
        return data

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, end_offset: int) -> Extent:
        """Reads whole verified batches from the one that holds `offset`, below `end_offset`: at most `bytes_max`, but
        at least one. Stops at damage. Without damage, batches follow each other in the returned bytes."""
        run: list[Row] = []
        size, stop = 0, None
        for entry in self.entries(offset):
            if isinstance(entry, Damage):
                stop = entry if entry.start < end_offset else None
                break
            # At least one batch, however large, or a reader would never get past it.
            is_full = run and size + entry.length > bytes_max
            if is_full or entry.next_offset > end_offset:
                break
            run.append(entry)
            size += entry.length
        return self._fetch(run, size, offset, stop)

    def _fetch(self, run: list[Row], size: int, offset: int, stop: Damage | None) -> Extent:
        if not run:
            return Extent(b"", offset, stop)
        try:
            data = self.log.pread(size, run[0].file_position)
        except OSError:
            # One bad sector fails the gathered read. Batch by batch, and sector by sector, the sound ones before it are
            # still served.
            data = b"".join(map(self.raw_batch, run))
        view, start = memoryview(data), 0
        for row in run:
            # Verified at each read: the digest was taken before the batch was written, so neither disk nor page cache
            # can change a byte in between unseen.
            if xxh3_128_digest(view[start : start + row.length]) != row.digest:
                damage = Damage(row.base_offset, row.next_offset, "batch does not match its catalog row", row.epoch)
                return Extent(data[:start], row.base_offset if start else offset, damage)
            start += row.length
        if self.slots - self.body_slot > 1:
            self._hint_after(run[-1])
        return Extent(data, run[-1].next_offset, stop)

    def _hint_after(self, row: Row) -> None:
        slot = row.sequence - self.first_sequence + 1
        if self.body_slot < slot <= self.slots:  # rows made by `walk` have no slot of their own
            self.hint(row.next_offset, slot)

    def raw_batch(self, row: Row) -> bytes:
        """Returns the bytes at the place of the row's batch, unverified; a sector that cannot be read is returned as
        zeros."""
        try:
            return self.log.pread(row.length, row.file_position)
        except OSError:
            ends = range(row.file_position, row.end_position, SECTOR_BYTES)
            return b"".join(self._sector(position, min(SECTOR_BYTES, row.end_position - position)) for position in ends)

    def _sector(self, position: int, size: int) -> bytes:
        try:
            # Filled up, so that a file that is too short gives as many bytes as the row says, and no other batch slides
            # into their place.
            return self.log.pread(size, position).ljust(size, b"\0")
        except OSError:
            return bytes(size)

    def holds(self, row: Row) -> bool:
        """Returns True if the log file holds the row's batch, byte for byte."""
        return xxh3_128_digest(self.raw_batch(row)) == row.digest

    def first_since(self, timestamp_ms: int, offset: int) -> Entry | None:
        """Returns the row of the first batch, from the one that holds `offset` on, with a record of that timestamp or
        later; or the damaged range where it may have been."""
        slot = max(self._search(lambda row: row.running_max_timestamp < timestamp_ms), self.body_slot)
        for entry in self._entries_from(slot):
            if isinstance(entry, Damage):
                if entry.end > offset:
                    return entry
            elif entry.max_timestamp >= timestamp_ms and entry.next_offset > offset:
                return entry
        return None

    # -- opening --------------------------------------------------------------------------------------------------

    def open_header(self) -> HeaderRow | None:
        """Reads the header, which says where the body rows begin and how they are numbered; None if it is damaged or
        another segment's."""
        header = self._codec.parse_header(self.raw_rows(0, 1))
        if header is None or header.base_offset != self.base_offset:
            return None
        self.first_sequence, self.body_slot = header.sequence, 1 + header.checkpoint_rows
        return header

    def open_sealed(self) -> Row | None:
        """Sets the segment's extent from its header and seal alone, two small reads. Returns the seal, if both are
        sound."""
        rows = self.catalog.size() // ROW_BYTES
        if rows < 2 or self.open_header() is None:
            return None
        self.slots = rows
        seal = self.row(rows - 1)
        if seal is None or seal.kind != Kind.SEAL:
            return None
        self.end_offset, self.log_bytes = seal.base_offset, seal.file_position
        self.max_timestamp, self.is_sealed = seal.running_max_timestamp, True
        return seal
