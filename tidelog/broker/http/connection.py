"""The connections of a listener: counted and capped, plain about bad HTTP, silent about what they run on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from tidelog.broker.face.admission import ConnectionCount
from tidelog.broker.http.answers import error_answer
from tidelog.broker.http.limits import Limits
from tidelog.broker.http.metrics import RequestMetrics
from tidelog.model.errors import InvalidRequest

IPPROTO_TCP: Final = 6
TCP_USER_TIMEOUT: Final = 18  # Linux
_REFUSAL_BODY: Final = b'{"error_code":50305,"message":"too many connections; try again in a moment"}'
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b"
) % (len(_REFUSAL_BODY), _REFUSAL_BODY)


class Request(web.BaseRequest):
    """A request whose answer does not tell which software, in which version, gives it."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """aiohttp's hook for signals, called with the headers ready; signals themselves would cost twice as much."""
        response.headers.popall("Server", None)


class Connection(web.RequestHandler):
    """One client connection. One too many gets a 503 and is closed before anything is read from it."""

    __slots__ = ("_count", "_is_admitted", "_metrics", "_unsent_timeout_ms")

    def __init__(
        self,
        server: Server,
        connections: ConnectionCount,
        metrics: RequestMetrics,
        unsent_timeout_ms: int,
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._count = connections
        self._metrics = metrics
        self._is_admitted = False
        self._unsent_timeout_ms = unsent_timeout_ms

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the client, or not."""
        if not self._count.admit():
            self._metrics.refused("connections")
            stream = cast("asyncio.Transport", transport)
            stream.write(_REFUSAL)
            stream.close()
            self.close()
            return
        self._is_admitted = True
        socket = transport.get_extra_info("socket")
        if socket is not None:  # a simulated network has none
            with contextlib.suppress(OSError):  # not Linux: a stalled reader is then found by the drain deadline
                socket.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, self._unsent_timeout_ms)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Counts it out."""
        if self._is_admitted:
            self._is_admitted = False
            self._count.leave()
            super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is not HTTP, in the shape of every other error; it is the client's fault, so nothing is logged."""
        if status == InvalidRequest.code // 100:
            response = error_answer(InvalidRequest("this is not a correct HTTP/1.1 request"), retry_after_s=0)
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp would not say so: it takes the client for HTTP/1.0
            return response
        return super().handle_error(request, status, exc, message)


class Server(web.Server):
    """Makes a `Connection` for each client."""

    def __init__(self, serve: Any, limits: Limits, connections: ConnectionCount, metrics: RequestMetrics) -> None:
        self._loop_used = asyncio.get_running_loop()
        self._limits = limits
        self._count = connections
        self._metrics = metrics
        super().__init__(serve, request_factory=self._new_request, handler_cancellation=True)

    def __call__(self) -> Connection:
        limits = self._limits
        return Connection(
            self,
            self._count,
            self._metrics,
            limits.unsent_timeout_ms,
            loop=self._loop_used,
            access_log=None,
            keepalive_timeout=limits.keepalive_s,
            lingering_time=limits.lingering_s,
            max_line_size=limits.line_bytes_max,
            max_field_size=limits.line_bytes_max,
            max_headers=limits.headers_max,
            read_bufsize=limits.read_buffer_bytes,
            auto_decompress=False,
        )

    def _new_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> Request:
        return Request(message, payload, protocol, writer, task, self._loop_used)
