"""A record as a JSON object, with its key and value in one of the formats `binary`, `json` and `text`.

A value that is longer than one slice of work (`model.steps`) is written in pieces, if its format allows that.
"""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw, Struct

from tidelog.model.errors import FormatMismatch
from tidelog.model.ports import Buffer
from tidelog.model.records import RecordForm, StoredRecord
from tidelog.model.steps import SLICE_BYTES, Steps

RECORD_OVERHEAD_BYTES: Final = 32
"""Bytes that a record counts towards the `max_bytes` of a read besides its key, value and headers."""
_NULL_TEXT: Final = b"null"
_NULL: Final = Raw(_NULL_TEXT)
_ANY: Final = msgspec.json.Decoder(Raw)
encode: Final = msgspec.json.Encoder().encode
_BASE64_BYTES: Final = 3 << 16
"""Bytes of a long value that are encoded at a time: a multiple of three, so that the base64 pieces fit together."""


class HeaderShown(Struct, frozen=True):
    """A record header; the value is base64, or null."""

    key: str
    value: bytes | None


class RecordShown(Struct, frozen=True):
    """A stored record. `key` and `value` are in the format that `Accept` asks for; `timestamp` is in ms, -1 is none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Raw
    value: Raw
    headers: list[HeaderShown]


def size_of(record: StoredRecord) -> int:
    """Returns the bytes that a record counts towards the `max_bytes` of a read."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def show(topic: str, partition: int, record: StoredRecord, form: RecordForm) -> RecordShown:
    """Returns a record in one of the formats. Raises `FormatMismatch`, naming its offset, if key or value is not JSON
    or UTF-8 as the format requires.
    """
    written = _WRITERS[form]
    return RecordShown(
        topic,
        partition,
        record.offset,
        record.timestamp_ms,
        written(record.key, "key", record.offset),
        written(record.value, "value", record.offset),
        [HeaderShown(name, value) for name, value in record.headers],
    )


def show_long(topic: str, partition: int, record: StoredRecord, form: RecordForm) -> Steps[list[bytes]]:
    """Returns the JSON of a record with a long value, in pieces: the fields before the value, the value in parts, the
    fields after it. Raises `FormatMismatch` if key or value is not JSON or UTF-8 as the format requires.
    """
    around = show(topic, partition, record._replace(value=None), form)
    behind = b',"headers":%b}' % encode(around.headers)
    before = encode(around)[: -len(_NULL_TEXT + behind)]
    assert record.value is not None
    value = yield from _LONG_WRITERS[form](record.value, record.offset)
    return [before, *value, behind]


def is_json(data: Buffer) -> bool:
    """Returns True if the bytes are one valid JSON value, which can be put into a JSON answer as it is."""
    try:
        text = bytes(data)
        if not text.isascii():
            text.decode()
        _ANY.decode(text)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return False
    return True


def _as_base64(data: bytes | None, _field: str, _offset: int) -> Raw:
    return _NULL if data is None else Raw(b'"%b"' % b64encode(data))


def _as_json(data: bytes | None, field: str, offset: int) -> Raw:
    if data is None:
        return _NULL
    if not is_json(data):
        raise _mismatch(field, offset, "JSON")
    return Raw(data)


def _as_text(data: bytes | None, field: str, offset: int) -> Raw:
    if data is None:
        return _NULL
    try:
        return Raw(encode(data.decode()))
    except UnicodeDecodeError:
        raise _mismatch(field, offset, "UTF-8") from None


def _mismatch(field: str, offset: int, expected: str) -> FormatMismatch:
    return FormatMismatch(
        f"the {field} of the record at offset {offset} is not {expected}; read it with Accept: "
        "application/vnd.kafka.binary.v2+json"
    )


def _long_base64(data: bytes, _offset: int) -> Steps[list[bytes]]:
    pieces = [b'"']
    view = memoryview(data)
    for start in range(0, len(data), _BASE64_BYTES):
        pieces.append(b64encode(view[start : start + _BASE64_BYTES]))
        yield None
    return [*pieces, b'"']


def _long_json(data: bytes, offset: int) -> Steps[list[bytes]]:
    """Checks and returns a long JSON value as one piece, because a JSON document cannot be checked in parts."""
    if not is_json(data):
        raise _mismatch("value", offset, "JSON")
    yield None
    return [data]


def _long_text(data: bytes, offset: int) -> Steps[list[bytes]]:
    decoder, pieces = getincrementaldecoder("utf-8")(), [b'"']
    view = memoryview(data)
    for start in range(0, len(data), SLICE_BYTES):
        try:
            text = decoder.decode(view[start : start + SLICE_BYTES], start + SLICE_BYTES >= len(data))
        except UnicodeDecodeError:
            raise _mismatch("value", offset, "UTF-8") from None
        pieces.append(encode(text)[1:-1])
        yield None
    return [*pieces, b'"']


_LONG_WRITERS: Final[Mapping[RecordForm, Callable[[bytes, int], Steps[list[bytes]]]]] = MappingProxyType(
    {"binary": _long_base64, "json": _long_json, "text": _long_text}
)
_WRITERS: Final[Mapping[RecordForm, Callable[[bytes | None, str, int], Raw]]] = MappingProxyType(
    {"binary": _as_base64, "json": _as_json, "text": _as_text}
)
