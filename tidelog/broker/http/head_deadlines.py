"""Deadlines of request heads: a head that has begun must end in time, however slowly its bytes arrive.

All deadlines have the same length, so they expire in the order in which the heads began, and one timer serves all. Many
that began at the same moment expire at the same moment: five hundred refusals in one turn of the event loop took 0.2 s.
So `AT_ONCE` are refused in one turn, and the others in the turns after it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

AT_ONCE: Final = 16
TURN_S: Final = 0.001


class Slow(Protocol):
    """A connection on which a request head has begun."""

    def head_is_late(self) -> None:
        """Called when the request head did not end in time."""


class HeadDeadlines:
    """The connections of a listener whose request heads are incomplete."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._due_s: OrderedDict[Slow, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: Slow) -> None:
        """Starts the deadline of a request head, at its first byte. Idempotent."""
        if connection not in self._due_s:
            self._due_s[connection] = self._loop.time() + self._seconds
            self._set_timer(self._seconds)

    def end(self, connection: Slow) -> None:
        """Ends the deadline of a request head that is complete, or whose connection is closed. Idempotent."""
        self._due_s.pop(connection, None)

    def _set_timer(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._fall_due)

    def _fall_due(self) -> None:
        self._timer = None
        for _ in range(min(AT_ONCE, len(self._due_s))):
            connection, due_s = next(iter(self._due_s.items()))
            if due_s > self._loop.time():
                break
            del self._due_s[connection]
            connection.head_is_late()
        if self._due_s:
            next_s = next(iter(self._due_s.values())) - self._loop.time()
            self._set_timer(max(TURN_S, next_s))
