"""Request bodies: admitted before they are read, read once into one buffer, or refused unread.

The order is the point. Length, encoding and bound are judged on the head alone; then the length is taken from the
budget that all requests share; only then is the client told to send (`100 Continue`) and the body read, straight into
the buffer that a record batch will be patched in and written from. So a flood costs no memory, and a refusal costs no
bandwidth where the client waits for `100 Continue`, as curl does for large bodies.

A body that stops half-way is a client that is gone, or that will be told 408: nothing of it reaches a handler.
"""

from __future__ import annotations

import asyncio

from aiohttp import StreamReader, web

from tidelog.broker.http.context import Call, Context
from tidelog.broker.http.params import shown
from tidelog.model.errors import LengthRequired, RequestTimeout, TooLarge, UnsupportedMediaType

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def read_body(context: Context, call: Call, bytes_max: int, *, is_optional: bool = False) -> bytearray:
    """The whole body, at most `bytes_max` bytes; empty if there is none and `is_optional`.

    Raises `LengthRequired` (411), `UnsupportedMediaType` (415, content encodings), `TooLarge` (413), `Overloaded`
    (503) with the body unread; `RequestTimeout` (408) if it does not come in time; `ConnectionError` if the client
    goes away.
    """
    request = call.request
    check_encoding(request)
    size = _declared_size(request, is_optional)
    if size > bytes_max:
        raise TooLarge(f"a body of {size} bytes is over the limit of {bytes_max}; send it in smaller requests")
    body = bytearray(size)
    if size == 0:
        return body
    context.bodies.take(size)
    call.body_bytes += size
    call.received_bytes = size
    content = request.content
    if content.is_eof():  # it came with the head, as small bodies do: no timer needed
        await _fill(body, content)
        return body
    await invite_body(request)
    try:
        async with asyncio.timeout(context.limits.body_timeout_s):
            await _fill(body, content)
    except TimeoutError:
        raise RequestTimeout(
            f"the body did not arrive within {context.limits.body_timeout_s:g} s; nothing of it was used"
        ) from None
    return body


def check_encoding(request: web.BaseRequest) -> None:
    """`UnsupportedMediaType` for a body in a content encoding: compress inside the record batches instead."""
    encoding = request.headers.get("Content-Encoding")
    if encoding is not None and encoding.strip().lower() != "identity":
        raise UnsupportedMediaType(
            f"Content-Encoding {shown(encoding)} is not supported: send the body as it is (record batches have codecs)"
        )


async def invite_body(request: web.BaseRequest) -> None:
    """Sends `100 Continue` if the client waits for it."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= (1, 1):
        writer = request.writer
        await writer.write(_CONTINUE)
        writer.output_size = 0  # so that an error can still be answered


def _declared_size(request: web.BaseRequest, is_optional: bool) -> int:
    headers = request.headers
    length = headers.get("Content-Length")
    if length is not None:
        return int(length)  # the parser has checked that these are digits
    if is_optional and "Transfer-Encoding" not in headers:
        return 0
    raise LengthRequired("send a Content-Length header: this request cannot be chunked")


async def _fill(body: bytearray, content: StreamReader) -> None:
    """Copies what comes into its place. The parser never delivers more than the declared length."""
    view = memoryview(body)
    filled = 0
    while filled < len(view):
        chunk, _ = await content.readchunk()
        if not chunk:
            raise ConnectionResetError("the body ended before its Content-Length")
        view[filled : filled + len(chunk)] = chunk
        filled += len(chunk)
