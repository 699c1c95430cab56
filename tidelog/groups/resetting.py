"""Planning of a reset of committed offsets. Pure: computes the new offsets from the request and each partition's
offsets.

As in `kafka-consumer-groups --reset-offsets`, an offset before the log start becomes the log start offset, one beyond
the high watermark becomes the high watermark, and a time after the last record means the high watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.model.errors import UnprocessableBody


class ResetTo(Enum):
    """Targets of an offset reset."""

    EARLIEST = "earliest"
    """The log start offset."""
    LATEST = "latest"
    """The high watermark: only records appended from now on."""
    OFFSET = "offset"
    """The same given offset in each partition."""
    TIMESTAMP = "timestamp"
    """The first record with at least the given timestamp."""
    SHIFT = "shift"
    """The current committed offset plus a number, which may be negative."""


@dataclass(frozen=True, slots=True)
class Reset:
    """A requested reset. `value` is the offset, the time (ms) or the shift; 0 where none is needed."""

    to: ResetTo
    value: int = 0

    @property
    def timestamp_ms(self) -> int | None:
        """The timestamp to look up in each partition; None unless the reset is by timestamp."""
        return self.value if self.to is ResetTo.TIMESTAMP else None


class PartitionOffsets(NamedTuple):
    """Offsets of a partition. `current` is the group's committed offset, None if it has none; `at_timestamp` the
    first offset with the timestamp that was looked up, None if there is none."""

    topic: str
    partition: int
    current: int | None
    log_start_offset: int
    high_watermark: int
    at_timestamp: int | None = None


class NewOffset(NamedTuple):
    """Committed offset of a partition before and after the reset."""

    topic: str
    partition: int
    current: int | None
    new: int


def plan(reset: Reset, partitions: Sequence[PartitionOffsets]) -> list[NewOffset]:
    """Returns the new committed offsets, in the order of `partitions`. Raises `UnprocessableBody` for a shift in a
    partition without a committed offset."""
    return [
        NewOffset(offsets.topic, offsets.partition, offsets.current, _offset(reset, offsets)) for offsets in partitions
    ]


def _offset(reset: Reset, offsets: PartitionOffsets) -> int:
    offset = _target_offset(reset, offsets)
    # Beyond either end the group would find no record, and go by `auto.offset.reset` instead.
    return max(offsets.log_start_offset, min(offset, offsets.high_watermark))


def _target_offset(reset: Reset, offsets: PartitionOffsets) -> int:
    match reset.to:
        case ResetTo.EARLIEST:
            return offsets.log_start_offset
        case ResetTo.LATEST:
            return offsets.high_watermark
        case ResetTo.OFFSET:
            return reset.value
        case ResetTo.TIMESTAMP:
            # No record is as new as that, so the group goes on with what comes.
            return offsets.high_watermark if offsets.at_timestamp is None else offsets.at_timestamp
        case ResetTo.SHIFT:
            if offsets.current is None:
                raise UnprocessableBody(
                    f"the group has no offset of {offsets.topic}-{offsets.partition} that could be shifted; leave "
                    "the partition out, or reset it to something else"
                )
            return offsets.current + reset.value
