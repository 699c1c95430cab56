"""Large bodies take turns: a few connections at a time are read, and the others wait for theirs.

The event loop reads from every connection that has something, before it does anything else. What two hundred clients
have sent of eight megabytes each would keep it for a second, and a probe of the broker's health waits for several such
rounds. So of the connections on which a large body comes, taken in or dropped, `AT_ONCE` are read, for `TURN_S` or one
piece that is dropped; then they go to the end of the queue. No client owns a turn: a slow one holds nobody up.

A body is large by the length that it declares; one in chunks declares none, and is taken in chunk by chunk anyway.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

LARGE_BYTES: Final = 1 << 20
AT_ONCE: Final = 4
TURN_S: Final = 0.001


class Receiver(Protocol):
    """A connection whose reading can be held."""

    def hold(self) -> None:
        """Stops reading."""
        ...

    def release(self) -> None:
        """Goes on with reading, unless something else forbids it."""
        ...


class LargeBodies:
    """The connections of a listener on which large bodies come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reading: OrderedDict[Receiver, None] = OrderedDict()
        self._waiting: OrderedDict[Receiver, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, receiver: Receiver) -> None:
        """Takes a connection in whose large body begins, or whose rest of one is dropped from now on. Idempotent."""
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
        """Takes a connection out whose body is there, or that is gone. Idempotent."""
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
        """Sends those that were read to the end, and reads the first of those that waited."""
        self._timer = None
        for receiver in [*self._reading] if self._waiting else ():
            self.end_turn(receiver)
        while self._waiting and len(self._reading) < AT_ONCE:
            receiver, _ = self._waiting.popitem(last=False)
            self._reading[receiver] = None
            receiver.release()
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_later(TURN_S, self._turn)
