"""`HeldFrame`: the frame of a connection whose request cannot begin yet.

It waits for memory, for room in a partition's request queue, for its client's quota, or for the request before it. Its
connection is not read meanwhile; that is how Kafka's protocol says "later". It is tried again by a timer, when a
request of the connection is done, or when a partition has room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.model.ports import ClientConnection


class HeldFrame:
    """The frame that waits on one connection, if there is any."""

    def __init__(
        self, stream: ClientConnection, begin: Callable[[memoryview, float, float], bool], now_s: Callable[[], float]
    ) -> None:
        """`begin` begins the request of a frame, named with its time of arrival and the present time; it returns False
        if the request has to wait on."""
        self._stream = stream
        self._begin = begin
        self._now_s = now_s
        self._loop = asyncio.get_running_loop()
        self._frame: tuple[memoryview, float] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def is_there(self) -> bool:
        """True while a frame waits."""
        return self._frame is not None

    def hold(self, frame: memoryview, came_s: float) -> None:
        """Keeps a frame that could not begin, and stops the reading of its connection."""
        self._frame = frame, came_s
        self._stream.hold()

    def try_later(self, seconds: float) -> None:
        """Tries again after so many seconds, and not earlier by a timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.try_again)

    def try_soon(self) -> None:
        """Tries again in the next iteration of the event loop, if a frame waits."""
        if self._frame is not None and not self._is_over:
            self._loop.call_soon(self.try_again)

    def try_again(self) -> None:
        """Begins the request of the frame, if it can begin now, and resumes the reading of the connection."""
        if self._is_over:
            return
        if self._frame is not None:
            frame, came_s = self._frame
            if not self._begin(frame, came_s, self._now_s()):
                return
            self._frame = None
        self._stream.go_on()

    def pause(self) -> None:
        """Stops the reading of the connection until the next iteration of the event loop."""
        self._stream.hold()
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._frame is None and not self._is_over:
            self._stream.go_on()

    def drop(self) -> None:
        """Drops the frame, since the connection is lost."""
        self._is_over = True
        self._frame = None
        if self._timer is not None:
            self._timer.cancel()
