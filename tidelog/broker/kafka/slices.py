"""`Slices`: requests with many entries are served in slices, between which other connections have their turns.

A client may name twenty thousand partitions in one request, and for each of them a few microseconds of work are due.
The requests of many clients may come in the same turn, thousands of them, or for megabytes each: `Turn` counts these.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from tidelog.broker.face.work import HeavyWork
from tidelog.model.steps import Steps

T = TypeVar("T")

ENTRIES: Final = 250
"""The number of entries in a slice: 2 to 5 ms of work."""


TURN_REQUESTS: Final = 32
"""So many requests are begun in one turn of the loop, and beyond that one of each connection."""
TURN_BYTES: Final = 4 << 20
"""Records that are read in one turn, but for those of the request that passes this."""


class Turn:
    """Counts what one listener does for all its clients in this turn of the event loop."""

    __slots__ = ("_bytes", "_is_counted", "_requests")

    def __init__(self) -> None:
        self._requests = self._bytes = 0
        self._is_counted = False

    @property
    def has_many_requests(self) -> bool:
        """True if a connection that has had its turn waits for the next one."""
        return self._requests >= TURN_REQUESTS

    @property
    def has_many_bytes(self) -> bool:
        """True if nothing more is to be read from logs before the next turn."""
        return self._bytes >= TURN_BYTES

    def count(self, *, requests: int = 0, size: int = 0) -> None:
        """Counts requests that were begun, or bytes that were read."""
        self._requests += requests
        self._bytes += size
        if not self._is_counted:
            self._is_counted = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._requests = self._bytes = 0
        self._is_counted = False


class Slices:
    """Counts the entries of one request."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def end_with(self, count: int) -> bool:
        """Counts entries that were served; True if a slice ends with them."""
        self._count += count
        if self._count < ENTRIES:
            return False
        self._count = 0
        return True

    async def served(self, count: int) -> None:
        """Counts entries that were served; returns when others had their turn, if a slice ends with them."""
        if self.end_with(count):
            await asyncio.sleep(0)


async def finished(work: HeavyWork, steps: Steps[T]) -> T:
    """Does steps that are mostly done with their first slice. Returns their outcome; raises what they raise."""
    try:
        next(steps)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    return await work.finish(steps)
