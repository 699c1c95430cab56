"""The table of HTTP error answers and their exceptions, and what a client may conclude when there is no answer at all.

A broker says `{"error_code", "message"}`; the code names the exception (`tidelog.model.errors`). A code this version
does not know becomes the nearest exception of its status, so that a newer broker never makes an older client
misjudge what is definite.

Some faults never cross the wire, because no broker saw or answered the request. They are `TidelogError`s as well, so
that one rule decides about retries:

- `ConnectFailed`, `BufferFull`, `DeliveryExpired`: definite, nothing was sent.
- `NoAnswer`, `DeliveryUnknown`: indefinite, the request may have done its work.
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
from tidelog.model.lost_ranges import LostRange, parse_lost

T = TypeVar("T")


class ConnectFailed(TidelogError):
    """No connection to a broker; the request was not sent."""

    code = 50380
    retriable = True


class BufferFull(TidelogError):
    """The producer's buffer stayed full for `max_block_ms`; the record was not taken (Kafka: BufferExhausted)."""

    code = 50381
    retriable = True


class DeliveryExpired(TidelogError):
    """`delivery_timeout_ms` passed before the record could be appended; surely it was not."""

    code = 50382


class NoAnswer(TidelogError):
    """The request was sent and the answer never came: the connection was cut, or time ran out."""

    code = 50480
    retriable = True


class DeliveryUnknown(TidelogError):
    """The record was sent at least once, and whether it was appended could not be found out."""

    code = 50481


class ClientClosed(TidelogError):
    """The client was closed, or never started."""

    code = 40980


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
    """The body of every error answer: the code's first three digits are the status."""

    error_code: int
    message: str


_ERROR_BODY = msgspec.json.Decoder(ErrorBody)


def error_from_answer(status: int, headers: Mapping[str, str], body: bytes) -> TidelogError:
    """Returns the exception that an answer with a status of 300 or more stands for."""
    try:
        error_body = _ERROR_BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):  # msgspec lets the second one through
        return _error_of_status(status, f"the answer has status {status} and no error body; is this a tidelog broker?")
    return error_from_code(error_body.error_code, error_body.message, headers)


def decode_answer(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decodes the body of a successful answer. Raises `NoAnswer` if it is something else: that is no tidelog broker."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the second one through
        raise NoAnswer(f"the answer makes no sense ({error}); is this a tidelog broker?") from error


def lost_from_answer(header: str | None) -> tuple[LostRange, ...]:
    """Returns the accepted losses that a read has passed, by the header of its answer. Raises `NoAnswer` if that makes
    no sense."""
    # An answer that is taken without it would have the reader skip records in silence.
    try:
        return parse_lost(header or "")
    except InvalidRequest as error:
        raise NoAnswer(f"the answer makes no sense ({error.message})") from error


def error_from_code(code: int, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> TidelogError:
    """Returns the exception of a five-digit code, as it stands in error bodies and in receipts."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return _error_of_status(code // 100, f"{message} (error code {code})")
    if kind is OffsetOutOfRange:
        return OffsetOutOfRange(
            message, _offset(headers, "Tidelog-Log-Start-Offset"), _offset(headers, "Tidelog-Log-End-Offset")
        )
    return kind(message)


def no_broker_answers(addresses: Iterable[str], timeout_s: float, error: TidelogError) -> ConnectFailed:
    """Returns the error of a client that found its cluster at none of its bootstrap addresses."""
    return ConnectFailed(f"no broker answers at {', '.join(addresses)} within {timeout_s:g} s: {error.message}")


def _error_of_status(status: int, message: str) -> TidelogError:
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = InvalidRequest if 300 <= status < 500 else InternalError
    return kind(message)


def _offset(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else -1
