"""Waits of requests: each ends by itself, at its deadline, or when the request's listener shuts down.

A wait is the body of an async context, or, for requests that wait by the thousand, a function that is called at the
deadline. Deadlines of such functions are rounded up to a tick, and those of one tick share a timer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Final

TICK_S: Final = 0.01
"""Seconds by which a deadline may be exceeded. Requests that end together are answered in one iteration of the event
loop, and so are the next requests of their clients."""
ENDED_PER_TURN: Final = 64
"""Number of waits that end in one iteration of the event loop: 2 to 5 ms of work."""


class Wait:
    """The async context of one wait, made by `Waits.until`."""

    __slots__ = ("_all", "_timeout")

    def __init__(self, all_timeouts: dict[asyncio.Timeout, None], timeout: asyncio.Timeout) -> None:
        self._all = all_timeouts
        self._timeout = timeout

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._all[self._timeout] = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        del self._all[self._timeout]
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        return False


class Waits:
    """The waits of a listener's requests, so that a shutdown can end all of them early."""

    def __init__(self) -> None:
        self._timeouts: dict[asyncio.Timeout, None] = {}
        self._ticks: dict[int, dict[Callable[[], None], None]] = {}
        """Functions to call at their deadlines, by the tick in which these are."""
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._timeouts) + sum(map(len, self._ticks.values()))

    @property
    def is_ended(self) -> bool:
        """True once the listener shuts down: requests should not begin to wait any more."""
        return self._is_ended

    def until(self, deadline_s: float) -> Wait:
        """Returns an async context whose body is cancelled at `deadline_s` (loop time) or at the shutdown. The context
        never raises `TimeoutError`: all ways to end look the same from outside.
        """
        return Wait(self._timeouts, asyncio.timeout_at(0 if self._is_ended else deadline_s))

    def begin(self, deadline_s: float, end: Callable[[], None]) -> int:
        """Has `end` called once, soon after `deadline_s` (loop time) or at the shutdown. Returns the tick to name to
        `leave`.
        """
        tick = 0 if self._is_ended else math.ceil(deadline_s / TICK_S)
        ends = self._ticks.get(tick)
        if ends is None:
            ends = self._ticks[tick] = {}
            asyncio.get_running_loop().call_at(tick * TICK_S, self._end, tick)
        ends[end] = None
        return tick

    def leave(self, tick: int, end: Callable[[], None]) -> None:
        """Has `end` not be called any more. Does nothing if it was called."""
        self._ticks.get(tick, {}).pop(end, None)

    def _end(self, tick: int) -> None:
        ends = self._ticks.get(tick, {})
        for end in tuple(islice(ends, ENDED_PER_TURN)):
            if end in ends:  # another one's end may have had it leave
                del ends[end]
                end()
        if ends:
            asyncio.get_running_loop().call_soon(self._end, tick)
        else:
            self._ticks.pop(tick, None)

    def end_all(self) -> None:
        """Ends all waits now, and later ones as soon as they begin."""
        self._is_ended = True
        for tick in tuple(self._ticks):
            asyncio.get_running_loop().call_soon(self._end, tick)
        for timeout in list(self._timeouts):
            if not timeout.expired():
                timeout.reschedule(0)
