"""Reading over the segments of a log: which one holds an offset, and what is missing between them.

Functions over a list of segments, oldest first, from an offset that is not below the log's start. They report damage as
a value; only `PartitionLog` makes an error of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tidelog.storage.segment import Damage, Entry, Extent, Segment


def parts(segments: Sequence[Segment], offset: int) -> Iterator[Segment | Damage]:
    """The segments from the one that holds `offset` on, and a `Damage` wherever the files of one are missing."""
    first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    expected = offset
    for segment in segments[max(first, 0) :]:
        if segment.base_offset > expected:
            yield Damage(expected, segment.base_offset, "segment files are missing")
        yield segment
        expected = max(expected, segment.end_offset)


def entries(segments: Sequence[Segment], offset: int) -> Iterator[Entry]:
    """The batches, as rows, and the damage, from the one that holds `offset` on, in order of offsets."""
    for part in parts(segments, offset):
        if isinstance(part, Damage):
            yield part
        else:
            yield from part.entries(offset)


def read(segments: Sequence[Segment], offset: int, bytes_max: int, end_offset: int) -> Extent:
    """Verified batches of one segment, from the one that holds `offset` on; if there are none, the damage that is there
    instead, or nothing at the end."""
    for part in parts(segments, offset):
        if isinstance(part, Damage):
            return Extent(b"", offset, part if part.start < end_offset else None)
        extent = part.read(offset, bytes_max, end_offset)
        if extent.data or extent.damage is not None or part.end_offset >= end_offset:
            return extent
    return Extent(b"", offset, None)


def has_bytes(segments: Sequence[Segment], offset: int, size: int, end_offset: int) -> bool:
    """True if batches of `size` bytes in all lie between `offset` and `end_offset`, or damage that `read` will find.

    Looks at rows only.
    """
    for entry in entries(segments, offset):
        if isinstance(entry, Damage):
            return entry.start < end_offset
        if entry.next_offset > end_offset:
            return False
        size -= entry.length
        if size <= 0:
            return True
    return False


def first_since(segments: Sequence[Segment], offset: int, timestamp_ms: int) -> Entry | None:
    """The first batch, from the one that holds `offset` on, with a record of that timestamp or later; or the damage
    right before it, where an earlier one may have been."""
    missing: Damage | None = None
    for part in parts(segments, offset):
        if isinstance(part, Damage):
            missing = part
        elif part.max_timestamp < timestamp_ms:
            missing = None
        else:
            entry = missing or part.first_since(timestamp_ms, offset)
            if entry is not None:
                return entry
    return None
