"""Requests that wait for a high watermark to move: Kafka's purgatory.

A waiter has a function called by each partition that it watches; the partition calls it when its high watermark moves,
and the waiter checks its condition again. The number of waiting reads is bounded, and each has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tidelog.model.errors import Overloaded

WAITERS_MAX = 10_000


class Watchers:
    """The requests that wait for one partition, in the order of arrival."""

    def __init__(self) -> None:
        self._wakes: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._wakes)

    def add(self, wake: Callable[[], None]) -> None:
        """Has `wake` called at each change of the partition, until `discard`. It must neither raise nor read the
        partition, which is amid its change, but have that done later."""
        self._wakes[wake] = None

    def discard(self, wake: Callable[[], None]) -> None:
        """Has `wake` called no more. Does nothing if it was not added."""
        self._wakes.pop(wake, None)

    async def wait(self) -> None:
        """Returns when the waiting requests are woken next."""
        changed = asyncio.Event()
        self.add(changed.set)
        try:
            await changed.wait()
        finally:
            self.discard(changed.set)

    def wake_all(self) -> None:
        """Wakes all waiting requests, so that they check their conditions again."""
        for wake in tuple(self._wakes):
            wake()


class Purgatory:
    """The waiting reads of one broker: each waits until a partition changes, or for its deadline."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters_max = waiters_max
        self.waiting = 0

    def watch(self, watched: Iterable[Watchers], wake: Callable[[], None]) -> None:
        """Counts a waiting read, and has `wake` called at each change of these partitions (`Watchers.add`). The caller
        ends the wait by `unwatch`. Raises `Overloaded` if too many reads wait already."""
        if self.waiting >= self._waiters_max:
            raise Overloaded(f"{self.waiting} reads are waiting for data already; try again later")
        self.waiting += 1
        for watchers in watched:
            watchers.add(wake)

    def unwatch(self, watched: Iterable[Watchers], wake: Callable[[], None]) -> None:
        """Ends a wait that `watch` began."""
        self.waiting -= 1
        for watchers in watched:
            watchers.discard(wake)

    async def wait(self, watched: Iterable[Watchers], is_ready: Callable[[], bool], deadline_s: float | None) -> None:
        """Returns when `is_ready()`, called whenever a watched partition changes, is True, or at the deadline (loop
        time), which is None if the caller ends the wait itself.

        Raises `Overloaded` if too many reads wait already.
        """
        if is_ready() or (deadline_s is not None and asyncio.get_running_loop().time() >= deadline_s):
            return
        changed, watched = asyncio.Event(), list(watched)
        self.watch(watched, changed.set)
        try:
            async with asyncio.timeout_at(deadline_s):
                while not is_ready():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self.unwatch(watched, changed.set)
