"""Deadlines of heads: who has begun a request's head has to end it in time, however slowly the bytes come.

All have the same time, so they fall due in the order in which they began, and one timer serves all. A crowd that began
at the same moment falls due at the same moment: five hundred refusals in one turn of the event loop took 0.2 s. So
`AT_ONCE` are refused in a turn, and the others in the turns after it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

AT_ONCE: Final = 16
TURN_S: Final = 0.001


class Slow(Protocol):
    """A connection on which a head has begun."""

    def head_is_late(self) -> None:
        """Is called when a head did not end in time."""
        ...


class HeadDeadlines:
    """The connections of a listener whose heads are under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._due_s: OrderedDict[Slow, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: Slow) -> None:
        """Begins to count a head's time, from its first byte on."""
        if connection not in self._due_s:
            self._due_s[connection] = self._loop.time() + self._seconds
            self._set_timer(self._seconds)

    def end(self, connection: Slow) -> None:
        """Ends the count: the head is whole, or its connection gone. Idempotent."""
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
