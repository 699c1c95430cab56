"""JSON bodies: exact text in, typed values out, and a 400 for everything else."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.http.json_body import (
    BinaryRecords,
    EntriesV3,
    JsonRecord,
    JsonRecords,
    RecordV3,
    decode_body,
    decode_items,
    iso_time,
    milliseconds,
    stored_json,
)
from tidelog.broker.routing.json_records import is_json
from tidelog.model.errors import InvalidRequest


def value_of(text: bytes) -> bytes | None:
    return stored_json(decode_body(JsonRecords, b'{"records":[{"value": %b }]}' % text).records[0].value)


@pytest.mark.parametrize(
    "text",
    [b'"AA"', b"1.0", b"1180591620717411303424", b'{"b":1,"a":2}', b'{"a":1,"a":2}', b"1e400", b"[ 1,\n2 ]", b"true",
     b'"\\ud83d\\ude00"', b'"\\u0000"', "\u00e9".join('""').encode(), b"-0.0", b'{"a" : [ ] }', b"9" * 5000],
)  # fmt: skip
def test_json_is_kept_as_it_was_written(text: bytes) -> None:
    assert value_of(text) == text


def test_null_and_absent_are_none() -> None:
    assert value_of(b"null") is None
    record = decode_body(JsonRecords, b'{"records":[{}]}').records[0]
    assert stored_json(record.key) is None
    assert stored_json(record.value) is None


@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))  # fmt: skip
def test_whatever_python_writes_is_kept(value: object) -> None:
    try:
        text = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # lone surrogates are no text
        return
    assert value_of(text) == (None if value is None else text)
    assert is_json(text)


BAD_BODIES = [
    b"", b" ", b"{", b"[]", b"null", b'"records"', b"{}", b'{"records":null}', b'{"records":{}}', b'{"records":[1]}',
    b'{"records":[{"value":NaN}]}', b'{"records":[{"value":Infinity}]}', b'{"records":[{"value":01}]}',
    b'{"records":[{"value":"\xff"}]}', b'{"records":[{"value":"\xed\xa0\x80"}]}', b'{"records":[{"value":"\\ud800"}]}',
    b'{"records":[{"value":"\\ud800 and more text"}]}', b'{"records":[{"value":"\\udc00"}]}',
    b'{"records":[{"value":"a\x01"}]}',
    b'{"records":[{"value":1}]} x', b'{"records":[{"value":1}]}\x00', b'\xef\xbb\xbf{"records":[]}',
    b'{"records":[],"more":1}', b'{"records":[{"valeu":1}]}', b'{"records":[],"key_schema":[}',
    b'{"records":[{"partition":"0"}]}', b'{"records":[{"partition":true}]}', b'{"records":[{"partition":0.0}]}',
    b'{"records":[{"partition":-1}]}', b'{"records":[{"partition":2147483648}]}', b'{"records":[{"partition":1e400}]}',
    b'{"records":[{"timestamp":-1}]}', b'{"records":[{"timestamp":9223372036854775808}]}',
    b'{"records":[{"timestamp":' + b"9" * 900_000 + b"}]}", b'{"records":[{"headers":[{"key":1}]}]}',
    b'{"records":[{"headers":[{"key":"a","value":"*"}]}]}', b'{"records":[{"headers":[{"value":"AA=="}]}]}',
    b"[" * 100_000, b'{"records":[{"value":' + b"[" * 100_000, b'{"records":' + b"[" * 100_000,
    b'{"records":[{"value":' + b'{"a":' * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_bad_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(JsonRecords, body)
    assert len(caught.value.message) < 300


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_get_past_but_as_a_body_or_a_400(body: bytes) -> None:
    """F110."""
    for kind in (JsonRecords, BinaryRecords, RecordV3, EntriesV3):
        with suppress(InvalidRequest):
            decode_body(kind, body)


def test_binary_is_base64() -> None:
    records = decode_body(BinaryRecords, b'{"records":[{"key":"","value":"AAH/"},{"value":null}]}').records
    assert [(record.key, record.value) for record in records] == [(b"", b"\x00\x01\xff"), (None, None)]


@pytest.mark.parametrize("text", [b'"AA"', b'"A A="', b'"_-=="', b"5", b"[]", b'"AA==AA=="', b'"\\u00e9AA="'])
def test_bad_base64_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="value"):
        decode_body(BinaryRecords, b'{"records":[{"value":%b}]}' % text)


@pytest.mark.parametrize("data", [b"", b"{", b"1 2", b"\xff", b"NaN", b'"\\ud800"', b"[" * 100_000, b"text", b"'a'"])
def test_what_is_no_json_is_told(data: bytes) -> None:
    assert not is_json(data)


def test_times() -> None:
    east = timezone(timedelta(hours=2))
    assert milliseconds(datetime(2021, 2, 5, 19, 14, 42, 123_456, tzinfo=UTC)) == 1612552482123
    assert milliseconds(datetime(2021, 2, 5, 21, 14, 42, tzinfo=east)) == 1612552482000
    assert milliseconds(datetime(2021, 2, 5, 19, 14, 42)) == 1612552482000  # noqa: DTZ001 - no zone is UTC
    assert iso_time(1612552482123) == "2021-02-05T19:14:42.123Z"
    assert iso_time(-1) is None
    assert iso_time(2**62) is None
    with pytest.raises(InvalidRequest, match="1970"):
        milliseconds(datetime(1969, 12, 31, tzinfo=UTC))
    with pytest.raises(InvalidRequest, match="1970"):
        milliseconds(datetime.min.replace(tzinfo=east))


@given(st.integers(0, 253402300799999))
def test_times_survive_a_round_trip(timestamp_ms: int) -> None:
    text = iso_time(timestamp_ms)
    assert text is not None
    assert milliseconds(datetime.fromisoformat(text)) == timestamp_ms


# -- large bodies ----------------------------------------------------------------------------------------------------


def _pieces(body: bytes) -> tuple[list[JsonRecord], int]:
    slices = 1
    steps = decode_items(JsonRecords, "records", JsonRecord, bytearray(body))
    while True:
        try:
            next(steps)
            slices += 1
        except StopIteration as end:
            return end.value, slices


@pytest.mark.parametrize(
    "value",
    [
        b"1",
        b'"},{"',
        b'[{"a":1},{"b":2},{}]',
        b'"\\"},{\\\\"',
        b'{"a":{"b":[{},{}]}}',
        b"{}" * 1,
        b'"%b"' % (b"},{" * 40_000),
    ],
)
def test_a_large_body_is_decoded_in_pieces_that_are_its_records(value: bytes) -> None:
    record = b' {"value":%b} ' % value
    body = b'{"key_schema_id": 1, "records":[%b]}' % b",".join([record] * (2 + 300_000 // len(record)))
    found, slices = _pieces(body)
    assert [bytes(one.value) for one in found] == [bytes(one.value) for one in decode_body(JsonRecords, body).records]
    assert slices > 3


def test_what_is_wrong_in_a_large_body_is_named_by_its_place_there() -> None:
    good = b",".join([b'{"value":1}'] * 20_000)
    for bad, message in (
        (b'{"value":1,"partition":-1}', r"`\$\.records\[20000\]\.partition`"),
        (b"17", r"`\$\.records\[20000\]`"),
        (b'{"value":tru}', "malformed"),
        (b'{"value":"\xff"}', "UTF-8"),
        (b'{"valu":1}', "valu"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            _pieces(b'{"records":[%b,%b,%b]}' % (good, bad, good))
    with pytest.raises(InvalidRequest, match="array"):
        _pieces(b'{"records":{"a":[%b]}}' % good)
    with pytest.raises(InvalidRequest, match="more"):
        _pieces(b'{"records":[%b],"more":1}' % good)
    with pytest.raises(InvalidRequest, match="trailing"):
        _pieces(b'{"records":[%b]}]' % good)
    assert _pieces(b'{"records":[%b]}' % (b" " * 100_000))[0] == []
