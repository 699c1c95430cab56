"""Reading and checking all of a log: `tidelog log verify`.

Never changes anything. The log may be in use: each step reads it as it is at that time, so it may be
appended to, rolled, deleted from and truncated between two steps. A step reads at most about a mebibyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.segment import Damage, Segment

STEP_BYTES = 1 << 20
STEP_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of a verification, and what its last step found."""

    next_offset: int
    bytes_done: int
    bytes_total: int
    """Size of all segments when the verification began, in bytes."""
    bad_rows: int = 0
    """Rows of catalogs (the segments' index files) that do not verify. No loss by itself: their content can be found in
    the batches."""
    damage: Damage | None = None
    """Offsets that are lost on this disk; None if the step found none."""


def verify(log: PartitionLog) -> Iterator[Step]:
    """Verifies every catalog row and every batch that is durable now, and yields the progress after each step."""
    offset, end = log.log_start_offset, log.durable_offset
    done, total = 0, sum(segment.log_bytes for segment in log.segments)
    segment: Segment | None = None
    while offset < end:
        # Retention may have deleted since the last step: what is gone is not missing.
        offset = max(offset, log.log_start_offset)
        # Asked for anew in each step, as the log may have been rolled or truncated between two of them.
        part = next(log.parts(offset))
        if isinstance(part, Segment) and part is not segment:
            segment = part
            yield from (Step(offset, done, total, bad_rows) for bad_rows in _bad_rows(part))
            continue
        extent = log.extent(offset, STEP_BYTES, end)
        done, offset = done + len(extent.data), extent.next_offset
        if extent.damage is not None and not extent.data:
            offset = extent.damage.end
        elif not extent.data:  # truncated meanwhile
            return
        yield Step(offset, done, total, damage=None if extent.data else extent.damage)


def _bad_rows(segment: Segment) -> Iterator[int]:
    """Yields the number of bad rows, for some thousand rows at a time."""
    for slot in range(0, segment.slots, STEP_ROWS):
        yield segment.count_bad_rows(slot, min(STEP_ROWS, segment.slots - slot))
