"""The answering end of a connection between brokers: one task per request, within bounds.

The tasks belong to the connection. A task is cancelled when the caller cancels the request, when the request's timeout
passes, and when the connection is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from tidelog.model.errors import InternalError, InvalidRequest, Overloaded, TidelogError, TooLarge
from tidelog.model.ports import FrameConnection
from tidelog.transport.peer.common import Common
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import BadFrame, Frame, Kind, frame_bytes
from tidelog.transport.peer.handler import Answer, PeerHandler
from tidelog.transport.peer.hello import Hello
from tidelog.transport.peer.line import Line
from tidelog.transport.peer.proof import Role
from tidelog.transport.peer.statistics import UNREADABLE


class AnsweringEnd(Line):
    """The answering end of an accepted connection. Closes it if no hello arrives within `handshake_s_max`."""

    def __init__(
        self,
        connection: FrameConnection,
        common: Common,
        handler: PeerHandler,
        on_greeted: Callable[[Hello], None],
    ) -> None:
        super().__init__(connection, common, Role.ANSWERER)
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._on_greeted = on_greeted
        self._running: dict[int, asyncio.Task[None]] = {}
        """The tasks of the requests in progress, by correlation id."""
        self._running_bytes = 0
        """Total payload bytes of the requests in progress."""
        self._is_cancelled = False
        self._handshake = self._loop.call_later(common.bounds.handshake_s_max, self._too_slow)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks of the requests in progress, oldest first."""
        return list(self._running.values())

    # -- what comes in -----------------------------------------------------------------------------------------------

    def _too_slow(self) -> None:
        self.turn_away(f"no hello came within {self.common.bounds.handshake_s_max} s; is this a tidelog broker?")

    def challenged(self) -> None:
        self.challenge()

    def greeted(self) -> None:
        self._handshake.cancel()
        self.common.statistics.accepts += 1
        self.greet()
        assert self.theirs is not None
        self._on_greeted(self.theirs)

    def take(self, frame: Frame) -> None:
        self.greet()  # may find that this is not one to talk to any more
        if not self.is_open:
            return
        if frame.kind is Kind.REQUEST:
            self._serve(frame)
        elif frame.kind is Kind.NOTIFY:
            self._notified(frame)
        elif frame.kind is Kind.PING:
            self.send(Kind.ANSWER, correlation=frame.correlation)
        elif frame.kind is Kind.CANCEL:
            if task := self._running.get(frame.correlation):
                task.cancel()
        else:
            raise BadFrame(f"a frame of kind {frame.kind.name} asks for nothing")

    def close(self) -> None:
        """Closes the connection after its queued bytes are sent, and cancels all requests at once."""
        super().close()
        self._cancel()

    def ended(self, error: Exception | None) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if not self._is_cancelled:  # a second time would disturb whoever cleans up after the first
            self._is_cancelled = True
            self._handshake.cancel()
            for task in self.tasks:
                task.cancel()

    def _notified(self, frame: Frame) -> None:
        assert self.theirs is not None
        try:
            self._handler.notified(self.theirs, self.common.codec.message(frame.header), frame.payload)
        except BadFrame as error:  # of a newer version, perhaps: nobody counts on its arrival
            self.common.statistics.refused[UNREADABLE] += 1
            self.common.logger.warning("a notification is dropped", remote=self.connection.remote, reason=str(error))
        except Exception:
            self.common.logger.exception("a notification failed in a way that was not foreseen")

    # -- requests ----------------------------------------------------------------------------------------------------

    def _serve(self, frame: Frame) -> None:
        correlation = frame.correlation
        if correlation in self._running:
            raise BadFrame(f"request {correlation} is under way already")
        try:
            message = self._admit(frame)
        except TidelogError as error:
            self._fail(correlation, error)
            return
        task = self._loop.create_task(self._answer(correlation, message, frame.payload))
        self._running[correlation] = task
        self._running_bytes += len(frame.payload)
        timer = self._loop.call_later(frame.timeout_ms / 1000, task.cancel)
        task.add_done_callback(partial(self._done, correlation, len(frame.payload), timer))

    def _admit(self, frame: Frame) -> msgspec.Struct:
        bounds = self.common.bounds
        if len(self._running) >= bounds.requests_max:
            self.common.statistics.overloads += 1
            raise Overloaded(f"{len(self._running)} requests of this connection are under way already")
        if self._running_bytes + len(frame.payload) > max(bounds.queued_bytes_max, len(frame.payload)):
            self.common.statistics.overloads += 1
            raise Overloaded(f"{self._running_bytes} bytes of requests of this connection are under way already")
        if self.connection.queued_bytes > bounds.queued_bytes_max:
            self.common.statistics.overloads += 1
            raise Overloaded(f"{self.connection.queued_bytes} bytes of answers have not been taken yet")
        try:
            return self.common.codec.message(frame.header)
        except BadFrame as error:  # of a newer version, perhaps: the caller can be told
            self.common.statistics.refused[UNREADABLE] += 1
            raise InvalidRequest(str(error)) from error

    async def _answer(self, correlation: int, message: msgspec.Struct, payload: memoryview) -> None:
        assert self.theirs is not None
        try:
            self._succeed(correlation, await self._handler.handle(self.theirs, message, payload))
        except TidelogError as error:
            self._fail(correlation, error)
        except Exception:
            self.common.logger.exception(
                "a peer request failed in a way that was not foreseen", message=type(message).__name__
            )
            self._fail(correlation, InternalError("the broker failed; its log says more"))

    def _succeed(self, correlation: int, answer: Answer) -> None:
        header = b"" if answer.message is None else self.common.codec.encode(answer.message, self.level)
        size = frame_bytes(header, answer.payload)
        if size > self.common.bounds.frame_bytes_max:
            raise TooLarge(f"the answer has {size} bytes; the bound is {self.common.bounds.frame_bytes_max}")
        self.common.statistics.served += 1
        self.send(Kind.ANSWER, header, answer.payload, correlation=correlation)

    def _fail(self, correlation: int, error: TidelogError) -> None:
        self.common.statistics.served += 1
        self.send(Kind.ERROR, self.common.codec.encode(Fault.of(error)), correlation=correlation)

    def _done(self, correlation: int, size: int, timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._running_bytes -= size
        del self._running[correlation]
        if not task.cancelled():
            task.result()  # whatever came out of it is for the loop's exception handler
