"""Kafka's retention rules as a pure function: the segments that may be deleted.

A segment is deleted whole, oldest first, and only if all of it is below the high watermark. By time: its newest record
is older than `retention_ms`. By size: the log without it still has at least `retention_bytes`.

A segment without a timestamp (its records have none, or are lost on this disk) has no age: it stays as long as the
segment after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentSummary(NamedTuple):
    """The properties of a segment that retention needs; `max_timestamp` is -1 if it holds none."""

    base_offset: int
    end_offset: int
    log_bytes: int
    max_timestamp: int


def retained_from(
    segments: Sequence[SegmentSummary],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    high_watermark: int,
) -> int:
    """Returns the new log start offset: the base offset of the first segment that stays.

    A limit of -1 means no limit. The last segment can be deleted, too (the result is its end offset), but not by size.
    """
    # In bytes; as long as it is positive, a segment that is no larger may go, and `retention_bytes` are left without
    # it.
    excess = sum(segment.log_bytes for segment in segments) - retention_bytes if retention_bytes >= 0 else -1
    start = segments[0].base_offset
    for index, segment in enumerate(segments):
        # What is not committed is not to be deleted: a later leader may lack it, and the logs would begin at different
        # offsets.
        if segment.end_offset > high_watermark:
            break
        # By the newest record, not the oldest: a segment goes whole, and none of its records may go early.
        is_old = retention_ms >= 0 and 0 <= segment.max_timestamp < now_ms - retention_ms
        is_excess = segment.log_bytes <= excess and index < len(segments) - 1
        if is_old or is_excess:
            excess -= segment.log_bytes
            start = segment.end_offset
        # A segment with an age that stays keeps all behind it, since a log has no holes. One without an age waits for
        # the next: if that one goes, both do.
        elif segment.max_timestamp >= 0:
            break
    return start
