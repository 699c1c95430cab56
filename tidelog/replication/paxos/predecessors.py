"""Predecessors of a value: the few earlier positions that it names, without which it has no effect.

A batch of a topic with `commit.order=key` or `none` need not wait for all values before it, but for those that it
conflicts with (`releases.py`). The value itself tells which these are, because after the death of its leader nothing
but the log can: they are packed into its `Value.begin`, as up to five distances from its own position, which is all the
room that a catalog row on disk has. ParallelRaft's look-behind buffer tells key ranges of the last positions instead,
and every reader compares them again.
"""

from __future__ import annotations

from typing import Final

PREDECESSORS_MAX: Final = 5
"""The number of positions that a value can name."""
_DISTANCE_BITS: Final = 12
DISTANCE_MAX: Final = (1 << _DISTANCE_BITS) - 1
"""The largest distance, in positions, between a value and one that it names."""
_NAMED: Final = 1 << 62
"""The bit of `Value.begin` that tells packed distances from a position; positions never come near it."""


def can_name(position: int, predecessors: list[int]) -> bool:
    """Returns True if a value at `position` can name all of these earlier positions."""
    return len(predecessors) <= PREDECESSORS_MAX and all(position - named <= DISTANCE_MAX for named in predecessors)


def name(position: int, predecessors: list[int]) -> int:
    """Returns the `Value.begin` of a value at `position` that takes effect only if all of these earlier positions have
    values in force; 0 if there are none."""
    assert can_name(position, predecessors)
    begin = _NAMED if predecessors else 0
    for index, named in enumerate(predecessors):
        assert named < position
        begin |= (position - named) << (_DISTANCE_BITS * index)
    return begin


def are_named(begin: int) -> bool:
    """Returns True if this `Value.begin` of a batch names positions; False if it is the first position of an unbroken
    stretch of the log, or 0."""
    return begin >= _NAMED


def named_at(position: int, begin: int) -> list[int]:
    """Returns the positions that a value at `position` names, if `are_named(begin)`. In a value that no correct leader
    proposed, some may be negative."""
    distances = (begin >> (_DISTANCE_BITS * index) & DISTANCE_MAX for index in range(PREDECESSORS_MAX))
    return [position - distance for distance in distances if distance]
