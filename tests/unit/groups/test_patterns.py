"""Patterns: whole names, and nothing that takes for ever."""

from __future__ import annotations

import pytest

from tidelog.groups.patterns import PATTERN_LENGTH_MAX, matcher
from tidelog.model.errors import InvalidRequest


def test_the_whole_name_matches() -> None:
    matches = matcher("orders[.-].*|t")
    assert [name for name in ("orders.eu", "orders-", "xorders.eu", "t", "tt") if matches(name)] == [
        "orders.eu",
        "orders-",
        "t",
    ]


def test_a_pattern_that_backtracks_for_years_is_matched_like_any_other() -> None:
    assert not matcher("(a+)+b")("a" * 249)


@pytest.mark.parametrize("pattern", ["(", "(?=t)", r"(t)\1", "((a{30}){30}){30}", "\\", "x" * (PATTERN_LENGTH_MAX + 1)])
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="pattern") as refused:
        matcher(pattern)
    assert "b'" not in refused.value.message
