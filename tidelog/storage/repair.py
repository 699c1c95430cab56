"""Repair in place: a damaged batch from another replica's copy, a damaged catalog row from its batch (CTRL, FAST '18).

A catalog row names its batch by a 128-bit digest of all its bytes, offset and leader epoch included. So a copy with
that digest is the batch, whichever replica gives it, and a copy with another digest is not, whatever offset it claims.
The copy is written where the batch was, and nothing else in the files changes. A crash half-way leaves the batch
damaged as before: its row, which still says what belongs there, was not touched.

Where the row is damaged and its batch is not, the row is made again (`row_repair`). If both are damaged, this disk does
not know what it lost, and cannot check a copy. But below the high watermark all replicas have the same batches, and an
aligned follower has what its leader has: so a copy of what is *committed* at that offset, or is there in the leader's
log, is the right one. It is written where the batch before it ends, if it fits between the sound rows on either side;
or into the segment that was made for it, if the log went on without it (`lost_offsets`).
"""

from __future__ import annotations

import errno
from enum import Enum

from xxhash import xxh3_128_digest

from tidelog.model.batch_header import BatchHeader, verify_batch
from tidelog.model.errors import OffsetOutOfRange
from tidelog.model.ports import Buffer
from tidelog.storage.log_reader import LogReader
from tidelog.storage.log_state import LogState
from tidelog.storage.lost_offsets import bring_back
from tidelog.storage.row_repair import end_of, mend_rows, row_gaps, tail_before
from tidelog.storage.rows import Row, RowCodec, Tail
from tidelog.storage.segment import Damage, Segment


class Repair(Enum):
    """The outcome of a repair: repaired, or the reason why not."""

    DONE = "done"
    """The batch was put back in its place and can be read."""
    NOT_NEEDED = "not needed"
    """The batch in the log is undamaged."""
    DIFFERENT = "different"
    """The row in the catalog (the segment's index file) names another batch. Either log may be the one that has to
    change; leader epochs decide which."""
    UNKNOWN = "unknown"
    """It is not known which batch belongs there: its row in the catalog (the segment's index file) is lost, too."""


def repair_batch(
    state: LogState, reader: LogReader, data: Buffer, *, belongs_there: bool = False
) -> tuple[Repair, Damage | None]:
    """Repairs a log with a copy of one batch. Returns the outcome, and the offsets that can be read now. With
    `belongs_there` the caller guarantees that this batch is the one that belongs at its offset, in case the row is
    lost.

    Raises `InvalidBatch`, `OffsetOutOfRange`, `Overloaded`, `OSError`.
    """
    # A peer's word is not taken: bytes that are no sound batch are refused before anything is compared.
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
        # First without writing any batch: if only rows are damaged, the log itself tells what they said, and the copy
        # at most proves it.
        mended = mend_rows(codec, segment, tail, (header, data))
        healed = next((gap for gap in mended if gap.start <= header.base_offset < gap.end), None)
        # Neither row nor batch is left, so there is no digest to compare. Only the caller knows that the batch is
        # committed, or stands in the log of the leader that this one follows; without that, a batch of another epoch
        # would be put in its place.
        if healed is None and belongs_there:
            is_filled_in = _fill_in(codec, segment, tail, header, data)
            if is_filled_in:
                mend_rows(codec, segment, tail)
            if is_filled_in or bring_back(state, segment, header, data):
                healed = Damage(header.base_offset, header.next_offset, "repaired")
        return (Repair.DONE if healed else Repair.UNKNOWN), healed
    # The digest covers offset and epoch as well. A copy with another one is another batch, whatever offset it claims.
    if entry.digest != xxh3_128_digest(data):
        return Repair.DIFFERENT, None
    healed = Damage(entry.base_offset, entry.next_offset, "repaired")
    # A batch that reads as it should is not written over, not even with equal bytes: a torn write would damage it.
    if not segment.holds(entry):
        _put_back(segment, entry, data)
        return Repair.DONE, healed
    if entry.sequence < segment.first_sequence + segment.body_slot:  # made from the batch: it has no row of its own
        mend_rows(codec, segment, tail)
    return Repair.NOT_NEEDED, healed


def _put_back(segment: Segment, row: Row, data: Buffer) -> None:
    file = segment.log
    # In place, and of exactly the old length, as the digest says. A crash half-way leaves a damaged batch where there
    # was one, with its row untouched.
    file.pwritev([data], row.file_position)
    file.sync()
    # Read back by this process, so from the page cache perhaps: it proves that the right bytes went to the right
    # position, and the fsync that they are on the disk.
    if not segment.holds(row):
        raise OSError(errno.EIO, "a batch that was written back does not read as written", segment.log_path)


def _fill_in(codec: RowCodec, segment: Segment, tail: Tail, header: BatchHeader, data: Buffer) -> bool:
    """Writes a committed batch where both it and its row are lost, behind the last sound batch before it. Returns False
    if its offset, epoch or size does not fit there."""
    for gap in row_gaps(segment):
        gap_tail = tail_before(segment, gap, tail)
        end_offset, end_position = end_of(segment, gap)
        # Sound batches at the start of the gap stay where they are: the lost one lies behind them.
        for row in segment.walk(gap_tail.offset, gap_tail.file_position, end_position, gap_tail.epoch):
            gap_tail = gap_tail._replace(offset=row.next_offset, file_position=row.end_position, epoch=row.epoch)
        # Epochs never fall in a log, so this batch's must lie between those of its neighbours.
        epoch_max = header.leader_epoch if gap.following is None else gap.following.epoch
        ends = (header.next_offset, gap_tail.file_position + header.size)
        # It ends just where the next sound row begins, or leaves both offsets and bytes for batches between. Anything
        # else would write into a sound batch.
        fits = ends == (end_offset, end_position) or (ends[0] < end_offset and ends[1] < end_position)
        if gap_tail.offset == header.base_offset and fits and gap_tail.epoch <= header.leader_epoch <= epoch_max:
            segment.log.pwritev([data], gap_tail.file_position)
            segment.log.sync()
            return True
    return False
