"""The output formats of `tidelog consume`: a record's value as a line, or the record as a JSON object."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson

from tidelog.cli.terminal import printable
from tidelog.consumer import ConsumerRecord

Show = Callable[[ConsumerRecord], bytes]


def as_line(separator: bytes | None, *, is_for_screen: bool) -> Show:
    """Returns a formatter for the value and a newline, byte for byte; with `separator`, the key before it. None is
    empty.

    On a terminal, unprintable characters become U+FFFD, so that a record cannot control the terminal.
    """

    def show(record: ConsumerRecord) -> bytes:
        value = record.value or b""
        text = value if separator is None else (record.key or b"") + separator + value
        return (_printable(text) if is_for_screen else text) + b"\n"

    return show


def as_json(record: ConsumerRecord) -> bytes:
    """Returns a JSON object and a newline."""
    return orjson.dumps(as_object(record), option=orjson.OPT_APPEND_NEWLINE)


def as_object(record: ConsumerRecord) -> dict[str, Any]:
    """Returns the JSON form of a record in the REST interface, with key and value as text if they are valid UTF-8."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"key": key, "value": None if value is None else _base64(value)} for key, value in record.headers],
    }


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": _base64(data)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _printable(text: bytes) -> bytes:
    return "\t".join(map(printable, text.decode(errors="replace").split("\t"))).encode()
