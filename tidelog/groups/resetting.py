"""Plans a reset of committed offsets. Pure: from what was asked for, and what is known of each partition, to the new
offsets.

As `kafka-consumer-groups --reset-offsets`: a committed offset before the partition's first record becomes the first
one, a committed offset behind its high watermark becomes the high watermark, and a time after the last record is the
high watermark, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.model.errors import UnprocessableBody


class ResetTo(Enum):
    """The offset that a reset goes to."""

    EARLIEST = "earliest"
    """The first record there is."""
    LATEST = "latest"
    """The high watermark: only what comes from now on."""
    OFFSET = "offset"
    """The same offset in each partition."""
    TIMESTAMP = "timestamp"
    """The first record that is not older than a time."""
    SHIFT = "shift"
    """So many offsets on from where the group is, or back."""


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset as it was asked for. `value` is the offset, the time (ms), or by how much; 0 where nothing is needed."""

    to: ResetTo
    value: int = 0

    @property
    def timestamp_ms(self) -> int | None:
        """The time to look for in each partition, if it takes one."""
        return self.value if self.to is ResetTo.TIMESTAMP else None


class PartitionOffsets(NamedTuple):
    """The offsets of a partition. `current` is the group's committed offset, None if it has none; `found` the first
    offset of the time that was looked for, None if there is none."""

    topic: str
    partition: int
    current: int | None
    log_start_offset: int
    high_watermark: int
    found: int | None = None


class NewOffset(NamedTuple):
    """A partition's committed offset before and after."""

    topic: str
    partition: int
    current: int | None
    new: int


def plan(reset: Reset, standings: Sequence[PartitionOffsets]) -> list[NewOffset]:
    """Returns the new committed offsets, in the order given. Raises `UnprocessableBody` if one cannot be shifted,
    having none."""
    return [
        NewOffset(standing.topic, standing.partition, standing.current, _offset(reset, standing))
        for standing in standings
    ]


def _offset(reset: Reset, standing: PartitionOffsets) -> int:
    offset = _offset_asked_for(reset, standing)
    # Beyond either end the group would find no record, and go by `auto.offset.reset` instead.
    return max(standing.log_start_offset, min(offset, standing.high_watermark))


def _offset_asked_for(reset: Reset, standing: PartitionOffsets) -> int:
    match reset.to:
        case ResetTo.EARLIEST:
            return standing.log_start_offset
        case ResetTo.LATEST:
            return standing.high_watermark
        case ResetTo.OFFSET:
            return reset.value
        case ResetTo.TIMESTAMP:
            # No record is as new as that, so the group goes on with what comes.
            return standing.high_watermark if standing.found is None else standing.found
        case ResetTo.SHIFT:
            if standing.current is None:
                raise UnprocessableBody(
                    f"the group has no offset of {standing.topic}-{standing.partition} that could be shifted; leave "
                    "the partition out, or reset it to something else"
                )
            return standing.current + reset.value
