"""Offsets that are agreed on, and whose batches nobody could read when their turn came: a LOST row keeps them.

The log goes on behind them, and they are damaged from the beginning. The LOST row ends its segment, for the log rolls
behind it. The log has rolled before it as well, unless an opening found neither batch nor row at the end of the log;
there the row follows the batches before, and what is left of its own bytes. So if a copy turns up after all, there is
room for it in the file; and for a row of each batch, since the next segment leaves out as many sequences as there are
offsets.

A copy of the batch that is committed where the LOST row begins is written behind the row before, and synced. Then its
row takes the LOST row's place, with a LOST row for the offsets that are left behind it; the segment's notes and seal
follow. A crash on the way leaves the LOST row, or damaged rows beside a sound batch, as a repair of rows knows them.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model.batch_header import BatchHeader
from tidelog.model.ports import Buffer
from tidelog.storage.log_state import LogState
from tidelog.storage.rows import ROW_BYTES, Kind, Row, Tail
from tidelog.storage.segment import Segment


class _LostRow(NamedTuple):
    slot: int
    row: Row
    position: int
    """The end of the row before in the log's file."""
    behind: list[Row]
    """Notes, and the seal."""


def bring_back(state: LogState, segment: Segment, header: BatchHeader, data: Buffer) -> bool:
    """Puts a committed batch into a segment of lost offsets; False if it is not the first of those that are left there.
    Raises `OSError`, `Overloaded`."""
    lost_row = _find(segment)
    # In the active segment the sequences behind the LOST row belong to rows to come: there would be no slot for another
    # row.
    if lost_row is None or segment is state.active:
        return False
    lost = lost_row.row
    # Only from the front: the copy goes where the batch before it ends. Nobody knows how many bytes lie between that
    # and a later one.
    if header.base_offset != lost.base_offset or header.next_offset > lost.next_offset:
        return False
    # The LOST row's slot goes to the copy. The offsets that are left need a row of their own, whose sequence no row of
    # the next segment may have.
    if header.next_offset < lost.next_offset and _room(state, segment) < 1:
        return False
    segment.log.pwritev([data], lost_row.position)
    # The batch is durable before its row: a crash in between leaves the LOST row, and the offsets as lost as they were.
    segment.log.sync()
    rows = _rows(state, lost_row, header, data)
    segment.catalog.pwritev([b"".join(map(state.files.codec.pack, rows))], lost_row.slot * ROW_BYTES)
    segment.catalog.sync()
    last = rows[-1]
    # The rows behind may have moved by a slot, and readers' hints with them.
    segment.restate(lost_row.slot + len(rows), last.end_position, last.running_max_timestamp)
    if header.next_offset == lost.next_offset:
        segment.log.truncate(last.end_position)  # the damaged bytes go: each of their offsets has its batch again
    return True


def _find(segment: Segment) -> _LostRow | None:
    """Returns the LOST row that only notes follow, if the row before and all up to the segment's end are sound."""
    rows = list(segment.rows(segment.body_slot))
    for index, row in enumerate(rows):
        if row is not None and row.kind == Kind.LOST:
            before = rows[index - 1] if index else None
            # Without the row before nobody knows where its batch ends, and so where the copy belongs.
            if index and before is None:
                return None
            notes = (note for note in rows[index + 1 :] if note is not None)
            behind = [note for note in notes if note.kind not in (Kind.BATCH, Kind.LOST)]
            # Anything but notes behind the LOST row would be written over, by the copy or by the rows that move back.
            is_whole = len(behind) == len(rows) - index - 1 and row.file_position == segment.log_bytes
            position = 0 if before is None else before.end_position
            return _LostRow(segment.body_slot + index, row, position, behind) if is_whole else None
    return None


def _room(state: LogState, segment: Segment) -> int:
    """Returns how many sequences are free behind the segment's rows."""
    index = state.segments.index(segment)
    return state.segments[index + 1].first_sequence - segment.next_sequence


def _rows(state: LogState, lost_row: _LostRow, header: BatchHeader, data: Buffer) -> list[Row]:
    """Returns the rows from the LOST row's slot on, as they are once this batch is back."""
    codec, lost = state.files.codec, lost_row.row
    tail = Tail(
        lost.sequence, lost.durable, lost.epoch, lost.first_offset, lost_row.position, lost.running_max_timestamp,
        lost.start_offset,
    )  # fmt: skip
    batch = codec.body(codec.batch(tail, header, (data,)))
    assert batch is not None
    rows = [batch]
    if header.next_offset < lost.next_offset:
        offsets_left = lost.next_offset - header.next_offset
        rows.append(lost._replace(base_offset=header.next_offset, last_offset_delta=offsets_left - 1, skipped=0))
    rows += lost_row.behind
    return [
        row._replace(
            # Sequences go with slots. `durable` stays as it was: each row vouched for what lay before it, and that is
            # there.
            sequence=lost.sequence + number,
            epoch=lost.epoch,
            file_position=batch.end_position if number else batch.file_position,
            running_max_timestamp=batch.running_max_timestamp,
        )
        for number, row in enumerate(rows)
    ]
