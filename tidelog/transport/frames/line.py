"""A line: one connection to a broker's listener for Kafka's protocol, with one request under way at a time.

A request whose answer does not come in time ends its connection, since the answer would be taken for that of the next
request. Requests that are under way at once have a connection each, so that one that waits long, for a partition
without a quorum, holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.model.errors import TidelogError
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.errors import NoAnswer


class Line:
    """A connection to one broker's listener: the port's `FrameReceiver`."""

    def __init__(self, connection: FrameConnection) -> None:
        self._connection = connection
        self._answer: asyncio.Future[memoryview] | None = None
        self.is_open = True
        self.idle_since_s = 0.0

    async def ask(self, request: Sequence[Buffer]) -> memoryview:
        """Sends a request, and returns the answer. Raises `NoAnswer`, or what `break_off` was called with. Who gives up
        waiting cuts the connection."""
        if not self.is_open:
            raise NoAnswer("the broker has closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(request)
        try:
            return await self._answer
        finally:
            if not self._answer.done() or self._answer.cancelled():
                self.close()
            self._answer = None

    def break_off(self, why: TidelogError) -> None:
        """Ends the wait for an answer with an error, and cuts the connection."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(why)
        self.close()

    def close(self) -> None:
        """Cuts the connection. Idempotent."""
        self.is_open = False
        self._connection.close()

    def frame_received(self, frame: memoryview) -> None:
        """Takes an answer, as the port says. One that nobody has asked for ends the connection."""
        if self._answer is None or self._answer.done():
            self.close()
        else:
            self._answer.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the wait for an answer, as the port says."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer(f"the connection was cut before the answer came ({error or 'closed'})"))
