"""Large request bodies take turns: a few connections are read at a time, and the others wait.

The event loop reads from every readable connection before it does anything else. Two hundred clients that have sent
eight megabytes each would keep it busy for a second, and a health check waits for several such rounds. So of the
connections with a large body, received or dropped, `AT_ONCE` are read, for `TURN_S` or one dropped piece; then they go
to the end of the queue. A slow client does not use up a turn: the turns end by time.

A body is large by its declared length; a chunked body declares none, and is taken in chunk by chunk anyway.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

LARGE_BYTES: Final = 1 << 20
AT_ONCE: Final = 4
TURN_S: Final = 0.001


class Receiver(Protocol):
    """A connection whose reading can be paused."""

    def hold(self) -> None:
        """Pauses reading."""

    def release(self) -> None:
        """Resumes reading, unless something else has paused it."""


class LargeBodies:
    """The connections of a listener on which large bodies arrive, and the queue of those that are paused."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reading: OrderedDict[Receiver, None] = OrderedDict()
        self._waiting: OrderedDict[Receiver, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, receiver: Receiver) -> None:
        """Adds a connection whose large body begins, or whose remaining body is dropped from now on. Idempotent."""
        if receiver in self._reading or receiver in self._waiting:
            return
        if len(self._reading) < AT_ONCE:
            self._reading[receiver] = None
        else:
            self._wait(receiver)

    def end_turn(self, receiver: Receiver) -> None:
        """Ends a connection's turn, if others wait."""
        if receiver in self._reading and self._waiting:
            del self._reading[receiver]
            self._wait(receiver)

    def leave(self, receiver: Receiver) -> None:
        """Removes a connection whose body has arrived, or that is closed. Idempotent."""
        self._reading.pop(receiver, None)
        if receiver in self._waiting:
            del self._waiting[receiver]
            receiver.release()

    def _wait(self, receiver: Receiver) -> None:
        receiver.hold()
        self._waiting[receiver] = None
        if self._timer is None:
            self._timer = self._loop.call_later(TURN_S, self._turn)

    def _turn(self) -> None:
        """Moves the connections that were read to the end of the queue, and reads from its first ones."""
        self._timer = None
        for receiver in [*self._reading] if self._waiting else ():
            self.end_turn(receiver)
        while self._waiting and len(self._reading) < AT_ONCE:
            receiver, _ = self._waiting.popitem(last=False)
            self._reading[receiver] = None
            receiver.release()
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_later(TURN_S, self._turn)
