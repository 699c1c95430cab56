"""Damaged catalog rows made again in place, where the log shows what they said.

The log alone shows it if the batches between the sound rows on either side follow each other without a gap; else
another replica's copy of a batch can show it, if it is, byte for byte, what the log holds at that place.

Rows that described no batch are replaced by rows that cannot mislead: a SEAL at the end of a sealed segment; in a Paxos
journal a NAME before each entry that may have had one, from the head of the entry; else a MARK. The header is written
again from what is known of an open segment.

The content of a damaged checkpoint is not made up, since the producers' states have changed since. An opening reads it
from an older or a later segment. The header is changed to say that there is no checkpoint, once a later segment has
another one (`Mender.renew_checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tidelog.model.batch_header import BatchHeader
from tidelog.model.ports import Buffer
from tidelog.storage.rows import NO_TIMESTAMP, ROW_BYTES, HeaderRow, Kind, Row, RowCodec, Tail
from tidelog.storage.segment import Damage, Segment
from tidelog.storage.slot_entries import EntryKind, Head, decode_entry, name_for


class RowGap(NamedTuple):
    """A run of damaged catalog rows between two sound ones, or before the end of a segment."""

    slot: int
    size: int
    last: Row | None
    following: Row | None


def mend_rows(
    codec: RowCodec, segment: Segment, tail: Tail, copy: tuple[BatchHeader, Buffer] | None = None
) -> list[Damage]:
    """Makes damaged catalog rows again, durably, where the log shows what they said; returns their offsets.

    `tail` is the end of the log, from which values for the whole log are taken. `copy` is another replica's copy of a
    batch: it may prove that a batch behind skipped offsets belongs there. Raises `OSError` or `Overloaded`.
    """
    # The header first: a row is in its place only by the numbers that it gives.
    has_made_header = _mend_header(codec, segment, tail)
    mended = []
    for gap in list(row_gaps(segment)):
        rows = _rows_for(codec, segment, gap, tail, copy)
        if rows is None:
            continue
        # Only slots of the gap are written: the sound rows beside it are the evidence for what is made here.
        segment.catalog.pwritev([b"".join(map(codec.pack, rows))], gap.slot * ROW_BYTES)
        mended.append(Damage(rows[0].first_offset, rows[-1].next_offset, "row made again"))
    if mended or has_made_header:
        segment.catalog.sync()
    return mended


def _mend_header(codec: RowCodec, segment: Segment, tail: Tail) -> bool:
    """Writes a damaged catalog header again: its content is known as long as the segment is open. It declares a
    checkpoint only if the checkpoint rows are sound; else the next opening reads an older segment's checkpoint. Returns
    True if it wrote."""
    header = codec.parse_header(segment.raw_rows(0, 1))
    if header is not None and header.base_offset == segment.base_offset:
        # The checkpoint of the active segment is not disclaimed: an opening before the next segment has one would find
        # no producers at all.
        return segment.next_sequence < tail.sequence and _disclaim_checkpoint(codec, segment, header)
    items = [codec.parse_checkpoint(segment.raw_rows(slot, 1)) for slot in range(1, segment.body_slot)]
    # Without checkpoint rows, only a log's very first segment has nothing before it to remember.
    has_checkpoint = None not in items if items else segment.first_sequence == 0
    first = tail_before(segment, RowGap(0, 1, None, None), tail)
    is_empty = segment.end_offset == segment.base_offset
    first = first._replace(durable=min(first.durable, first.sequence), epoch=tail.epoch if is_empty else 0)
    made = codec.header(first, len(items), has_checkpoint=has_checkpoint)
    segment.catalog.pwritev([made], 0)
    return True


def _disclaim_checkpoint(codec: RowCodec, segment: Segment, header: HeaderRow) -> bool:
    """Rewrites the header to say that there is no checkpoint, if the checkpoint rows are damaged. Returns True if it
    did."""
    if not segment.has_lost_checkpoint:
        return False
    as_it_was = Tail(
        header.sequence, header.durable, header.epoch, header.base_offset, 0, NO_TIMESTAMP, header.log_start_offset
    )
    segment.catalog.pwritev([codec.header(as_it_was, header.checkpoint_rows, has_checkpoint=False)], 0)
    return True


def row_gaps(segment: Segment) -> Iterator[RowGap]:
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


def end_of(segment: Segment, gap: RowGap) -> tuple[int, int]:
    """Returns the end of what the damaged rows described: the offset, and the position in the log file."""
    if gap.following is None:
        return segment.end_offset, segment.log_bytes
    return gap.following.first_offset, gap.following.file_position


def _rows_for(
    codec: RowCodec, segment: Segment, gap: RowGap, tail: Tail, copy: tuple[BatchHeader, Buffer] | None
) -> list[Row] | None:
    """Returns a row for each damaged one; None if the log does not show what they said."""
    gap_tail = tail_before(segment, gap, tail)
    end_offset, end_position = end_of(segment, gap)
    batches = [*_batches_between(codec, segment, gap_tail, end_position, copy)]
    reached = (
        (batches[-1].next_offset, batches[-1].end_position) if batches else (gap_tail.offset, gap_tail.file_position)
    )
    has_seal = gap.following is None and segment.is_sealed
    note_count = gap.size - len(batches) - has_seal
    # The whole gap or nothing. If what the log holds ends short of the next sound row, in offsets or in bytes, a batch
    # is lost there, and rows behind it would get slots that were not theirs.
    if reached != (end_offset, end_position) or note_count < 0:
        return None
    names = _names(segment, gap, batches, note_count)
    made = _RowsInOrder(codec, gap_tail)
    for batch in batches:
        made.add_name(names.get(batch.base_offset))
        made.add(batch)
    # Which notes stood here is not known. A MARK says nothing that its neighbours do not say, whatever it stands for.
    for _ in range(note_count - len(names)):
        made.add_note(Kind.MARK)
    if gap.following is not None:
        made.add_name(names.get(gap.following.base_offset))
    if has_seal:
        made.add_note(Kind.SEAL)
    return made.rows


def _names(segment: Segment, gap: RowGap, batches: list[Row], names_max: int) -> dict[int, bytes]:
    """Returns the contents of at most `names_max` NAME rows, by the offset of the entry that each of them stands
    before.

    It is known how many of the lost rows described no batch, but not how many of those were NAME rows. So entries with
    a value come first, since those that only refer to an earlier value have none. A NAME too many does no harm: it
    repeats what its entry says.
    """
    entries = [*batches, gap.following]
    # The first entry has its name already: that row is sound.
    if gap.last is not None and gap.last.kind == Kind.NAME:
        del entries[0]
    heads = [(row, _head_of(segment, row)) for row in entries if row is not None] if names_max else []
    named = [(head.kind, row.base_offset, name_for(head)) for row, head in heads if head is not None]
    named = sorted(item for item in named if item[2])
    return {offset: name for _, offset, name in named[:names_max]}


def _head_of(segment: Segment, row: Row) -> Head | None:
    """Returns the head of a sound Paxos journal entry that is about a slot; None for any other row, or a
    damaged entry."""
    if row.kind != Kind.BATCH:
        return None
    data = segment.raw_batch(row)
    # Only from a sound entry. A name that is made from rot would be believed when the entry is gone.
    entry = decode_entry(data) if xxh3_128_digest(data) == row.digest else None
    is_slot = entry is not None and entry[0].kind in (EntryKind.SLOT, EntryKind.REFERENCE)
    return entry[0] if entry is not None and is_slot else None


class _RowsInOrder:
    """Rows that replace a run of damaged ones, each numbered and placed behind the one before."""

    def __init__(self, codec: RowCodec, tail: Tail) -> None:
        self._codec = codec
        self._at = tail
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Adds the row of a batch. Later rows have at least its maximum timestamp as their running maximum."""
        newest = max(self._at.running_max_timestamp, row.max_timestamp)
        self._at = self._at._replace(running_max_timestamp=newest)
        self._append(row)

    def add_note(self, kind: Kind) -> None:
        """Adds a row without a batch and without content, such as MARK or SEAL."""
        self._append(self._codec.body(self._codec.note(kind, self._at, start_offset=self._at.log_start_offset)))

    def add_name(self, content: bytes | None) -> None:
        """Adds a NAME row, unless `content` is None."""
        if content is not None:
            self._append(self._codec.body(self._codec.name(self._at, content)))

    def _append(self, row: Row | None) -> None:
        """Adds a row, whose `durable` mark covers no more than the rows before it."""
        assert row is not None
        tail = self._at
        row = row._replace(
            sequence=tail.sequence,
            # A row that vouched for itself, or for rows behind it, would make damage of a torn end at the next opening.
            durable=min(tail.durable, tail.sequence),
            running_max_timestamp=tail.running_max_timestamp,
            start_offset=tail.log_start_offset,
        )
        self.rows.append(row)
        self._at = tail.behind(row)._replace(sequence=tail.sequence + 1)


