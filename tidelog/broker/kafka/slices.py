"""`Slices`: requests with many entries are served in slices, between which the event loop serves other connections.

A client may name 20,000 partitions in one request, each of which takes a few microseconds. Also, thousands of requests,
or megabytes, may arrive in one iteration of the event loop: `Turn` counts these.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from tidelog.broker.face.work import HeavyWork
from tidelog.model.steps import Steps

T = TypeVar("T")

ENTRIES: Final = 250
"""Number of entries of a request that are served before other connections have their turn: 2 to 5 ms of work."""


TURN_REQUESTS: Final = 32
"""Number of requests begun in one iteration of the event loop, after which each connection may begin only one more."""
TURN_BYTES: Final = 4 << 20
"""Bytes of records read in one iteration of the event loop, after which no more are read from logs in it."""


class Turn:
    """The requests and bytes that one listener has served in this iteration of the event loop."""

    __slots__ = ("_bytes", "_is_counted", "_requests")

    def __init__(self) -> None:
        self._requests = self._bytes = 0
        self._is_counted = False

    def ends_with_request(self) -> bool:
        """Counts a request that a connection has begun. Returns True if the connection must wait for the next iteration
        of the event loop before it begins another one."""
        self._requests += 1
        if not self._is_counted:
            self._count()
        return self._requests >= TURN_REQUESTS

    @property
    def has_many_bytes(self) -> bool:
        """True if no more records may be read in this iteration of the event loop."""
        return self._bytes >= TURN_BYTES

    def count(self, *, size: int) -> None:
        """Adds bytes of records that were read."""
        self._bytes += size
        if not self._is_counted:
            self._count()

    def _count(self) -> None:
        self._is_counted = True
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._requests = self._bytes = 0
        self._is_counted = False


class Slices:
    """The count of entries served in the current slice of one request."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def end_with(self, count: int) -> bool:
        """Counts served entries; returns True if the slice ends with them, so that other connections have their
        turn."""
        self._count += count
        if self._count < ENTRIES:
            return False
        self._count = 0
        return True

    async def served(self, count: int) -> None:
        """Counts served entries; at the end of a slice yields to other tasks of the event loop."""
        if self.end_with(count):
            await asyncio.sleep(0)


async def finished(work: HeavyWork, steps: Steps[T]) -> T:
    """Runs the generator `steps` to its end and returns its result. The first slice of work (until its first yield)
    runs at once, since most requests have only one; `work` runs the others, between other tasks of the event loop."""
    try:
        next(steps)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    return await work.finish(steps)
