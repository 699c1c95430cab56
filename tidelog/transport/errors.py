"""The table of HTTP error responses and their exceptions, and the errors of requests that got no response.

A broker's error body is `{"error_code", "message"}`; the code determines the exception (`tidelog.model.errors`). A code
that this version does not know becomes the closest exception with the same HTTP status. So an older client still
distinguishes definite errors of a newer broker from indefinite ones.

Some errors arise in the client only. They are `TidelogError`s as well, so that one rule decides about retries:

- `ConnectFailed`, `BufferFull`, `DeliveryExpired`: definite, nothing was sent.
- `NoAnswer`, `DeliveryUnknown`: indefinite, the broker may have executed the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from tidelog.model import errors
from tidelog.model.errors import (
    InternalError,
    InvalidRequest,
    OffsetOutOfRange,
    Overloaded,
    QuotaExceeded,
    RequestTimeout,
    ShuttingDown,
    TidelogError,
    TimedOutAfterAppend,
    TooLarge,
)
from tidelog.model.json_decoders import decoder_of
from tidelog.model.lost_ranges import LostRange, parse_lost

T = TypeVar("T")


class ConnectFailed(TidelogError, code=50380, retriable=True):
    """No connection to a broker; the request was not sent."""


class BufferFull(TidelogError, code=50381, retriable=True):
    """The producer's buffer stayed full for `max_block_ms`; the record was not taken (Kafka: BufferExhausted)."""


class DeliveryExpired(TidelogError, code=50382):
    """The record was certainly not appended, and `delivery_timeout_ms` has passed."""


class NoAnswer(TidelogError, code=50480, retriable=True):
    """The request was sent, but no response came: the connection was cut, or the request timed out."""


class DeliveryUnknown(TidelogError, code=50481):
    """The record was sent at least once, and it is unknown whether it was appended."""


class ClientClosed(TidelogError, code=40980):
    """The client was closed, or never started."""


_BY_CODE: Final[Mapping[int, type[TidelogError]]] = MappingProxyType(
    {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TidelogError) and "code" in vars(kind)
    }
)

_BY_STATUS: Final[Mapping[int, type[TidelogError]]] = MappingProxyType(
    {
        408: RequestTimeout,
        413: TooLarge,
        429: QuotaExceeded,
        503: ShuttingDown,
        504: TimedOutAfterAppend,
        507: Overloaded,
    }
)


class ErrorBody(msgspec.Struct, frozen=True):
    """The JSON body of every error response. The first three digits of `error_code` are the HTTP status."""

    error_code: int
    message: str


def error_from_answer(status: int, headers: Mapping[str, str], body: bytes) -> TidelogError:
    """Returns the exception for a response with a status of 300 or more."""
    try:
        error_body = decoder_of(ErrorBody).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):  # msgspec lets the second one through
        return _error_of_status(status, f"the answer has status {status} and no error body; is this a tidelog broker?")
    return error_from_code(error_body.error_code, error_body.message, headers)


def decode_answer(kind: type[T], body: bytes) -> T:
    """Returns the body of a successful response as a `kind`. Raises `NoAnswer` if it is malformed, since the sender is
    then no tidelog broker."""
    decoder: msgspec.json.Decoder[T] = decoder_of(kind)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        raise NoAnswer(f"the answer makes no sense ({error}); is this a tidelog broker?") from error


def lost_from_answer(header: str | None) -> tuple[LostRange, ...]:
    """Returns the offset ranges that were given up as lost, parsed from the header of a fetch response. Raises
    `NoAnswer` if the header is malformed."""
    # An answer that is taken without it would have the reader skip records in silence.
    try:
        return parse_lost(header or "")
    except InvalidRequest as error:
        raise NoAnswer(f"the answer makes no sense ({error.message})") from error


def error_from_code(code: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> TidelogError:
    """Returns the exception for a five-digit error code, as in error bodies and in the per-batch results of a produce
    response."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return _error_of_status(code // 100, f"{message} (error code {code})")
    if kind is OffsetOutOfRange:
        return OffsetOutOfRange(
            message, _offset(headers, "Tidelog-Log-Start-Offset"), _offset(headers, "Tidelog-Log-End-Offset")
        )
    return kind(message)


def no_broker_answers(addresses: Iterable[str], timeout_s: float, error: TidelogError) -> ConnectFailed:
    """Returns the error of a client that reached no broker at any of its bootstrap addresses."""
    return ConnectFailed(f"no broker answers at {', '.join(addresses)} within {timeout_s:g} s: {error.message}")


def _error_of_status(status: int, message: str) -> TidelogError:
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = InvalidRequest if 300 <= status < 500 else InternalError
    return kind(message)


def _offset(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else -1
