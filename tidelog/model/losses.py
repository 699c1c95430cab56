"""Accepted losses: ranges of offsets that an operator has given up, since no disk holds their records any more.

Readers skip such a range, even if a good copy turns up later: otherwise two readers of one offset would see different
logs. The statements are the audit record: they say what each replica answered when the range was given up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tidelog.model.wire_numbers import Int64

LOSSES_MAX = 1_000
"""Maximum ranges kept for one partition, with their statements. A partition with more damage is lost as a whole."""


class LossStatement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The report of one replica before something was given up. About a range of offsets its status is a word such as
    `damaged`, `missing` or `unreachable`; before an unclean recovery it is a phrase about its log and its vote."""

    node_id: Int64
    status: str


@dataclass(frozen=True, slots=True)
class AcceptedLoss:
    """The offsets [start, end) of a partition, which were given up as lost in one decision."""

    start: int
    end: int
    at_ms: int
    by: str
    """Principal that gave the command; `anonymous` without authentication."""
    via: int
    """Node id of the broker that received the command."""
    statements: tuple[LossStatement, ...] = ()
    """The reports of the replicas about these offsets, in order of node ids."""
    digests: tuple[str, ...] = ()
    """Digests of the lost batches, in hexadecimal, as far as a row of a replica's catalog (index file) still names
    them."""


class LostRanges:
    """The accepted losses of one partition for readers: disjoint ranges in order, adjacent ones joined."""

    __slots__ = ("_ranges",)

    def __init__(self, losses: Iterable[AcceptedLoss] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        for loss in losses:
            if self._ranges and self._ranges[-1][1] == loss.start:
                self._ranges[-1] = (self._ranges[-1][0], loss.end)
            else:
                self._ranges.append((loss.start, loss.end))

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def from_offset(self, offset: int) -> tuple[int, int] | None:
        """Returns the first range that ends after `offset`; None if nothing is lost from there on."""
        at = bisect_right(self._ranges, offset, key=_end)
        return self._ranges[at] if at < len(self._ranges) else None

    def past(self, offset: int) -> int:
        """Returns the first offset from `offset` on that is not lost."""
        lost = self.from_offset(offset)
        return offset if lost is None or lost[0] > offset else lost[1]

    def covers(self, start: int, end: int) -> bool:
        """Returns True if all of [start, end) is lost."""
        return self.past(start) >= end

    def rest(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of [start, end) that are not lost."""
        while start < end:
            lost = self.from_offset(start)
            if lost is None or lost[0] >= end:
                yield start, end
                return
            if start < lost[0]:
                yield start, lost[0]
            start = lost[1]


def with_loss(losses: Sequence[AcceptedLoss], loss: AcceptedLoss) -> tuple[AcceptedLoss, ...]:
    """Returns the losses with a new one. Where it overlaps earlier losses, the earlier records stay and only the rest
    is added."""
    parts = [replace(loss, start=start, end=end) for start, end in LostRanges(losses).rest(loss.start, loss.end)]
    return tuple(sorted((*losses, *parts), key=lambda accepted: accepted.start))


def _end(lost: tuple[int, int]) -> int:
    return lost[1]
