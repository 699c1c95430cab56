"""Repair in place: a damaged batch from a peer's copy, a damaged catalog row from its batch (CTRL, FAST '18).

A row names its batch by a 128-bit digest of all its bytes, offset and leader epoch included. So a copy with that digest
is the batch, whoever gives it, and a copy with another is not, whatever offset it claims. The copy goes where the batch
was, and nothing else in the files changes. A crash half-way leaves a damaged batch where there was a damaged batch: its
row, which still says what belongs there, was not touched.

Where the row is damaged and its batch is not, the row is made again: from the log alone if the batches between the
sound rows on either side follow each other without a gap, else with a peer's copy that is, byte for byte, what the log
holds at just that offset. If both are damaged, this disk does not know what it lost, and cannot tell if a copy is it.
But below the high watermark all replicas have the same: a copy of what is *committed* at that offset is it, and goes
where the batch before it ends, if it fits between the sound rows on either side; or into the segment that was made for
it, if the log went on without it (`lost_offsets`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog.model.batch_header import BatchHeader, verify_batch
from tidelog.model.errors import OffsetOutOfRange
from tidelog.model.ports import Buffer
from tidelog.storage.log_reader import LogReader
from tidelog.storage.log_state import LogState
from tidelog.storage.lost_offsets import bring_back
from tidelog.storage.rows import NO_TIMESTAMP, ROW_BYTES, Kind, Row, RowCodec, Tail
from tidelog.storage.segment import Damage, Segment


class Repair(Enum):
    """A copy was put back, or this is why not."""

    DONE = "done"
    """The batch is in its place and can be read."""
    NOT_NEEDED = "not needed"
    """It already was."""
    DIFFERENT = "different"
    """Another batch belongs there: either log may be the one that has to change, which is for epochs to say."""
    UNKNOWN = "unknown"
    """What belongs there is not known: the row is lost, too."""


class RowGap(NamedTuple):
    """Damaged rows between two sound ones, or before the end of a segment."""

    slot: int
    size: int
    last: Row | None
    following: Row | None


def repair_batch(
    state: LogState, reader: LogReader, data: Buffer, *, is_committed: bool = False
) -> tuple[Repair, Damage | None]:
    """Repairs a log with a copy of one batch: what came of it, and which offsets can be read now. `is_committed`: at
    this offset this batch is committed, and so it is what this log holds there, or held.

    Raises `InvalidBatch`, `OffsetOutOfRange`, `Overloaded`, `OSError`."""
    header = verify_batch(data)
    codec, tail = state.files.codec, state.tail
    start, end = tail.log_start_offset, tail.offset
    if header.next_offset <= start or header.base_offset >= end:
        raise OffsetOutOfRange(
            f"offset {header.base_offset} is out of range: the log holds {start} to {end}", start, end
        )
    segment = next(reader.parts(header.base_offset))
    entry = None if isinstance(segment, Damage) else next(segment.entries(header.base_offset), None)
    if isinstance(segment, Damage) or entry is None:
        return Repair.UNKNOWN, None
    if isinstance(entry, Damage):
        mended = mend_rows(codec, segment, tail, (header, data))
        healed = next((gap for gap in mended if gap.start <= header.base_offset < gap.end), None)
        if healed is None and is_committed:
            is_filled_in = _fill_in(codec, segment, tail, header, data)
            if is_filled_in:
                mend_rows(codec, segment, tail)
            if is_filled_in or bring_back(state, segment, header, data):
                healed = Damage(header.base_offset, header.next_offset, "repaired")
        return (Repair.DONE if healed else Repair.UNKNOWN), healed
    if entry.digest != xxh3_128_digest(data):
        return Repair.DIFFERENT, None
    healed = Damage(entry.base_offset, entry.next_offset, "repaired")
    if not segment.holds(entry):
        _put_back(segment, entry, data)
        return Repair.DONE, healed
    if entry.sequence < segment.first_sequence + segment.body_slot:  # made from the batch: it has no row of its own
        mend_rows(codec, segment, tail)
    return Repair.NOT_NEEDED, healed


def _put_back(segment: Segment, row: Row, data: Buffer) -> None:
    file = segment.log
    file.pwritev([data], row.file_position)
    file.sync()
    if not segment.holds(row):
        raise OSError(errno.EIO, "a batch that was written back does not read as written", segment.log_path)


def _fill_in(codec: RowCodec, segment: Segment, tail: Tail, header: BatchHeader, data: Buffer) -> bool:
    """Writes a committed batch where its row and itself are lost, behind the last sound batch before it; False if it
    does not belong just there."""
    for gap in _row_gaps(segment):
        at = _tail_before(segment, gap, tail)
        end_offset, end_position = _end_of(segment, gap)
        for row in segment.walk(at.offset, at.file_position, end_position, at.epoch):
            at = at._replace(offset=row.next_offset, file_position=row.end_position, epoch=row.epoch)
        epoch_max = header.leader_epoch if gap.following is None else gap.following.epoch
        ends = (header.next_offset, at.file_position + header.size)
        fits = ends == (end_offset, end_position) or (ends[0] < end_offset and ends[1] < end_position)
        if at.offset == header.base_offset and fits and at.epoch <= header.leader_epoch <= epoch_max:
            segment.log.pwritev([data], at.file_position)
            segment.log.sync()
            return True
    return False


def _end_of(segment: Segment, gap: RowGap) -> tuple[int, int]:
    """Where what a gap described ends: offset, and position in the log."""
    if gap.following is None:
        return segment.end_offset, segment.log_bytes
    return gap.following.first_offset, gap.following.file_position


# -- rows -------------------------------------------------------------------------------------------------------------


def mend_rows(
    codec: RowCodec, segment: Segment, tail: Tail, copy: tuple[BatchHeader, Buffer] | None = None
) -> list[Damage]:
    """Makes damaged rows again, durably, where the log tells what they said; returns their offsets.

    `tail` is the log's, for what rows say of the whole log. `copy` is a batch that a peer has: it may prove that what
    the log holds behind skipped offsets belongs there. Raises `OSError` or `Overloaded`.
    """
    mended = []
    for gap in list(_row_gaps(segment)):
        rows = _rows_for(codec, segment, gap, tail, copy)
        if rows is None:
            continue
        segment.catalog.pwritev([b"".join(map(codec.pack, rows))], gap.slot * ROW_BYTES)
        mended.append(Damage(rows[0].first_offset, rows[-1].next_offset, "row made again"))
    if mended:
        segment.catalog.sync()
    return mended


def _row_gaps(segment: Segment) -> Iterator[RowGap]:
    last, count, slot = None, 0, segment.body_slot
    for row in segment.rows(slot):
        slot += 1
        if row is None:
            count += 1
            continue
        if count:
            yield RowGap(slot - 1 - count, count, last, row)
        last, count = row, 0
    if count:
        yield RowGap(slot - count, count, last, None)


def _rows_for(
    codec: RowCodec, segment: Segment, gap: RowGap, tail: Tail, copy: tuple[BatchHeader, Buffer] | None
) -> list[Row] | None:
    """A row for each slot of the gap; None if the log does not tell."""
    at = _tail_before(segment, gap, tail)
    end_offset, end_position = _end_of(segment, gap)
    rows: list[Row] = []
    for found in _batches_between(codec, segment, at, end_position, copy):
        newest = max(at.running_max_timestamp, found.max_timestamp)
        at = at._replace(running_max_timestamp=newest)
        rows.append(_placed(found, at))
        at = at._replace(
            sequence=at.sequence + 1, epoch=found.epoch, offset=found.next_offset, file_position=found.end_position
        )
    has_seal = gap.following is None and segment.is_sealed
    notes = gap.size - len(rows)
    if (at.offset, at.file_position) != (end_offset, end_position) or notes < has_seal:
        return None
    for left in reversed(range(notes)):
        kind = Kind.SEAL if has_seal and left == 0 else Kind.MARK
        note = codec.body(codec.note(kind, at, start_offset=at.log_start_offset))
        assert note is not None
        rows.append(_placed(note, at))
        at = at._replace(sequence=at.sequence + 1)
    return rows


def _placed(row: Row, at: Tail) -> Row:
    """A row as the one that belongs at a tail: never vouching for more than lies before it."""
    return row._replace(
        sequence=at.sequence,
        durable=min(at.durable, at.sequence),
        running_max_timestamp=at.running_max_timestamp,
        start_offset=at.log_start_offset,
    )


def _tail_before(segment: Segment, gap: RowGap, tail: Tail) -> Tail:
    """The log's tail as it was when the first row of the gap was written."""
    tail = tail._replace(sequence=segment.first_sequence + gap.slot)
    if gap.last is None:
        return tail._replace(epoch=0, offset=segment.base_offset, file_position=0, running_max_timestamp=NO_TIMESTAMP)
    last = gap.last
    return tail._replace(
        epoch=last.epoch,
        offset=last.next_offset,
        file_position=last.end_position,
        running_max_timestamp=last.running_max_timestamp,
    )


def _batches_between(
    codec: RowCodec, segment: Segment, at: Tail, end_position: int, copy: tuple[BatchHeader, Buffer] | None
) -> Iterator[Row]:
    """What the log holds from a tail on; where it skips offsets, only a batch that is equal to the copy."""
    while True:
        for row in segment.walk(at.offset, at.file_position, end_position, at.epoch):
            yield row
            at = at._replace(epoch=row.epoch, offset=row.next_offset, file_position=row.end_position)
        proven = _row_of_copy(codec, segment, at, end_position, copy)
        if proven is None:
            return
        yield proven
        at, copy = at._replace(epoch=proven.epoch, offset=proven.next_offset, file_position=proven.end_position), None


def _row_of_copy(
    codec: RowCodec, segment: Segment, at: Tail, end_position: int, copy: tuple[BatchHeader, Buffer] | None
) -> Row | None:
    if copy is None:
        return None
    header, data = copy
    follows = header.base_offset > at.offset and header.leader_epoch >= at.epoch
    if not follows or at.file_position + header.size > end_position:
        return None
    row = codec.body(codec.batch(at, header, (data,)))
    assert row is not None
    return row if segment.holds(row) else None
