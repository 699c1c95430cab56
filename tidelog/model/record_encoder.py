"""Encodes records as a flat list of byte strings, to be joined at once, with varints from a table.

`batch_codec` shows the layout. Nearly every record is small and comes in a batch without headers. It then costs table
look-ups and one `extend`, no calls. Only a record with a length beyond the table is encoded the slow way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import cast

from tidelog.model.batch_header import TIMESTAMP_MS_MAX
from tidelog.model.errors import InvalidRequest
from tidelog.model.records import Header, RecordLike
from tidelog.model.varint import VARINT_TABLE_SIZE, VARINTS, encode_varint

_NULL = encode_varint(-1)
_NOTHING_BEFORE = b"\0" * 3
"""Encoded attributes and deltas of a batch's first record: all 0."""
_VARINT_SIZES = tuple(map(len, VARINTS))
_OPENINGS = tuple(b"\0" + varint for varint in VARINTS)
"""Encoded attributes and timestamp delta of a record, by timestamp delta."""
_HEADERS = itemgetter(3)
_PLAIN = itemgetter(0, 1, 2)
_Plain = tuple[int, bytes | None, bytes | None]


def encode_records(
    records: Sequence[RecordLike], first: int = 0, base_timestamp: int | None = None
) -> tuple[list[bytes], int]:
    """Returns the encoded records as byte strings to be joined, and their largest timestamp. The base timestamp is by
    default the first record's; `first` is the index of that record in the batch.

    Raises `InvalidRequest` for a timestamp out of range.
    """
    if base_timestamp is None:
        base_timestamp = records[0][0]
    _check_timestamp(base_timestamp)
    try:
        return _plain_parts(_without_headers(records), first, base_timestamp)
    except ValueError:
        return _parts(records, first, base_timestamp)


def encode_around(key: bytes | None, value_bytes: int | None) -> tuple[bytes, bytes]:
    """Returns the encoded bytes before and after the value of a batch's only record, which has no headers.
    `value_bytes` is the value's size, None for null."""
    length = _NULL if value_bytes is None else _varint(value_bytes)
    opening = b"".join((_NOTHING_BEFORE, *_field(key), length))
    return _varint(len(opening) + (value_bytes or 0) + 1) + opening, b"\0"


def _plain_parts(records: Iterable[_Plain], first: int, base_timestamp: int) -> tuple[list[bytes], int]:
    varints, sizes, null = VARINTS, _VARINT_SIZES, _NULL
    parts: list[bytes] = []
    add = parts.extend
    latest = max_timestamp = base_timestamp
    opening = _OPENINGS[0]
    for index, (timestamp, key, value) in enumerate(records, first):
        if timestamp != latest:  # neighbours are often of one millisecond
            latest = timestamp
            if timestamp > max_timestamp:  # noqa: PLR1730 - max() is a call
                max_timestamp = timestamp
            delta = timestamp - base_timestamp
            opening = _OPENINGS[delta] if 0 <= delta < VARINT_TABLE_SIZE else _wide_opening(timestamp, delta)
        try:
            if key is None and value is not None:  # nearly every record: the fewest parts
                size = len(value)
                add((
                    varints[len(opening) + sizes[index] + 2 + sizes[size] + size], opening, varints[index],
                    null, varints[size], value, b"\0",
                ))  # fmt: skip
                continue
            key_bytes, key_length = (b"", null) if key is None else (key, varints[len(key)])
            value_bytes, value_length = (b"", null) if value is None else (value, varints[len(value)])
            size = len(opening) + sizes[index] + len(key_length) + len(key_bytes) + len(value_length) + len(value_bytes)
            add((
                varints[size + 1], opening, varints[index], key_length, key_bytes, value_length, value_bytes, b"\0",
            ))  # fmt: skip
        except IndexError:  # a length or an index beyond the table
            add(_record_parts(index, timestamp - base_timestamp, key, value, ()))
    _check_timestamp(max_timestamp)
    return parts, max_timestamp


def _without_headers(records: Sequence[RecordLike]) -> Iterable[_Plain]:
    """Returns the records as triples. Raises `ValueError` if a record has headers, but not always for a mixture of
    tuples with and without: unpacking it then raises."""
    if len(records[0]) == 3:
        return cast("Sequence[_Plain]", records)
    try:
        headers = any(map(_HEADERS, records))
    except IndexError:
        headers = True
    if headers:
        raise ValueError
    return map(_PLAIN, records)


def _parts(records: Sequence[RecordLike], first: int, base_timestamp: int) -> tuple[list[bytes], int]:
    timestamps = [record[0] for record in records]
    _check_timestamp(min(timestamps))
    _check_timestamp(max(timestamps))  # both before a delta outgrows 64 bits
    parts: list[bytes] = []
    for index, (timestamp, key, value, *rest) in enumerate(records, first):
        parts += _record_parts(index, timestamp - base_timestamp, key, value, rest[0] if rest else ())
    return parts, max(timestamps)


def _record_parts(
    index: int, delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> tuple[bytes, bytes]:
    body = [b"\0", _varint(delta), _varint(index), *_field(key), *_field(value), _varint(len(headers))]
    for name, content in headers:
        body += _field(name.encode())
        body += _field(content)
    record = b"".join(body)
    return _varint(len(record)), record


def _wide_opening(timestamp: int, delta: int) -> bytes:
    _check_timestamp(timestamp)
    return b"\0" + encode_varint(delta)


def _check_timestamp(timestamp: int) -> None:
    if not -1 <= timestamp <= TIMESTAMP_MS_MAX:
        raise InvalidRequest(f"timestamp {timestamp} is out of range: use milliseconds since 1970, or -1 for none")


def _varint(value: int) -> bytes:
    return VARINTS[value] if 0 <= value < VARINT_TABLE_SIZE else encode_varint(value)


def _field(content: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if content is None else (_varint(len(content)), content)
