"""The offsets of one partition that were handed out to members: disjoint ranges, ascending."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class Coverage:
    """The ranges of offsets that were handed out to members. Offsets within a range that belong to no record count as
    handed out."""

    stretches: list[tuple[int, int]] = field(default_factory=list)
    """Ranges as (begin, end), end exclusive."""

    def add(self, begin: int, end: int) -> None:
        assert begin <= end, (begin, end)
        apart = [one for one in self.stretches if one[1] < begin or one[0] > end]
        touched = [one for one in self.stretches if one not in apart]
        whole = min([begin, *(one[0] for one in touched)]), max([end, *(one[1] for one in touched)])
        self.stretches = sorted([*apart, whole])

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self.stretches, offset, key=lambda stretch: stretch[0]) - 1
        return index >= 0 and offset < self.stretches[index][1]

    def reach(self, begin: int = 0) -> int:
        """Returns the first offset from `begin` on that was not handed out."""
        return next((end for start, end in self.stretches if start <= begin < end), begin)
