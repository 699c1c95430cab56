"""Long computations as generators of steps, so that the event loop can run other tasks in between. The work itself is
pure; the caller that drives the generator decides when it goes on.

A generator yields `None` at the end of a slice: some milliseconds of work, such as `SLICE_BYTES` bytes or
`SLICE_RECORDS` records. It yields a function where a library works without the interpreter's lock; the caller calls it,
perhaps in a thread, and sends its result back. The generator's return value is the result. Slices are measured in work
and not in time, so they are the same on every machine and in every run of the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

S = TypeVar("S")
T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any] | None, Any, T]

SLICE_BYTES: Final = 256 << 10
SLICE_RECORDS: Final = 1_000
"""Records of one slice. To decode so many, or `SLICE_BYTES` bytes of them, and to write them as JSON takes about 3
ms."""
AWAY_BYTES: Final = 64 << 10
"""Bytes of input or output above which codecs run in a thread."""


class Meter:
    """Counts work (records and bytes) and says when a slice of it, some milliseconds of work, is done."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0

    def is_over(self, records: int, size: int) -> bool:
        """Counts work that was done. Returns True if that ends the slice; then a new one begins."""
        self._records += records
        self._bytes += size
        if self._records < SLICE_RECORDS and self._bytes < SLICE_BYTES:
            return False
        self._records = self._bytes = 0
        return True


def mapped_slices(call: Callable[[S], T], items: Sequence[S]) -> Steps[list[T]]:
    """Computes `call` for each item, and yields to the caller after each slice of the work; the generator's result is
    the list of results."""
    made: list[T] = []
    for start in range(0, len(items), SLICE_RECORDS):
        if start:
            yield None
        made += map(call, items[start : start + SLICE_RECORDS])
    return made


def drive(steps: Steps[T]) -> T:
    """Runs all steps at once in the calling thread, and returns the result."""
    try:
        step = next(steps)
        while True:
            step = steps.send(None if step is None else step())
    except StopIteration as end:
        outcome: T = end.value
        return outcome
