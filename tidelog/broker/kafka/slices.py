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
"""The number of requests that are begun in one turn of the event loop; beyond it, each connection begins only one."""
TURN_BYTES: Final = 4 << 20
"""The bytes of records after which no further request reads from logs in this turn of the event loop."""


class Turn:
    """The number of requests and bytes that one listener has served in this turn of the event loop."""

    __slots__ = ("_bytes", "_is_counted", "_requests")

    def __init__(self) -> None:
        self._requests = self._bytes = 0
        self._is_counted = False

    @property
    def has_many_requests(self) -> bool:
        """True if a connection that has begun a request in this turn of the event loop has to wait for the next one."""
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
    """The number of entries of one request that were served in its current slice."""

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
    """Runs steps to their end. The first slice is run at once, since most requests have only one; further slices are
    left to `work`. Returns the outcome of the steps; raises what they raise."""
    try:
        next(steps)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    return await work.finish(steps)
