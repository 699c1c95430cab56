"""Offsets that are committed, but whose batches no replica could read when this log had to go on: a LOST row in the
catalog stands for them.

The log goes on behind them, and reads of them fail as damaged. The LOST row is the last one of its segment, and mostly
the only one with offsets: the log is rolled before and after it. Only where an opening found neither batches nor rows
at the end of the log, the LOST row follows the batches of that segment, and their damaged bytes. So if a copy turns up
after all, the file has room for it; and the catalog for a row of each batch, since the next segment leaves out as many
row sequences as there are offsets.

A copy of the committed batch at the first lost offset is written behind the row before, and synced. Then its row is
written in place of the LOST row, with a new LOST row for the offsets still lost; the segment's other notes and its seal
follow. A crash on the way leaves the LOST row, or damaged rows beside a sound batch, which the next repair makes again.
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
    """The end of the batch before the LOST row, as a position in the log file."""
    behind: list[Row]
    """The rows behind the LOST row: marks, and the seal."""


def bring_back(state: LogState, segment: Segment, header: BatchHeader, data: Buffer) -> bool:
    """Writes a committed batch into a segment of lost offsets. Returns False if it is not the batch of the first lost
    offset, or if there is no room for its row. Raises `OSError`, `Overloaded`."""
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
    """Returns the segment's LOST row, if the row before it and all rows behind it are sound, and none of these is of a
    batch; else None."""
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
    """Returns the number of free row sequences between this segment and the next one."""
    index = state.segments.index(segment)
    return state.segments[index + 1].first_sequence - segment.next_sequence


def _rows(state: LogState, lost_row: _LostRow, header: BatchHeader, data: Buffer) -> list[Row]:
    """Returns the rows that replace the LOST row and those behind it, once this batch is back."""
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
