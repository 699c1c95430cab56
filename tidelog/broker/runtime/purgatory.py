"""Requests that wait for a high watermark to move: Kafka's purgatory, without its timer wheel.

A waiter registers one future with each partition it watches; the partition completes them all when its high watermark
moves, and the waiter checks its condition again. The number of waiters is bounded, and each has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tidelog.model.errors import Overloaded

WAITERS_MAX = 10_000


class Watchers:
    """The requests that wait for one partition, in the order of arrival."""

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}

    def add(self, future: asyncio.Future[None]) -> None:
        self._futures[future] = None

    def discard(self, future: asyncio.Future[None]) -> None:
        self._futures.pop(future, None)

    async def wait(self) -> None:
        """Returns when the waiting requests are woken next."""
        future = asyncio.get_running_loop().create_future()
        self.add(future)
        try:
            await future
        finally:
            self.discard(future)

    def wake_all(self) -> None:
        """Wakes all waiting requests, so that they check their conditions again."""
        if not self._futures:
            return
        futures, self._futures = self._futures, {}
        for future in futures:
            if not future.done():
                future.set_result(None)


class Purgatory:
    """The waiting reads of one broker: each waits until a partition changes, or for its deadline."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self.waiting = 0

    async def wait(self, watched: Iterable[Watchers], is_ready: Callable[[], bool], deadline_s: float | None) -> None:
        """Returns when `is_ready()`, called whenever a watched partition changes, is True, or at the deadline (loop
        time), which is None if the caller ends the wait itself.

        Raises `Overloaded` if too many reads wait already.
        """
        loop = asyncio.get_running_loop()
        if is_ready() or (deadline_s is not None and loop.time() >= deadline_s):
            return
        if self.waiting >= self._waiters_max:
            raise Overloaded(f"{self.waiting} reads are waiting for data already; try again later")
        watched = list(watched)
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline_s):
                while not is_ready():
                    await self._wait_once(loop.create_future(), watched)
        except TimeoutError:
            return
        finally:
            self.waiting -= 1

    async def _wait_once(self, future: asyncio.Future[None], watched: list[Watchers]) -> None:
        for watchers in watched:
            watchers.add(future)
        try:
            await future
        finally:
            for watchers in watched:
                watchers.discard(future)
