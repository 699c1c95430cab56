"""Lingering close: ends a connection that is answered while its client still sends, as nginx does.

If a socket is closed with unread bytes, the kernel answers what still arrives with a reset, which destroys the answer
before the client has read it. So the broker ends only its own direction, after the answer, and goes on reading and
dropping bytes, until the client closes or is silent, or a bound of bytes or time is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.broker.http.limits import Limits


class Lingering:
    """The lingering close of one connection: after the last answer, what still arrives is read and dropped for a while.
    `on_end` is called once, when that is over.
    """

    def __init__(
        self, stream: asyncio.Transport, limits: Limits, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._on_end = on_end
        self._is_ended = False
        self._bytes = 0
        self._ends_s = loop.time() + limits.lingering_s
        if stream.can_write_eof():
            stream.write_eof()
        self._timer = self._look_later(0)

    def took(self, size: int) -> None:
        """Counts bytes that arrived and were dropped."""
        self._bytes += size
        if self._bytes > self._limits.lingering_bytes_max:
            self.end()

    def end(self) -> None:
        """Ends the lingering close. Idempotent."""
        if not self._is_ended:
            self._is_ended = True
            self._timer.cancel()
            self._on_end()

    def _look_later(self, seen_bytes: int) -> asyncio.TimerHandle:
        at_s = min(self._ends_s, self._loop.time() + self._limits.lingering_silence_s)
        return self._loop.call_at(at_s, self._look, seen_bytes)

    def _look(self, seen_bytes: int) -> None:
        if self._bytes == seen_bytes or self._loop.time() >= self._ends_s:
            self.end()
        else:
            self._timer = self._look_later(self._bytes)
