"""Waits of requests: each ends by itself, at its deadline, or when the request's listener shuts down."""

from __future__ import annotations

import asyncio
from types import TracebackType


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
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._timeouts)

    @property
    def is_ended(self) -> bool:
        """True once the listener shuts down: requests should not begin to wait any more."""
        return self._is_ended

    def until(self, deadline_s: float) -> Wait:
        """Returns an async context whose body is cancelled at `deadline_s` (loop time) or at the shutdown. The context
        never raises `TimeoutError`: all ways to end look the same from outside.
        """
        return Wait(self._timeouts, asyncio.timeout_at(0 if self._is_ended else deadline_s))

    def end_all(self) -> None:
        """Ends all waits now, and later ones as soon as they begin."""
        self._is_ended = True
        for timeout in list(self._timeouts):
            if not timeout.expired():
                timeout.reschedule(0)
