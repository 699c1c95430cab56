"""`Line`: one connection to a broker's listener for Kafka's protocol, with one request in flight at a time.

A request that times out closes its connection, since its late response would be taken for that of the next request.
Concurrent requests use separate connections, so that a slow request, for example to a partition without a quorum,
delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.model.errors import TidelogError
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.errors import NoAnswer


class Line:
    """One connection to a broker's Kafka listener. It receives the frames of the `Network` port (`FrameReceiver`)."""

    def __init__(self, connection: FrameConnection) -> None:
        self._connection = connection
        self._answer: asyncio.Future[memoryview] | None = None
        self.is_open = True
        self.idle_since_s = 0.0

    async def ask(self, request: Sequence[Buffer]) -> memoryview:
        """Sends a request and returns the response. Raises `NoAnswer`, or the error given to `break_off`. Cancelling
        the call closes the connection."""
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
        """Makes a waiting `ask` raise `why`, and closes the connection."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(why)
        self.close()

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self.is_open = False
        self._connection.close()

    def frame_received(self, frame: memoryview) -> None:
        """Passes a response to the waiting `ask`. An unrequested frame closes the connection."""
        if self._answer is None or self._answer.done():
            self.close()
        else:
            self._answer.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        """Makes a waiting `ask` raise `NoAnswer`."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer(f"the connection was cut before the answer came ({error or 'closed'})"))
