"""Truncating a log at an offset, so that no batch below it is lost; and removing segments in an order that survives
crashes.

This is simple as long as the catalog rows are sound. Where rows just below the offset are damaged, they do not say
which batches they described, and truncating behind the last sound row would drop good batches. So new rows are made for
the range between that row and the offset: one for each batch that still verifies, and a LOST row for the other offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from tidelog.storage.open_files import OpenFiles
from tidelog.storage.rows import NO_TIMESTAMP, Kind, Row, RowCodec, Tail
from tidelog.storage.segment import Segment
from tidelog.storage.wipe import wipe


class Truncation(NamedTuple):
    """The plan of a truncation: `rows` replace the catalog rows from `slot` on, and the log ends at `tail`."""

    slot: int
    rows: list[bytes]
    tail: Tail


def find_truncation(codec: RowCodec, segment: Segment, offset: int, tail: Tail) -> Truncation:
    """Returns the plan to truncate a segment before the batch that holds `offset`; `tail` is the log's present end, but
    with the leader epoch in force at the segment's start."""
    slot, last, following = _neighbours(segment, offset)
    tail = tail._replace(
        sequence=segment.first_sequence + slot,
        offset=segment.base_offset,
        file_position=0,
        running_max_timestamp=NO_TIMESTAMP,
    )
    # Behind the last sound row, rows do not say what lies there, so the log itself is asked.
    tail = tail if last is None else tail.behind(last)
    end, position = offset, segment.log_bytes
    if following is not None:
        position = following.file_position
        is_within_lost = following.kind == Kind.LOST and offset > following.base_offset
        # A batch goes whole, so the log ends before the one that holds the offset. Lost offsets end anywhere.
        end = offset if is_within_lost else min(offset, following.first_offset)
    rows: list[bytes] = []
    for row in segment.walk(tail.offset, tail.file_position, position, tail.epoch):
        # This batch holds the offset: it goes, and the log ends before it.
        if row.next_offset > end:
            end = min(end, row.base_offset)
            break
        newest = max(tail.running_max_timestamp, row.max_timestamp)
        remade = row._replace(
            sequence=tail.sequence,
            durable=tail.durable,
            running_max_timestamp=newest,
            start_offset=tail.log_start_offset,
        )
        rows.append(codec.pack(remade))
        tail = tail.behind(remade)._replace(sequence=tail.sequence + 1)
    if tail.offset < end:
        tail = tail._replace(file_position=position)
        # Of these offsets nothing is left, and they lie below the truncation: they stay, as lost. A shorter log would
        # give them out again, and could deny what it had acknowledged.
        rows.append(codec.note(Kind.LOST, tail, start_offset=tail.log_start_offset, offsets=end - tail.offset))
        tail = tail._replace(sequence=tail.sequence + 1, offset=end)
    return Truncation(slot, rows, tail)


def _neighbours(segment: Segment, offset: int) -> tuple[int, Row | None, Row | None]:
    """Returns the slot behind the last sound row below `offset`, that row, and the next sound row."""
    last, next_slot = None, segment.body_slot
    for slot, row in enumerate(segment.rows(segment.body_slot), start=segment.body_slot):
        if row is None:
            continue
        if row.kind == Kind.SEAL or row.next_offset > offset:
            return next_slot, last, row
        last, next_slot = row, slot + 1
    return next_slot, last, None


# -- files ------------------------------------------------------------------------------------------------------------


def remove_segment(opened: OpenFiles, segment: Segment) -> None:
    """Removes both files of a segment; the catalog last, since it says which offsets the segment has."""
    for path in (segment.log_path, segment.catalog_path):
        opened.close(path)
        if opened.files.exists(path):
            opened.files.remove(path)


def remove_behind(opened: OpenFiles, directory: str, segments: Sequence[Segment]) -> None:
    """Removes the last segments of a log, the very last first, each step durable before the next. Raises `OSError`."""
    for segment in reversed(segments):
        # The catalog first, as in `Segment.truncate`: half a segment must not look like a damaged one.
        _remove(opened, segment.catalog_path)
        opened.files.sync_dir(directory)
        # As zeros the file has no batch, should its name outlive the next step: a log without a catalog is taken in
        # again, batch by batch.
        _wipe(opened, segment.log_path)
        _remove(opened, segment.log_path)
        opened.files.sync_dir(directory)


def _wipe(opened: OpenFiles, path: str) -> None:
    # A handle of its own: the shared ones belong to the event loop's thread.
    with closing(opened.files.open(path)) as file:
        wipe(file, 0)


def _remove(opened: OpenFiles, path: str) -> None:
    opened.close(path)
    opened.files.remove(path)


def segment_names(opened: OpenFiles, directory: str) -> list[str]:
    """Returns the names of all log and catalog files in a log's directory."""
    names = opened.files.list(directory)
    return [name for name in names if name[20:] in (".log", ".catalog") and name[:20].isdigit()]


def remove_all(opened: OpenFiles, directory: str, *, wipes: bool) -> None:
    """Removes every segment, durably, in any order: `Metainfo.restarts` is set, so that none of them counts. `wipes`
    overwrites the batches first, if their offsets will be used again. Raises `OSError`."""
    for name in segment_names(opened, directory):
        path = f"{directory}/{name}"
        if wipes and name.endswith(".log"):
            _wipe(opened, path)
        _remove(opened, path)
    opened.files.sync_dir(directory)
