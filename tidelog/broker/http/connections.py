"""All connections of a listener: what they share, and how they end when the listener stops.

Requests are made here, too: their answers give no hint of the server software.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.hdrs import TRANSFER_ENCODING
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from tidelog.broker.face.admission import ConnectionCount
from tidelog.broker.face.audit import Audit
from tidelog.broker.face.shares import Shares
from tidelog.broker.http.connection import Connection
from tidelog.broker.http.head_deadlines import HeadDeadlines
from tidelog.broker.http.large_bodies import LargeBodies
from tidelog.broker.http.limits import Limits
from tidelog.broker.http.metrics import RequestMetrics
from tidelog.broker.http.resting import Resting

CHUNKS_MAX: Final = 2048
"""Maximum chunks of a chunked body that are taken in before other requests have their turn: some 2 ms; aiohttp's own
bound is 16,384.
"""


class Request(web.BaseRequest):
    """An HTTP request whose answer does not name the server software and its version."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Removes the `Server` header, and closes the connection after the answer while the listener stops. It
        overrides the method in which aiohttp sends a signal, since a signal would cost twice as much.
        """
        response.headers.popall("Server", None)
        if cast("Connection", self.protocol).is_draining:
            response.force_close()
            response.headers["Connection"] = "close"


class Server(web.Server):
    """Makes a `Connection` for each client, and stops all of them."""

    def __init__(
        self,
        serve: Any,
        limits: Limits,
        connections: ConnectionCount,
        metrics: RequestMetrics,
        now_s: Callable[[], float],
        shares: Shares | None = None,
        audit: Audit | None = None,
    ) -> None:
        """`shares` limits how often an address may connect; `audit` records addresses that connect more often."""
        self._loop_used = asyncio.get_running_loop()
        self.limits = limits
        self.count = connections
        self.resting = Resting(limits)
        self.heads = HeadDeadlines(self._loop_used, limits.head_timeout_s)
        self.large_bodies = LargeBodies(self._loop_used)
        self.metrics = metrics
        self.now_s = now_s
        self.shares = shares
        self.audit = audit
        super().__init__(serve, request_factory=self._new_request, handler_cancellation=True)

    def drain(self) -> None:
        """Makes every answer from now on the last one on its connection (`Connection: close`)."""
        self.resting.is_draining = True

    async def wait_for_the_last(self, seconds_max: float) -> None:
        """Waits until no connection is open, `seconds_max` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while not self.resting.is_empty:
                    await self.resting.connection_closed()

    def __call__(self) -> Connection:
        limits = self.limits
        return Connection(
            self,
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
        cast("Connection", protocol).begin(message, payload)
        if TRANSFER_ENCODING in message.headers:
            # However small the chunks of a body are, no more of them are parsed, or joined, in one go.
            payload._high_water_chunks = CHUNKS_MAX
            payload._low_water_chunks = CHUNKS_MAX // 2
        return Request(message, payload, protocol, writer, task, self._loop_used)
