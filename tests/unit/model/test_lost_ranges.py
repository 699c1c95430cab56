"""The header that names lost offsets: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.lost_ranges import LostRange, format_lost, parse_lost, within
from tidelog.transport.connections import Answer
from tidelog.transport.errors import NoAnswer

RANGES = st.builds(
    lambda start, size: LostRange(start, start + 1 + size), st.integers(0, OFFSET_MAX - 1001), st.integers(0, 1000)
)
SMALL = st.integers(0, 100)


@given(st.lists(RANGES))
def test_what_is_written_is_read_again(ranges: list[LostRange]) -> None:
    assert parse_lost(format_lost(ranges)) == tuple(ranges)


def test_offsets_are_inclusive_in_the_header() -> None:
    assert format_lost([LostRange(17, 21), LostRange(31, 32)]) == "17-20, 31-31"


@pytest.mark.parametrize(
    "text", ["7", "-", "5-", "-5", "5-4", "a-b", "1-2,", "1-2;3-4", "1--2", "²-3", "1-" + "9" * 30]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Tidelog-Lost"):
        parse_lost(text)
    with pytest.raises(NoAnswer, match="makes no sense"):
        _ = Answer(200, {"Tidelog-Lost": text}, b"").lost


@given(st.lists(st.builds(lambda start, size: LostRange(start, start + size), *[st.integers(1, 50)] * 2)), SMALL, SMALL)
def test_within_keeps_the_offsets_of_a_window(ranges: list[LostRange], start: int, end: int) -> None:
    window = {*range(start, end)}
    kept = [offset for lost in within(ranges, start, end) for offset in range(lost.start, lost.end)]
    assert set(kept) == {offset for lost in ranges for offset in range(*lost)} & window
