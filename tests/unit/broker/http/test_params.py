"""Numbers, names and flags of paths and queries: what is accepted, and that everything else is a 400 that helps."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.http import params
from tidelog.model.errors import InvalidRequest

BAD_NUMBERS = ["", " ", "-1", "+4", "4 ", " 4", "1.0", "1e3", "1e400", "true", "0x1", "\u0664", "\uff11", "--1", "1_0",
               "NaN", "\x00", "1\n", "9223372036854775808", "9" * 400]  # fmt: skip


@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_bad_numbers_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        params.integer("offset", text)
    assert caught.value.code == 40002
    assert caught.value.message.isascii()


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("007", 7), ("9223372036854775807", 2**63 - 1)])
def test_good_numbers_are_read(text: str, value: int) -> None:
    assert params.integer("offset", text) == value


@given(st.text())
def test_a_number_is_what_python_reads_or_refused(text: str) -> None:
    try:
        value = params.integer("n", text)
    except InvalidRequest:
        assert not (text.isascii() and text.isdigit() and int(text) < 2**63 and len(text) <= 19)
    else:
        assert value == int(text)


@pytest.mark.parametrize(
    ("raw", "query"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1&b=", {"a": "1", "b": ""}),
        ("a", {"a": ""}),
        ("&&a=1&", {"a": "1"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=x%20y+z", {"a": "x y z"}),
        ("%61=%C3%A9", {"a": "\u00e9"}),
    ],
)
def test_queries_are_read(raw: str, query: dict[str, str]) -> None:
    assert params.parse_query(raw) == query


@pytest.mark.parametrize("raw", ["a=1&a=1", "a=1&%61=2", "a=%", "a=%2", "a=%zz", "a=%ff", "%=1", "a=%ed%a0%80"])
def test_bad_queries_are_refused(raw: str) -> None:
    with pytest.raises(InvalidRequest):
        params.parse_query(raw)


@given(st.text(alphabet="ab%&=+0f", max_size=20))
def test_a_query_is_read_or_refused(raw: str) -> None:
    with suppress(InvalidRequest):
        params.parse_query(raw)


@pytest.mark.parametrize(
    ("query", "acks"),
    [
        ({}, -1),
        ({"acks": "all"}, -1),
        ({"acks": "-1"}, -1),
        ({"acks": "1"}, 1),
        ({"acks": "0"}, 0),
        ({"async": "true"}, 0),
        ({"async": "false"}, -1),
        ({"async": "true", "acks": "0"}, 0),
        ({"async": "false", "acks": "1"}, 1),
    ],
)
def test_acks_and_async_are_one_thing(query: dict[str, str], acks: int) -> None:
    assert params.acks(query) == acks


@pytest.mark.parametrize(
    "query",
    [{"acks": "2"}, {"acks": ""}, {"acks": "ALL"}, {"async": ""}, {"async": "1"}, {"async": "yes"},
     {"async": "true", "acks": "all"}, {"async": "true", "acks": "1"}, {"async": "false", "acks": "0"}],
)  # fmt: skip
def test_contradictions_and_nonsense_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        params.acks(query)


@pytest.mark.parametrize(("text", "offset"), [("0", 0), ("9223372036854775807", 2**63 - 1)])
def test_start_offsets(text: str, offset: int) -> None:
    assert params.offset(text) == offset


@pytest.mark.parametrize("text", [None, "", "first", "-1", "1e3"])
def test_bad_start_offsets_are_refused(text: str | None) -> None:
    with pytest.raises(InvalidRequest, match="offset"):
        params.offset(text)


def test_what_users_wrote_is_shown_escaped_and_short() -> None:
    assert params.shown("a\r\n\x1b[31m") == r"'a\r\n\x1b[31m'"
    assert len(params.shown("x" * 1000)) < 70
