"""Request bodies: admitted before they are read, then read once into one buffer, or refused unread.

The order matters. Length, encoding and bound are checked by the head alone; then the length is taken from the memory
budget that all requests share; only then is the client told to send (`100 Continue`) and the body read, straight into
the buffer in which a record batch is completed and from which it is written. So a flood costs no memory, and a refusal
costs no bandwidth where the client waits for `100 Continue`, as curl does for large bodies.

A chunked body does not declare its length, so bound and budget are checked for each piece that has arrived, before it
is kept. Such a body may be refused half-way; then the connection is closed after the error answer.

If a body ends half-way, its client has disconnected or gets a 408; nothing of it reaches a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from aiohttp import StreamReader, web
from aiohttp.hdrs import CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING

from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.json_body import decode_body
from tidelog.broker.http.media import check_document
from tidelog.broker.http.params import shown
from tidelog.model.errors import LengthRequired, RequestTimeout, TooLarge, UnsupportedMediaType
from tidelog.model.fresh_memory import fresh_memory

T = TypeVar("T")
R = TypeVar("R", bytearray, memoryview)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def read_body(context: Context, call: Call, bytes_max: int, *, is_optional: bool = False) -> bytearray:
    """Returns the whole body, at most `bytes_max` bytes; empty if there is none and it `is_optional`.

    Raises `LengthRequired` (411), `UnsupportedMediaType` (415, content encodings), `TooLarge` (413), `QuotaExceeded`
    (429), `Overloaded` (503) with the body unread, or partly read if it is chunked; `RequestTimeout` (408) if it does
    not arrive in time; `ConnectionError` if the client disconnects.
    """
    return await _read(context, call, bytes_max, bytearray, is_optional=is_optional)


async def read_batches(context: Context, call: Call) -> bytearray | memoryview:
    """Reads a body of record batches, which may be large, into writable memory. Raises `LengthRequired`,
    `UnsupportedMediaType`, `TooLarge`, `QuotaExceeded`, `Overloaded`, `RequestTimeout`; `ConnectionError` if the client
    disconnects.
    """
    return await _read(context, call, context.limits.batches_bytes_max, fresh_memory)


async def _read(
    context: Context, call: Call, bytes_max: int, room: Callable[[int], R], *, is_optional: bool = False
) -> R | bytearray:
    request = call.request
    check_encoding(request)
    content = request.content
    body: R | bytearray
    if TRANSFER_ENCODING in request.headers:  # the parser lets none but chunked through, and no length beside it
        body = bytearray()
        read = partial(_gather, context, call, body, bytes_max)
    else:
        size = _declared_size(request, is_optional)
        if size > bytes_max:
            raise _too_large(f"of {size} bytes", bytes_max)
        if call.share is not None:
            await call.share.take(size)
        context.admission.bodies.take(size)
        call.body_bytes += size
        call.received_bytes = size
        body = room(size)
        if size == 0:
            return body
        read = partial(_fill, body, content)
    if content.is_eof():  # it came with the head, as small bodies do: no timer needed
        await read()
    else:
        await _receive(request, read, context.limits.body_timeout_s)
    return body


async def read_json(context: Context, call: Call, kind: type[T]) -> T:
    """Returns the JSON body as a value of type `kind`. Raises `UnsupportedMediaType`, `InvalidRequest`,
    `LengthRequired`, `TooLarge`, `QuotaExceeded`, `Overloaded`, `RequestTimeout`; `ConnectionError` if the client
    disconnects.
    """
    check_document(call.request)
    return decode_body(kind, await read_body(context, call, context.limits.json_bytes_max))


def check_encoding(request: web.BaseRequest) -> None:
    """Raises `UnsupportedMediaType` for a body in a content encoding: compress inside the record batches instead."""
    encoding = request.headers.get(CONTENT_ENCODING)
    if encoding is not None and encoding.strip().lower() != "identity":
        raise UnsupportedMediaType(
            f"Content-Encoding {shown(encoding)} is not supported: send the body as it is (record batches have codecs)"
        )


async def invite_body(request: web.BaseRequest) -> None:
    """Sends `100 Continue` if the client waits for it."""
    if request.headers.get(EXPECT, "").lower() == "100-continue" and request.version >= (1, 1):
        writer = request.writer
        await writer.write(_CONTINUE)
        writer.output_size = 0  # so that an error can still be answered


async def _receive(request: web.BaseRequest, read: Callable[[], Awaitable[None]], timeout_s: float) -> None:
    """Runs `read`, which receives the body, after inviting the client to send it. Raises `RequestTimeout` if it takes
    longer than `timeout_s`.
    """
    await invite_body(request)
    try:
        async with asyncio.timeout(timeout_s):
            await read()
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {timeout_s:g} s; nothing of it was used") from None


def _declared_size(request: web.BaseRequest, is_optional: bool) -> int:
    length = request.headers.get(CONTENT_LENGTH)
    if length is not None:
        return int(length)  # the parser has checked that these are digits
    if is_optional:
        return 0
    raise LengthRequired("send a body, with a Content-Length header or in chunks")


def _too_large(size: str, bytes_max: int) -> TooLarge:
    return TooLarge(f"a body {size} is over the limit of {bytes_max}; send it in smaller requests")


async def _fill(body: bytearray | memoryview, content: StreamReader) -> None:
    """Copies a body of declared length into `body` as it arrives. The parser never delivers more than that length."""
    view = memoryview(body)
    filled = 0
    while filled < len(view):
        chunk, _ = await content.readchunk()
        if not chunk:
            raise ConnectionResetError("the body ended before its Content-Length")
        view[filled : filled + len(chunk)] = chunk
        filled += len(chunk)


async def _gather(context: Context, call: Call, body: bytearray, bytes_max: int) -> None:
    """Appends a chunked body to `body` as it arrives, up to its last chunk. Between two pieces other requests get their
    turn on the event loop.
    """
    while piece := await call.request.content.readany():
        call.received_bytes += len(piece)
        if call.received_bytes > bytes_max:
            raise _too_large("in chunks", bytes_max)
        if call.share is not None and body:
            call.share.take_more(len(piece))
        elif call.share is not None:
            await call.share.take(len(piece))
        context.admission.bodies.take(len(piece), held=call.body_bytes)
        call.body_bytes += len(piece)
        body += piece
        await asyncio.sleep(0)