def tail_before(segment: Segment, gap: RowGap, tail: Tail) -> Tail:
    """Returns the log's end as it was when the first of the damaged rows was written."""
    tail = tail._replace(sequence=segment.first_sequence + gap.slot)
    if gap.last is None:
        # Epoch 0 is below all: without a row before, batches of any epoch may follow.
        return tail._replace(epoch=0, offset=segment.base_offset, file_position=0, running_max_timestamp=NO_TIMESTAMP)
    return tail.behind(gap.last)


def _batches_between(
    codec: RowCodec, segment: Segment, tail: Tail, end_position: int, copy: tuple[BatchHeader, Buffer] | None
) -> Iterator[Row]:
    """Yields rows for the batches in the log file from `tail` on. Across skipped offsets it goes on only if the next
    batch is equal to the copy."""
    while True:
        for row in segment.walk(tail.offset, tail.file_position, end_position, tail.epoch):
            yield row
            tail = tail._replace(epoch=row.epoch, offset=row.next_offset, file_position=row.end_position)
        # Offsets were skipped here, or a batch is lost: the log alone cannot tell. A copy of the batch that lies behind
        # proves that it belongs there, and so that what is before it was skipped.
        proven = _row_of_copy(codec, segment, tail, end_position, copy)
        if proven is None:
            return
        yield proven
        tail = tail._replace(epoch=proven.epoch, offset=proven.next_offset, file_position=proven.end_position)
        copy = None


def _row_of_copy(
    codec: RowCodec, segment: Segment, tail: Tail, end_position: int, copy: tuple[BatchHeader, Buffer] | None
) -> Row | None:
    if copy is None:
        return None
    header, data = copy
    follows = header.base_offset > tail.offset and header.leader_epoch >= tail.epoch
    if not follows or tail.file_position + header.size > end_position:
        return None
    row = codec.body(codec.batch(tail, header, (data,)))
    assert row is not None
    # Byte for byte, by its digest: a batch of another epoch at this position is no proof.
    return row if segment.holds(row) else None
