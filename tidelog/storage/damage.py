"""The damaged offset ranges that a log knows of, until they are repaired, truncated or given up.

Offsets that an operator has given up (`LostRanges`) do not count as damaged: no copies of them are looked for, and
reads skip them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from tidelog.model.losses import LostRanges
from tidelog.storage.segment import Damage

RANGES_MAX = 4_096
"""The largest number of damaged ranges that are remembered. Further ones are found again by the next scrub."""


class DamageList:
    """Damaged ranges of offsets, ordered and without overlap. A newer finding replaces older ones about the same
    offsets."""

    def __init__(self) -> None:
        self._ranges: list[Damage] = []
        self.lost = LostRanges()
        """The offset ranges that an operator has given up."""
        self.on_change: Callable[[], None] = lambda: None
        """Listener that is called when a damaged range is added or changed."""

    def ranges(self) -> list[Damage]:
        """Returns the ranges that opening, reading or scrubbing found damaged, in order of offsets."""
        return list(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def give_up(self, lost: LostRanges) -> None:
        """Replaces the ranges that are given up, and removes them from the damaged ones."""
        self.lost = lost
        for start, end in lost:
            self.forget(start, end)

    def note(self, damage: Damage) -> None:
        """Adds a damaged range, without the offsets that are given up. It replaces what was known about its offsets.
        Calls `on_change` if that is a change; adds nothing if the list is full."""
        for start, end in self.lost.rest(damage.start, damage.end):
            self._note(damage if (start, end) == (damage.start, damage.end) else replace(damage, start=start, end=end))

    def _note(self, damage: Damage) -> None:
        index = bisect_left(self._ranges, damage.start, key=lambda damaged: damaged.start)
        # Every read of a damaged batch reports it again: only a change is news, or each read would start a repair.
        if index < len(self._ranges) and self._ranges[index] == damage:
            return
        self.forget(damage.start, damage.end)
        index = bisect_left(self._ranges, damage.start, key=lambda damaged: damaged.start)
        # Beyond the bound nothing is lost by forgetting: what is read or scrubbed again is found again.
        if len(self._ranges) < RANGES_MAX:
            self._ranges.insert(index, damage)
            self.on_change()

    def forget(self, start: int, end: int) -> None:
        """Removes offsets [start, end) from the damaged ranges: they can be read now, or are to be checked again."""
        self._ranges = [piece for damaged in self._ranges for piece in _without(damaged, start, end)]

    def clip(self, start: int, end: int) -> None:
        """Removes the ranges that lie wholly outside of [start, end), the offsets that the log holds now. A range that
        begins before `start` and reaches beyond it stays as it is."""
        self._ranges = [damaged for damaged in self._ranges if damaged.end > start and damaged.start < end]


def _without(damage: Damage, start: int, end: int) -> list[Damage]:
    if end <= damage.start or start >= damage.end:
        return [damage]
    # A piece has no epoch: `start` and `epoch` together name one whole batch, and half of one is no batch's name.
    pieces = []
    if damage.start < start:
        pieces.append(Damage(damage.start, start, damage.reason))
    if end < damage.end:
        pieces.append(Damage(end, damage.end, damage.reason))
    return pieces
