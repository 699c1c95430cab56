"""Answers: small ones in one write, large ones piece by piece under a deadline, errors in their one shape."""

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
"""A close does not wait for the client, and forgets what it has not taken."""
CLOSING_STATUSES: Final = frozenset({408, 411, 413, 415})
"""After these the body may still be on its way, and nothing tells where the next request begins."""

_ENCODER = msgspec.json.Encoder()
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def json_answer(
    value: object, *, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS, content_type: str = JSON_TYPE
) -> web.Response:
    """`value` as JSON."""
    return web.Response(body=_ENCODER.encode(value), status=status, headers={CONTENT_TYPE: content_type, **headers})


def encode(value: object) -> bytes:
    """`value` as JSON text."""
    return _ENCODER.encode(value)


def no_content() -> web.Response:
    """204: done, nothing to say."""
    return web.Response(status=204)


def error_answer(error: TidelogError, retry_after_s: int) -> web.Response:
    """Returns the error in its one shape, with the headers that go with its kind."""
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


async def send_records(
    context: Context, call: Call, data: Buffer, headers: Mapping[str, str], content_type: str
) -> web.StreamResponse:
    """Record data as one answer of known length. Raises as `send_parts`."""
    return await send_parts(context, call, [data], headers, content_type)


async def send_parts(
    context: Context, call: Call, parts: Sequence[Buffer], headers: Mapping[str, str], content_type: str
) -> web.StreamResponse:
    """Sends what the parts are together, as one answer of known length. Large data is counted against the budget for
    answers and sent in pieces, each under the drain deadline. Raises `Overloaded` if the budget is used up,
    `QuotaExceeded` if the caller's share is."""
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
    """Sends the head: no other answer is possible from here on."""
    if call.share is not None and call.share.waited_s:
        response.headers[THROTTLE_TIME] = call.share.waited_ms
    if call.request_id:
        response.headers[REQUEST_ID] = call.request_id
    call.is_open = True
    await response.prepare(call.request)


async def send_piece(context: Context, call: Call, response: web.StreamResponse, data: Buffer) -> None:
    """Sends `data`, waiting for the client to take it; cuts off one that does not within the drain deadline.

    Raises `ConnectionError` if the client is gone, or now is.
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
    """Has the kernel drop what it holds for a client, with a reset. It would go on offering it, some megabytes for each
    client, for as long as one takes a little of it now and then."""
    transport = call.request.transport
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is not None:  # a simulated network has none
        with contextlib.suppress(OSError):  # not Linux
            socket.setsockopt(SOL_SOCKET, SO_LINGER, AT_ONCE)


def cut(call: Call) -> None:
    """Ends the connection at once, so that a streamed answer is seen to be incomplete."""
    transport = call.request.transport
    if transport is not None:
        transport.abort()
