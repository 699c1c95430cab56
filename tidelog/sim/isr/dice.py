"""Random numbers of one step of a scenario, drawn from the step's own seed, so that steps can be left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MULTIPLIER, INCREMENT, MASK = 6364136223846793005, 1442695040888963407, (1 << 64) - 1
"""Constants of Knuth's linear congruential generator (MMIX); its upper bits are used."""


class Dice:
    """Cheap random generator for one step: a run makes hundreds of them."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = (seed * MULTIPLIER + INCREMENT) & MASK

    def below(self, end: int) -> int:
        """Draws a number from 0 to `end` - 1."""
        self._state = (self._state * MULTIPLIER + INCREMENT) & MASK
        return (self._state >> 33) % end

    def between(self, low: int, high: int) -> int:
        """Draws a number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self.below(1_000_000) < probability * 1_000_000

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]
