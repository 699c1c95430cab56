"""The types of Kafka's protocol: what is written is read again, and a frame that claims too much is malformed."""

from __future__ import annotations

from struct import Struct, pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.kafka_wire import (
    ENTRIES_MAX,
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    VARINT_BYTES_MAX,
    Malformed,
    Reader,
    array,
    int32s,
    string,
    tagged,
    uvarint,
)
from tidelog.model.receipt_tags import REQUEST_TAG, TAG, is_requested


def reader(frame: bytes, position: int = 0) -> Reader:
    return Reader(memoryview(frame), position)


def test_numbers_are_read_one_behind_the_other() -> None:
    frame = b"\xfe\x7f\x00\x01" + INT16.pack(-2) + INT32.pack(-3) + INT64.pack(-4) + pack(">d", 0.5) + bytes(range(16))
    read = reader(b"?" + frame, 1)
    assert (read.int8(), read.int8(), read.boolean(), read.boolean()) == (-2, 127, False, True)
    assert (read.int16(), read.int32(), read.int64(), read.float64()) == (-2, -3, -4, 0.5)
    assert read.uuid() == bytes(range(16)).hex()
    assert read.position == read.end == len(frame) + 1


@pytest.mark.parametrize("kind", ["int8", "boolean", "int16", "int32", "int64", "float64", "uuid", "uvarint"])
def test_what_the_frame_has_not_is_malformed(kind: str) -> None:
    sizes = {"int8": 1, "boolean": 1, "int16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16, "uvarint": 2}
    whole = b"\x80" * (sizes[kind] - 1) + b"\x01"
    assert getattr(reader(whole), kind)() is not None
    with pytest.raises(Malformed, match="of a frame that has"):
        getattr(reader(whole[:-1]), kind)()


@given(st.integers(0, 2**31 - 1))
def test_varints_come_back(value: int) -> None:
    read = reader(uvarint(value))
    assert read.uvarint() == value
    assert read.position == read.end


def test_a_varint_ends() -> None:
    assert reader(b"\xff" * (VARINT_BYTES_MAX - 1) + b"\x01").uvarint() == 2**29 - 1
    with pytest.raises(Malformed, match="more than 5 bytes"):
        reader(b"\xff" * VARINT_BYTES_MAX + b"\x01").uvarint()


@pytest.mark.parametrize("is_flexible", [True, False])
@pytest.mark.parametrize("text", ["", "topic", "später", "x" * 200, None])
def test_strings_come_back(text: str | None, is_flexible: bool) -> None:
    read = reader(string(text, is_flexible=is_flexible))
    assert read.nullable_string(is_flexible=is_flexible) == text
    assert read.position == read.end


@pytest.mark.parametrize("is_flexible", [True, False])
def test_what_is_no_string_is_malformed(is_flexible: bool) -> None:
    with pytest.raises(Malformed, match="a string is missing"):
        reader(string(None, is_flexible=is_flexible)).string(is_flexible=is_flexible)
    with pytest.raises(Malformed, match="is no UTF-8"):
        reader(string("ab", is_flexible=is_flexible)[:-2] + b"\xff\xfe").string(is_flexible=is_flexible)
    with pytest.raises(Malformed, match="2 bytes are announced"):
        reader(string("ab", is_flexible=is_flexible)[:-1]).string(is_flexible=is_flexible)
    assert reader(string("ab", is_flexible=is_flexible)).string(is_flexible=is_flexible) == "ab"


@pytest.mark.parametrize(
    ("head", "is_flexible", "span"),
    [
        (b"\x04", True, (1, 4)),
        (INT32.pack(3), False, (4, 7)),
        (b"\x01", True, (1, 1)),
        (b"\x00", True, None),
        (INT32.pack(-1), False, None),
    ],
)
def test_bytes_are_read_as_their_place(head: bytes, is_flexible: bool, span: tuple[int, int] | None) -> None:
    read = reader(head + b"abc")
    assert read.nullable_span(is_flexible=is_flexible) == span
    if span is not None and span[0] < span[1]:
        with pytest.raises(Malformed):
            reader(head + b"ab").nullable_span(is_flexible=is_flexible)


@pytest.mark.parametrize("is_flexible", [True, False])
def test_arrays_come_back_and_announce_no_more_than_there_is_room_for(is_flexible: bool) -> None:
    frame = int32s((1, 2, 3), is_flexible=is_flexible)
    read = reader(frame)
    assert read.array(4, is_flexible=is_flexible) == 3
    assert [read.int32() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Malformed, match="3 entries are announced"):
        reader(frame[:-1]).array(4, is_flexible=is_flexible)
    assert reader(array(-1, is_flexible=is_flexible)).array(4, is_flexible=is_flexible) == -1
    assert reader(array(0, is_flexible=is_flexible)).array(4, is_flexible=is_flexible) == 0


def test_the_arrays_of_one_frame_have_no_more_entries_together_than_a_request_may() -> None:
    most = array(ENTRIES_MAX, is_flexible=False)
    read = reader(most + array(1, is_flexible=False) + bytes(ENTRIES_MAX + 1))
    assert read.array(1, is_flexible=False) == ENTRIES_MAX
    with pytest.raises(Malformed, match="1 entries are announced"):
        read.array(1, is_flexible=False)


def test_a_negative_length_takes_nothing_back() -> None:
    with pytest.raises(Malformed):
        reader(b"abc", 2).skip(-1)
    assert reader(b"abc").skip(3) == 0


def test_numbers_in_a_row_are_read_at_once_and_only_if_the_frame_has_them_all() -> None:
    layout = Struct(">ihq")
    read = reader(layout.pack(-1, 2, 1 << 40) + NO_TAGS)
    assert read.unpack(layout) == (-1, 2, 1 << 40)
    read.tags(is_flexible=True)
    assert read.position == read.end
    with pytest.raises(Malformed):
        reader(bytes(layout.size - 1)).unpack(layout)


def test_tagged_fields_are_skipped_but_for_the_one_that_is_wanted() -> None:
    frame = tagged({7: b"seven", 300: b""}) + b"\x05"
    read = reader(frame)
    read.tags(is_flexible=True)
    assert read.int8() == 5
    read = reader(frame)
    assert bytes(read.tag(7) or b"") == b"seven"
    assert read.int8() == 5, "behind them all"
    assert reader(frame).tag(300) == b""
    assert reader(frame).tag(8) is None
    read = reader(frame)
    read.tags(is_flexible=False)
    assert read.position == 0, "there are none"
    with pytest.raises(Malformed):
        reader(frame[:-3]).tags(is_flexible=True)


def test_clients_of_ours_ask_by_a_tagged_field_of_a_flexible_version() -> None:
    assert is_requested(reader(REQUEST_TAG), is_flexible=True)
    assert not is_requested(reader(tagged({TAG + 1: b""})), is_flexible=True)
    assert not is_requested(reader(NO_TAGS), is_flexible=True)
    assert not is_requested(reader(REQUEST_TAG), is_flexible=False)
