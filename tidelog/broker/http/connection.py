"""A connection of a listener: counted, bounded, with clear errors for bad HTTP.

Idle connections must not keep other clients out. When all places are taken, a new connection replaces one *at rest*
(idle for long enough, see `Resting`). If none is at rest, the new one becomes a *probe*, of which there are a few: on
it only health checks are served, so that a busy broker is not taken for dead. Beyond these it is refused unread.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from tidelog.broker.http.answers import error_answer
from tidelog.broker.http.large_bodies import LARGE_BYTES
from tidelog.broker.http.lingering import Lingering
from tidelog.model.cluster import HTTP
from tidelog.model.errors import InvalidRequest

if TYPE_CHECKING:
    from tidelog.broker.http.connections import Server

IPPROTO_TCP: Final = 6
TCP_USER_TIMEOUT: Final = 18  # Linux
FRAME_START: Final = b"\0"
"""The first byte of a client that speaks Kafka's protocol to this port by mistake; it would not understand an HTTP
answer.
"""


def _refusal(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    return (head + b"Content-Length: %d\r\n\r\n%b") % (status, len(body), body)


_TOO_MANY: Final = _refusal(
    b"503 Service Unavailable", b'{"error_code":50305,"message":"too many connections; try again in a moment"}'
)
_TOO_OFTEN: Final = _refusal(
    b"429 Too Many Requests",
    b'{"error_code":42902,"message":"this address opens connections more often than its quota connection_creation_rate '
    b'allows; keep connections open, and try again in a moment"}',
)
_LATE_HEAD: Final = _refusal(
    b"408 Request Timeout",
    b'{"error_code":40801,"message":"the request line and headers did not arrive in time (http.head.timeout.ms)"}',
)


class Connection(web.RequestHandler):
    """A client connection: admission, head deadline, turns of large bodies, lingering close."""

    __slots__ = (
        "_holder",
        "_is_admitted",
        "_is_astray",
        "_is_held",
        "_is_serving",
        "_lingering",
        "_server",
        "address",
        "certificate",
        "has_requested",
        "is_probe",
        "waits_since_s",
    )

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self._is_admitted = False
        self._is_held = False
        """True while this connection is not read because the large bodies of other connections have their turn."""
        self._is_serving = False
        self._is_astray = False
        """True once the client sent bytes that are not HTTP."""
        self._lingering: Lingering | None = None
        self.certificate: dict[str, Any] | None = None
        """The client's verified certificate, as `ssl` parses it (subject and alternative names); None if it presented
        none.
        """
        self._holder: str | None = None
        """The user for whose connection quota this connection counts; None without quotas."""
        self.address = ""
        """The client's address, without its port."""
        self.has_requested = False
        """True once a request has arrived."""
        self.is_probe = False
        """True if the connection has one of the places kept for probes: only routes that are always served (health
        checks, metrics) are served on it.
        """
        self.waits_since_s = 0.0
        """Time (broker's clock, s) from which the next request waits: its head had arrived, and the request before it
        was answered.
        """

    def hold_for(self, user: str) -> None:
        """Counts the connection for the user of its request. Raises `TooManyConnections` if the user has as many others
        as its quota allows.
        """
        if user != self._holder and self._server.shares is not None:
            self._release()
            self._server.shares.hold(user)
            self._holder = user

    def _release(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None and self._server.shares is not None:
            self._server.shares.release(holder)

    @property
    def is_busy(self) -> bool:
        """True while a request is being served or waits to be served."""
        return self._is_serving or bool(self._messages)

    @property
    def is_draining(self) -> bool:
        """True once the listener stops, so that each request is the last one on its connection."""
        return self._server.resting.is_draining

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection, or answers 429 or 503 and closes it."""
        now_s = self._loop.time()
        peer_name = transport.get_extra_info("peername")
        self.address = peer_name[0] if peer_name else ""
        self.certificate = transport.get_extra_info("peercert") or None
        shares = self._server.shares
        if shares is not None and shares.are_set and not shares.admits_connection(self.address):
            self._server.metrics.refused("connection rate")
            if self._server.audit is not None:
                self._server.audit.refused_connection(HTTP, f"{self.address}:0", "connection rate")
            self._refuse(cast("asyncio.Transport", transport), _TOO_OFTEN)
            return
        self._is_admitted = self._find_place(now_s)
        if not self._is_admitted:
            self._server.metrics.refused("connections")
            self._refuse(cast("asyncio.Transport", transport), _TOO_MANY)
            return
        self._server.resting.heard(self, now_s)
        socket = transport.get_extra_info("socket")
        if socket is not None:  # a simulated network has none
            with contextlib.suppress(OSError):  # not Linux: a stalled reader is then found by the drain deadline
                socket.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, self._server.limits.unsent_timeout_ms)
        super().connection_made(transport)

    def _find_place(self, now_s: float) -> bool:
        if self._server.count.is_full_of(self.address):
            self._server.resting.close_one(now_s, probe=False, address=self.address)
        for probe in (False, True):
            if self._server.count.is_full(probe=probe):
                self._server.resting.close_one(now_s, probe=probe)
            if self._server.count.admit(self.address, probe=probe):
                self.is_probe = probe
                return True
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        """Frees the connection's place."""
        self._server.heads.end(self)
        self._server.large_bodies.leave(self)
        if self._is_admitted:
            self._count_out()
            super().connection_lost(exc)
        elif self._lingering is not None:
            self._server.resting.refused.leave()
        self._end_lingering()

    def give_way(self) -> None:
        """Closes a connection at rest, and frees its place at once."""
        self._server.metrics.refused("at rest")
        self._count_out()  # now, as the loss is heard of later, when the place is taken
        if self.transport is not None:
            self.transport.close()

    def _count_out(self) -> None:
        self._release()
        if self._server.resting.forget(self):
            self._server.count.leave(self.address, probe=self.is_probe)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _refuse(self, stream: asyncio.Transport, answer: bytes) -> None:
        if self._server.resting.refused.admit():
            self._say_and_close(stream, answer)
        else:
            stream.write(answer)
            stream.close()

    def _say_and_close(self, stream: asyncio.Transport, answer: bytes) -> None:
        self.close()
        stream.write(answer)
        self._lingering = Lingering(stream, self._server.limits, self._loop, stream.close)
        self._server.large_bodies.join(self)

    def close(self) -> None:
        """Stops taking requests, and stops reading a body that is dropped after its answer."""
        super().close()
        self._end_lingering()

    def _end_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.end()

    async def _linger(self, content: StreamReader) -> None:
        """Reads and drops the rest of a request body that arrives after the answer, then closes the connection."""
        assert self.transport is not None
        ended = asyncio.Event()
        self._lingering = Lingering(self.transport, self._server.limits, self._loop, ended.set)
        if content.exception() is None:
            content.read_nowait()  # what has come already
        self._server.large_bodies.join(self)
        self._resume_transport_reading()
        await ended.wait()
        self.force_close()

    # -- heads -------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parses received bytes, and starts the deadline of a request head that is incomplete."""
        if self._lingering is not None:
            self._lingering.took(len(data))
            self._server.large_bodies.end_turn(self)
            return
        if self._is_serving:  # the rest of a body, as a rule
            super().data_received(data)
            return
        if not self.has_requested and data.startswith(FRAME_START) and self.transport is not None:
            self._server.metrics.refused("not HTTP")
            self.transport.close()
            return
        was_busy = self.is_busy
        super().data_received(data)
        if self.transport is None or self.transport.is_closing():
            return
        self._server.resting.heard(self, self._loop.time())
        if self.is_busy:
            self.has_requested = True
            self._server.heads.end(self)
            if not was_busy:
                self.waits_since_s = self._server.now_s()
        else:
            self._server.heads.begin(self)

    def head_is_late(self) -> None:
        """Answers 408 if the request head did not arrive in time, and drops whatever the client still sends."""
        if not self.is_busy and self.transport is not None:
            self._server.metrics.refused("slow head")
            self._say_and_close(self.transport, _LATE_HEAD)

    def begin(self, message: RawRequestMessage, payload: StreamReader) -> None:
        """Marks the connection as busy until the request is answered, and queues it for reading if its body is
        large.
        """
        self._is_serving = True
        if int(message.headers.get(CONTENT_LENGTH, 0)) > LARGE_BYTES and not payload.is_eof():
            self._server.large_bodies.join(self)
            payload.on_eof(partial(self._server.large_bodies.leave, self))

    # -- turns of large bodies ---------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Stops reading from the connection until `release`."""
        self._is_held = True
        self._pause_transport_reading()

    def release(self) -> None:
        """Resumes reading, unless data received before has not been processed yet."""
        self._is_held = False
        if self._lingering is not None or not (self._reading_paused or self._buffer_paused):
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        if not self._is_held:
            super()._resume_transport_reading()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends the rest of the answer. If the connection ends with it while the request's body is still arriving, goes
        on reading and dropping the body for a while, so that the client sees the answer and not a reset.
        """
        try:
            resp, is_lost = await super().finish_response(request, resp, start_time)
            is_last = self._is_astray or not (resp.keep_alive or request.content.is_eof())
            if is_last and not is_lost and self.transport is not None:
                await self._linger(request.content)
            return resp, is_lost
        finally:
            self._is_serving = False
            self.waits_since_s = self._server.now_s()
            self._server.resting.heard_again(self, self._loop.time())

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers bytes that are not HTTP with an error in the usual shape, without logging it. Reraises
        `ConnectionError`, since the client has disconnected.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if status == InvalidRequest.code // 100:
            response = error_answer(InvalidRequest("this is not a correct HTTP/1.1 request"), retry_after_s=0)
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp would not say so: it takes the client for HTTP/1.0
            self._is_astray = True
            return response
        return super().handle_error(request, status, exc, message)
