"""Validation of a record's fields in `send`, so that encoding its batch later cannot fail.

`send` handles common records itself and calls this module for all others. The error messages suggest what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model.batch_header import TIMESTAMP_MS_MAX
from tidelog.model.errors import InvalidRequest
from tidelog.model.records import Header, RecordLike
from tidelog.producer.accumulator import HEADER_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES


def checked_record(
    timestamp_ms: int, key: object, value: object, headers: Sequence[Header] | None
) -> tuple[RecordLike, int]:
    """Returns the record as the batch encoder takes it, and an upper bound of its encoded size in bytes. Raises
    `InvalidRequest`."""
    key_bytes = as_bytes("key", key)
    value_bytes = as_bytes("value", value)
    size = RECORD_OVERHEAD_BYTES + len(key_bytes or b"") + len(value_bytes or b"")
    if not headers:
        return (timestamp_ms, key_bytes, value_bytes), size
    checked = tuple(_checked_header(header) for header in headers)
    for name, content in checked:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return (timestamp_ms, key_bytes, value_bytes, checked), size


def checked_triples(
    timestamp_ms: int, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
) -> tuple[list[RecordLike], list[int]]:
    """Returns records with one timestamp and no headers as the batch encoder takes them, and an upper bound of each
    one's encoded size in bytes. Raises `InvalidRequest`."""
    if set(map(type, values)) - {bytes}:
        values = [as_bytes("value", value) for value in values]
    if keys is None:
        sizes = [RECORD_OVERHEAD_BYTES + (len(value) if value is not None else 0) for value in values]
        return [(timestamp_ms, None, value) for value in values], sizes
    if set(map(type, keys)) - {bytes}:
        keys = [as_bytes("key", key) for key in keys]
    pairs = list(zip(keys, values, strict=True))
    sizes = [RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") for key, value in pairs]
    return [(timestamp_ms, key, value) for key, value in pairs], sizes


def check_timestamp(timestamp_ms: object) -> None:
    """Raises `InvalidRequest` unless the timestamp is an integer of milliseconds since 1970 in the range of the batch
    format."""
    if type(timestamp_ms) is not int or not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidRequest(f"timestamp_ms must be an integer of milliseconds since 1970, not {timestamp_ms!r}")


def as_bytes(role: str, content: object) -> bytes | None:
    """Returns the content as bytes. Raises `InvalidRequest` for text and for objects without the buffer interface."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, (bytearray, memoryview)):
        return bytes(content)
    hint = "; encode it first, for example .encode()" if isinstance(content, str) else ""
    raise InvalidRequest(f"a record's {role} must be bytes or None, not {type(content).__name__}{hint}")


def _checked_header(header: object) -> Header:
    if not isinstance(header, (tuple, list)) or len(header) != 2 or not isinstance(header[0], str):
        raise InvalidRequest(f"a header is a pair of a string and bytes or None, not {header!r}")
    try:
        header[0].encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"header name {header[0]!r} is not valid Unicode") from error
    return (header[0], as_bytes("header value", header[1]))
