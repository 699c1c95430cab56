"""The text that names what was read above the high watermark, and who may read there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.early_reads import ABOVE_RANGES_MAX, AboveOffsets, is_read_early, parse_above
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX

GAPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8)


def ranges_of(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    ranges, end = list[tuple[int, int]](), 0
    for gap, length in gaps:
        ranges.append((end + gap, end + gap + length))
        end += gap + length
    return ranges


@given(GAPS, st.integers(0, 40), st.integers(0, 10))
def test_offsets_are_found_as_in_a_set(gaps: list[tuple[int, int]], start: int, length: int) -> None:
    ranges = ranges_of(gaps)
    offsets = {offset for first, end in ranges for offset in range(first, end)}
    above = parse_above(str(AboveOffsets(ranges)))
    missing = [offset for offset in range(start, start + length) if offset not in offsets]
    assert above.first_missing(start, start + length) == min(missing, default=start + length)
    assert len(above) == sum(offset - 1 not in offsets for offset in offsets)


def test_the_last_offset_is_named_and_ranges_that_touch_are_joined() -> None:
    assert str(AboveOffsets([(120, 130), (130, 135), (140, 141)])) == "120-134,140-140"
    assert str(AboveOffsets()) == ""
    assert len(parse_above("")) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("7", "no range"),
        ("-", "no range"),
        ("5-", "no range"),
        ("-5", "no range"),
        ("a-b", "no range"),
        ("1-2,", "no range"),
        ("1-2;3-4", "no range"),
        ("1-2, 4-5", "no range"),
        ("1--2", "no range"),
        ("²-3", "no range"),
        ("1-" + "9" * 30, "no range"),
        (f"0-{OFFSET_MAX + 1}", "at the most"),
        ("5-4", "has to end"),
        ("5-9,1-2", "sort them"),
        ("5-9,9-12", "sort them"),
        ("5-9,5-9", "sort them"),
    ],
)
def test_anything_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        parse_above(text)
    assert len(refused.value.message) < 200


def test_a_thousand_ranges_are_taken_and_no_more() -> None:
    text = ",".join(f"{offset}-{offset}" for offset in range(0, 2 * ABOVE_RANGES_MAX, 2))
    assert len(parse_above(text)) == ABOVE_RANGES_MAX
    with pytest.raises(InvalidRequest, match="1001 ranges"):
        parse_above(f"{text},9000-9001")


@pytest.mark.parametrize(
    ("commit_order", "orders"), [("total", []), ("key", ["key", "none"]), ("none", ["none"]), ("later", [])]
)
def test_a_topic_is_read_early_in_an_order_that_it_keeps(commit_order: str, orders: list[str]) -> None:
    assert [order for order in ("total", "key", "none") if is_read_early(commit_order, order)] == orders
