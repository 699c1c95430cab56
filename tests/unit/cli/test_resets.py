"""What is typed after `tidelog group reset`."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.cli.resets import ResetOptions, parse_chosen, parse_duration, parse_timestamp
from tidelog.cli.terminal import UsageError


def typed(**given: Any) -> ResetOptions:
    nothing: dict[str, Any] = {"to_earliest": False, "to_latest": False, "to_offset": None, "to_timestamp": None,
                               "by_duration": None, "shift_by": None}  # fmt: skip
    return ResetOptions(**{**nothing, **given})


@pytest.mark.parametrize(
    ("given", "to", "values"),
    [
        ({"to_earliest": True}, "earliest", {}),
        ({"to_latest": True}, "latest", {}),
        ({"to_offset": 0}, "offset", {"offset": 0}),
        ({"to_timestamp": "5"}, "timestamp", {"timestamp": 5}),
        ({"by_duration": "PT1S"}, "duration", {"duration_ms": 1000}),
        ({"shift_by": -3}, "shift", {"shift_by": -3}),
    ],
)
def test_one_option_says_where_to(given: dict[str, Any], to: str, values: dict[str, int]) -> None:
    assert typed(**given).parsed() == (to, values)


@pytest.mark.parametrize("given", [{}, {"to_earliest": True, "shift_by": 0}, {"to_offset": 0, "to_latest": True}])
def test_none_or_two_are_wrong(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="say where to, once"):
        typed(**given).parsed()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20.250+02:00", 1_700_000_000_250),
        ("1970-01-01", 0),
        ("1960-01-01", 0),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert parse_timestamp(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("PT1H30M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT1M", 86_460_000),
        ("PT0.25S", 250),
        ("pt5m", 300_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "PT1", "PT-1H", "PT1H ", "yesterday"])
def test_what_is_no_duration_and_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="write PT30M"):
        parse_duration(text)
    with pytest.raises(UsageError, match="is no time"):
        parse_timestamp(text)


def test_topics_and_their_partitions() -> None:
    assert parse_chosen(["a"], all_topics=False) == {"a": None}
    assert parse_chosen(["a:2,0", "b:1", "a:7"], all_topics=False) == {"a": [2, 0, 7], "b": [1]}
    assert parse_chosen(["a:2", "a", "a:1"], all_topics=False) == {"a": None}
    assert parse_chosen(None, all_topics=True) is None


@pytest.mark.parametrize(("topics", "all_topics"), [(None, False), ([], False), (["a"], True)])
def test_either_topics_or_all(topics: list[str] | None, all_topics: bool) -> None:
    with pytest.raises(UsageError, match="say of which topics"):
        parse_chosen(topics, all_topics=all_topics)


@pytest.mark.parametrize("given", ["a:", "a:x", "a:1,", "a:-1", ":"])
def test_partitions_that_are_none(given: str) -> None:
    with pytest.raises(UsageError, match="write partitions as in"):
        parse_chosen([given], all_topics=False)
