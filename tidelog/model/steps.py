"""Work that is too much to be done in one go, as a generator of steps: the work is pure, and whoever drives it decides
when it goes on.

A generator yields `None` where a slice ends: it has done some milliseconds of work, `SLICE_BYTES` or `SLICE_RECORDS` or
whatever costs as much, and others may have their turn. It yields a call where a library does the work without the
interpreter's lock, and is sent what the call returned. What it returns is the outcome. Slices are measured in work and
not in time, so that they are the same on every machine and in every run of the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

S = TypeVar("S")
T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any] | None, Any, T]

SLICE_BYTES: Final = 256 << 10
SLICE_RECORDS: Final = 1_000
"""A slice is as many records, or bytes of them, as are opened and written as JSON in about 3 ms."""
AWAY_BYTES: Final = 64 << 10
"""Codecs that are given more than this, or give more, do it away from the loop."""


class Meter:
    """Counts what has been done since the last slice ended."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0

    def is_over(self, records: int, size: int) -> bool:
        """Counts work that was done; True if the slice ends with it, and a new one begins."""
        self._records += records
        self._bytes += size
        if self._records < SLICE_RECORDS and self._bytes < SLICE_BYTES:
            return False
        self._records = self._bytes = 0
        return True


def mapped_slices(call: Callable[[S], T], items: Sequence[S]) -> Steps[list[T]]:
    """Returns what the call makes of each of the items."""
    made: list[T] = []
    for start in range(0, len(items), SLICE_RECORDS):
        if start:
            yield None
        made += map(call, items[start : start + SLICE_RECORDS])
    return made


def drive(steps: Steps[T]) -> T:
    """Does all steps at once, here: for whoever holds up nobody."""
    try:
        step = next(steps)
        while True:
            step = steps.send(None if step is None else step())
    except StopIteration as end:
        outcome: T = end.value
        return outcome
