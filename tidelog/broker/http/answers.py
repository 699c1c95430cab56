"""Sends answers: small ones in one write, large ones piece by piece under a deadline, errors in their common shape."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.hdrs import CONTENT_TYPE

from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.media import JSON_TYPE
from tidelog.model.errors import OffsetOutOfRange, TidelogError
from tidelog.model.ports import Buffer
from tidelog.transport.errors import ErrorBody

RETRY_AFTER_S_MAX: Final = 4
REQUEST_ID: Final = "X-Request-Id"
THROTTLE_TIME: Final = "Tidelog-Throttle-Time-Ms"
SOL_SOCKET: Final = 1  # Linux
SO_LINGER: Final = 13  # Linux
AT_ONCE: Final = struct.pack("ii", 1, 0)
"""The socket option SO_LINGER with zero seconds: a close does not wait for the client, and drops unsent data."""
CLOSING_STATUSES: Final = frozenset({408, 411, 413, 415})
"""Statuses after which the connection is closed: the request body may still be arriving, and nothing marks where the
next request begins.
"""

encode: Final = msgspec.json.Encoder().encode
"""Returns a value as JSON text."""
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def json_answer(
    value: object, *, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS, content_type: str = JSON_TYPE
) -> web.Response:
    """Returns an answer with `value` as JSON."""
    return web.Response(body=encode(value), status=status, headers={CONTENT_TYPE: content_type, **headers})


def no_content() -> web.Response:
    """Returns an answer 204 without a body."""
    return web.Response(status=204)


def error_answer(error: TidelogError, retry_after_s: int) -> web.Response:
    """Returns the answer for an error: its code and message as JSON, with `Retry-After` (429, 503) or log positions
    (offset out of range) as headers.
    """
    headers = {}
    if error.status in (429, 503):
        headers["Retry-After"] = str(retry_after_s)
    if isinstance(error, OffsetOutOfRange):
        positions = {
            "Tidelog-Log-Start-Offset": error.log_start_offset,
            "Tidelog-High-Watermark": error.high_watermark,
            "Tidelog-Log-End-Offset": error.log_end_offset,
            "Tidelog-Leader-Epoch": error.leader_epoch,
        }
        headers |= {name: str(value) for name, value in positions.items() if value is not None}
    return json_answer(ErrorBody(error.code, error.message), status=error.status, headers=headers)


async def send_parts(
    context: Context, call: Call, parts: Sequence[Buffer], headers: Mapping[str, str], content_type: str
) -> web.StreamResponse:
    """Sends the concatenated `parts` as one answer of known length. Large data is counted against the memory budget for
    answers and sent in pieces, each under the drain deadline. Raises `Overloaded` if the budget is used up,
    `QuotaExceeded` if the caller's quota is.
    """
    headers = {CONTENT_TYPE: content_type, **headers}
    size = sum(map(len, parts))
    if size <= context.limits.small_answer_bytes:
        if call.share is not None:
            await call.share.send(size)
        return web.Response(body=b"".join(parts), headers=headers)
    context.admission.answers.take(size)
    call.answer_bytes += size
    if call.share is not None:
        await call.share.send(size)
    response = web.StreamResponse(headers=headers)
    response.content_length = size
    await open_stream(call, response)
    await context.timed(context.stages.fetch_send, _send_all(context, call, response, parts))
    return response


async def _send_all(context: Context, call: Call, response: web.StreamResponse, parts: Sequence[Buffer]) -> None:
    for part in parts:
        await send_piece(context, call, response, part)


async def open_stream(call: Call, response: web.StreamResponse) -> None:
    """Sends the head of a streamed answer. After this no error answer is possible, only a cut connection."""
    if call.share is not None and call.share.waited_s:
        response.headers[THROTTLE_TIME] = call.share.waited_ms
    if call.request_id:
        response.headers[REQUEST_ID] = call.request_id
    call.is_open = True
    await response.prepare(call.request)


async def send_piece(context: Context, call: Call, response: web.StreamResponse, data: Buffer) -> None:
    """Sends `data` and waits until the client has taken it; cuts off a client that does not within the drain deadline.

    Raises `ConnectionError` if the client has disconnected or was cut off.
    """
    view = memoryview(data)
    step = context.limits.piece_bytes
    for start in range(0, len(view), step):
        try:
            async with asyncio.timeout(context.limits.drain_timeout_s):
                await response.write(view[start : start + step])
        except TimeoutError:
            context.metrics.refused("slow reader")
            _forget_unsent(call)
            cut(call)
            raise ConnectionAbortedError("the client does not take its answer") from None
    call.sent_bytes += len(view)


def _forget_unsent(call: Call) -> None:
    """Makes the kernel drop the connection's unsent data, with a reset. Otherwise it keeps some megabytes for each
    client that reads a little now and then.
    """
    transport = call.request.transport
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is not None:  # a simulated network has none
        with contextlib.suppress(OSError):  # not Linux
            socket.setsockopt(SOL_SOCKET, SO_LINGER, AT_ONCE)


def cut(call: Call) -> None:
    """Cuts the connection, so that the client sees that a streamed answer is incomplete."""
    transport = call.request.transport
    if transport is not None:
        transport.abort()
