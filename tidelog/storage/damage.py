"""The damage that a log knows of, until it is repaired, truncated or given up.

What an operator has given up (`LostRanges`) counts as damaged no more: nobody looks for copies of it, and readers pass
it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from tidelog.model.losses import LostRanges
from tidelog.storage.segment import Damage

RANGES_MAX = 4_096
"""The number of damaged ranges that are remembered. Whoever repairs these, and scrubs again, learns of the rest."""


class DamageList:
    """Damaged ranges in order of offsets; none overlap. The newest finding about an offset counts."""

    def __init__(self) -> None:
        self._ranges: list[Damage] = []
        self.lost = LostRanges()
        """The ranges that are given up."""
        self.on_news: Callable[[], None] = _nobody
        """Called when something is found damaged that was not known to be."""

    def ranges(self) -> list[Damage]:
        """Returns what is known to be damaged, from opening, reading and scrubbing, in order of offsets."""
        return list(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def give_up(self, lost: LostRanges) -> None:
        """Takes other ranges for given up."""
        self.lost = lost
        for start, end in lost:
            self.forget(start, end)

    def note(self, damage: Damage) -> None:
        """Remembers a range, but for what is given up, in the place of what was known about its offsets, if there is
        room, and tells if it is news."""
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
            self.on_news()

    def forget(self, start: int, end: int) -> None:
        """Forgets damage of offsets [start, end), which are sound, or are to be judged anew."""
        self._ranges = [piece for damaged in self._ranges for piece in _without(damaged, start, end)]

    def clip(self, start: int, end: int) -> None:
        """Forgets damage outside of [start, end), which is all that the log holds now. A batch that the start lies
        within is still all of a batch."""
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


def _nobody() -> None:
    """Does nothing: no listener is set yet."""
