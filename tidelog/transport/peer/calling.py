"""The calling end of a connection between brokers: many requests in flight, each with a deadline.

A request that was handed to the connection and got no response has an unknown outcome (`PeerLost`, `TimeoutError`); any
other failure is definite (`PeerUnreachable`, `Overloaded`, `TooLarge`). A response that no correct peer could send
counts as none (`PeerLost`). A caller that stops waiting sends a cancellation to the peer; late and unrequested
responses are dropped.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, NoReturn

import msgspec

from tidelog.model.errors import ForeignSender, ImplausibleNumber, Overloaded, TooLarge, UnsupportedLevel
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.peer.common import Common
from tidelog.transport.peer.errors import PeerLost, PeerUnreachable
from tidelog.transport.peer.frames import TIMEOUT_MS_MAX, BadFrame, Frame, Kind, frame_bytes
from tidelog.transport.peer.handler import Answer
from tidelog.transport.peer.line import Line
from tidelog.transport.peer.proof import Role
from tidelog.transport.peer.statistics import NUMBER, SENDER, UNREADABLE
from tidelog.transport.presence import Presence, Silent


class _Question(NamedTuple):
    """A request, or a ping if `message` is None, and the future of its response."""

    message: msgspec.Struct | None
    future: asyncio.Future[Answer]


class CallingEnd(Line):
    """The calling end of a new connection; sends its hello at once. `peer_id` is the node that should answer, None for
    any."""

    def __init__(self, connection: FrameConnection, common: Common, peer_id: int | None) -> None:
        super().__init__(connection, common, Role.CALLER)
        self._loop = asyncio.get_running_loop()
        self._peer_id = peer_id
        self._waiting: dict[int, _Question] = {}
        """Requests in flight by correlation id; removed when the response arrives or the caller stops waiting."""
        self._last_id = 0
        self._is_greeted = asyncio.Event()
        self._is_lost = asyncio.Event()
        self._cause = "closed"
        if common.secret is None:
            self.greet()
        else:
            self.challenge()

    async def wait_greeted(self) -> None:
        """Waits until the hellos are exchanged and requests may be sent. Raises `PeerRefused`, or `PeerUnreachable` if
        the connection was lost before."""
        await self._is_greeted.wait()
        if not self.is_open:
            self._raise_unreachable()

    async def wait_lost(self) -> None:
        """Waits until the connection is lost."""
        await self._is_lost.wait()

    # -- requests ----------------------------------------------------------------------------------------------------

    async def request(
        self, message: msgspec.Struct, payload: Sequence[Buffer], timeout_s: float, presence: Presence | None = None
    ) -> Answer:
        """Sends a request and waits for its response. With `presence` the wait also ends when the peer is found silent.

        Raises `PeerUnreachable`, `Overloaded` or `TooLarge`, certainly without effect; `UnsupportedLevel` if the peer's
        version lacks this message; `PeerLost` or `TimeoutError` with an unknown outcome; or the `TidelogError` with
        which the peer responded.
        """
        if timeout_s <= 0:
            raise PeerUnreachable(f"no time is left for a request to {self._name()}")
        header = self._admit(message, payload)
        self.common.statistics.requests += 1
        return await self._ask(Kind.REQUEST, header, payload, timeout_s, message, presence)

    async def ping(self, timeout_s: float) -> None:
        """Pings the other end and returns when it has answered. Pings are exempt from the bound on requests in flight.

        Raises `PeerLost`, `PeerUnreachable` or `TimeoutError`.
        """
        self.greet()
        if not self.is_open:
            self._raise_unreachable()
        await self._ask(Kind.PING, b"", (), timeout_s)

    async def _ask(
        self,
        kind: Kind,
        header: bytes,
        payload: Sequence[Buffer],
        timeout_s: float,
        message: msgspec.Struct | None = None,
        presence: Presence | None = None,
    ) -> Answer:
        self._last_id += 1
        correlation = self._last_id
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[correlation] = _Question(message, future)
        timer = self._loop.call_later(timeout_s, self._expire, future, timeout_s)
        timeout_ms = min(max(1, math.ceil(timeout_s * 1000)), TIMEOUT_MS_MAX)
        self.send(kind, header, payload, correlation=correlation, timeout_ms=timeout_ms)
        give_up = partial(_give_up, future)
        if presence is not None:
            presence.expect(give_up, 0.0)
        try:
            answer = await future
            if presence is not None:
                presence.answered(give_up)
            return answer
        except TimeoutError:
            if presence is not None:
                presence.missed(give_up)
            raise
        finally:
            timer.cancel()
            if presence is not None:
                presence.forget(give_up)
            if self._waiting.pop(correlation, None) is not None:
                self.common.statistics.given_up += kind is Kind.REQUEST
                self.send(Kind.CANCEL, correlation=correlation)
            del future, give_up  # they hold the error, whose traceback holds this frame and the payload

    def notify(self, message: msgspec.Struct, payload: Sequence[Buffer]) -> bool:
        """Sends a message without a response; returns False if it was dropped."""
        bounds = self.common.bounds
        self.greet()
        if not self.is_open or self.connection.queued_bytes > bounds.notify_bytes_max:
            self.common.statistics.notifications_dropped += 1
            return False
        try:
            header = self.common.codec.encode(message, self.level)
        except UnsupportedLevel:  # nobody counts on its arrival
            self.common.statistics.notifications_dropped += 1
            return False
        assert frame_bytes(header, payload) <= bounds.frame_bytes_max, "a notification is larger than any frame may be"
        self.send(Kind.NOTIFY, header, payload)
        return True

    def _admit(self, message: msgspec.Struct, payload: Sequence[Buffer]) -> bytes:
        """Returns the encoded header of a request that is within the bounds. Raises `PeerUnreachable`, `Overloaded` or
        `TooLarge`."""
        self.greet()  # may find that this is not one to talk to
        if not self.is_open:
            self._raise_unreachable()
        bounds = self.common.bounds
        if len(self._waiting) >= bounds.requests_max:
            raise Overloaded(f"{len(self._waiting)} requests to {self._name()} wait for answers already")
        if self.connection.queued_bytes > bounds.queued_bytes_max:
            raise Overloaded(f"{self.connection.queued_bytes} bytes wait to be sent to {self._name()} already")
        header = self._encoded(message)
        if (size := frame_bytes(header, payload)) > bounds.frame_bytes_max:
            raise TooLarge(f"a peer request of {size} bytes is over the bound of {bounds.frame_bytes_max}")
        return header

    def _encoded(self, message: msgspec.Struct) -> bytes:
        try:
            return self.common.codec.encode(message, self.level)
        except UnsupportedLevel as error:
            raise UnsupportedLevel(f"{self._name()} has to be upgraded first: {error}") from error

    def _expire(self, future: asyncio.Future[Answer], timeout_s: float) -> None:
        if not future.done():
            self.common.statistics.timeouts += 1
            future.set_exception(TimeoutError(f"no answer of {self._name()} within {timeout_s:.3f} s"))

    # -- what comes in -----------------------------------------------------------------------------------------------

    def greeted(self) -> None:
        self._is_greeted.set()

    def challenged(self) -> None:
        self.greet()

    def stranger(self, node_id: int) -> str | None:
        if self._peer_id in (None, node_id):
            return None
        return (
            f"node {self._peer_id} was expected at {self.connection.remote}, and node {node_id} is there; "
            "check the peer addresses in the settings of both"
        )

    def take(self, frame: Frame) -> None:
        if frame.kind not in (Kind.ANSWER, Kind.ERROR):
            raise BadFrame(f"a frame of kind {frame.kind.name} is no answer")
        question = self._waiting.get(frame.correlation)
        if question is None or question.future.done():
            self.common.statistics.late_answers += 1
            return
        del self._waiting[frame.correlation]
        try:
            if frame.kind is Kind.ERROR:
                question.future.set_exception(self.common.codec.fault(frame.header).to_error())
            else:
                question.future.set_result(self._answer(frame, question.message))
        except (BadFrame, ForeignSender, ImplausibleNumber) as error:
            self.common.doubt(self.connection.remote, _reason(error), str(error))
            question.future.set_exception(
                PeerLost(f"what {self._name()} answered is not believed ({error}); it may have been done, or not")
            )

    def _answer(self, frame: Frame, request: msgspec.Struct | None) -> Answer:
        """Returns the decoded response, checked for plausibility as a response to `request`. Raises `BadFrame`,
        `ForeignSender`, `ImplausibleNumber`."""
        message = self.common.codec.message(frame.header) if len(frame.header) else None
        answer = Answer(message, (frame.payload,) if len(frame.payload) else ())
        if request is not None:
            assert self.theirs is not None
            self.common.check_answer(self.theirs, request, answer)
        elif message is not None:
            raise BadFrame(f"{type(message).__name__} answers a ping")
        return answer

    def ended(self, error: Exception | None) -> None:
        self._cause = self.error.message if self.error else str(error) if error else "closed by the peer"
        questions, self._waiting = self._waiting, {}
        for question in questions.values():
            if not question.future.done():
                self.common.statistics.lost += 1
                question.future.set_exception(
                    PeerLost(f"the connection to {self._name()} was lost ({self._cause}) before the answer came")
                )
        self._is_lost.set()
        self._is_greeted.set()

    # -- words -------------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        node_id = self.theirs.node_id if self.theirs else self._peer_id
        return self.connection.remote if node_id is None else f"node {node_id} at {self.connection.remote}"

    def _raise_unreachable(self) -> NoReturn:
        if self.error is not None:
            raise type(self.error)(self.error.message)
        raise PeerUnreachable(f"the connection to {self._name()} is gone ({self._cause})")


def _reason(error: Exception) -> str:
    """Returns the reason, of `statistics.REASONS`, for which a response is rejected."""
    if isinstance(error, ForeignSender):
        return SENDER
    return NUMBER if isinstance(error, ImplausibleNumber) else UNREADABLE


def _give_up(future: asyncio.Future[Answer], silent: Silent) -> None:
    if not future.done():
        future.set_exception(silent)
