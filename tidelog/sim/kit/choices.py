"""Choices of what a power cut leaves behind on a simulated disk.

The crash model of `tidelog.sim.kit.disk` asks three questions and never draws a number itself, so that the same model
serves both kinds of search: `RandomChoices` makes one state per seed, for long runs, and the tests enumerate every
state that there is after a short one (`tests/every_crash.py`).
"""

from __future__ import annotations

import random
from typing import Protocol


class CrashChoices(Protocol):
    """Decides what survives one power cut. `sequence` is the position of an unsynced change in the order of all of
    them."""

    def survives(self, sequence: int) -> bool:
        """Returns True if this change of a name or of a length reaches the disk."""

    def sectors(self, sequence: int, count: int) -> int:
        """Returns which of the `count` sectors of this write reach the disk: a mask, lowest bit first."""

    def choose(self, count: int) -> int:
        """Draws a number from 0 to `count` - 1."""


class RandomChoices:
    """Choices of one power cut, drawn from a seeded generator; `first` and `last` bound the sequence numbers of the
    unsynced changes.

    A crash has a *mood*, because independent coin flips alone would hardly ever make the states that real machines
    produce: nothing survived, everything did, or all up to some instant.
    """

    def __init__(self, rng: random.Random, first: int, last: int) -> None:
        self._rng = rng
        mood = rng.randrange(6)
        self._cut = (first, last + 1, rng.randint(first, last + 1))[mood] if mood < 3 else None
        self._survival = (0.2, 0.5, 0.9)[mood - 3]

    def survives(self, sequence: int) -> bool:
        if self._cut is not None:
            return sequence < self._cut
        return self._rng.random() < self._survival

    def sectors(self, sequence: int, count: int) -> int:
        whole = (1 << count) - 1
        if self.survives(sequence):
            return whole
        if count == 1 or (self._cut is not None and sequence != self._cut):
            return 0
        kept = self._rng.randrange(count)
        prefix = (1 << kept) - 1
        return (0, prefix, whole & ~prefix, self._rng.getrandbits(count))[self._rng.randrange(4)]

    def choose(self, count: int) -> int:
        return self._rng.randrange(count)
