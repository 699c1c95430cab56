from __future__ import annotations

import json

import pytest

from tidelog.cli.record_text import as_json, as_line
from tidelog.consumer import ConsumerRecord


def record(key: bytes | None = b"k", value: bytes | None = b"v") -> ConsumerRecord:
    return ConsumerRecord("t", 2, 17, 1_700_000_000_000, 0, key, value, (("h", b"\xff"), ("none", None)))


def test_a_json_line_has_all_that_a_record_has() -> None:
    shown = as_json(record())
    assert shown.endswith(b"}\n")
    assert json.loads(shown) == {
        "topic": "t",
        "partition": 2,
        "offset": 17,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v",
        "headers": [{"key": "h", "value": "/w=="}, {"key": "none", "value": None}],
    }


def test_what_is_not_utf8_is_base64_under_another_name() -> None:
    shown = json.loads(as_json(record(key=b"\xff\xfe", value=b"\x80")))
    assert (shown["key_base64"], shown["value_base64"]) == ("//4=", "gA==")
    assert "key" not in shown
    assert "value" not in shown


def test_null_is_null() -> None:
    shown = json.loads(as_json(record(key=None, value=None)))
    assert (shown["key"], shown["value"]) == (None, None)


@pytest.mark.parametrize(
    ("separator", "key", "value", "line"),
    [
        (None, b"k", b"v\xff\r", b"v\xff\r\n"),
        (b"=", b"k", b"v", b"k=v\n"),
        (b"=", None, None, b"=\n"),
        (None, b"k", None, b"\n"),
    ],
)
def test_a_line_is_the_value_byte_for_byte(
    separator: bytes | None, key: bytes | None, value: bytes | None, line: bytes
) -> None:
    assert as_line(separator, is_for_screen=False)(record(key, value)) == line


def test_a_record_cannot_command_the_terminal() -> None:
    show = as_line(None, is_for_screen=True)
    assert show(record(value="\x1b[2J\tü\xff".encode())) == "\ufffd[2J\tüÿ\n".encode()
    assert show(record(value=b"\xff")) == "\ufffd\n".encode()
