from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.spark.lake import Lake
from tidelog.spark.batch import Narrowing, plan_query
from tidelog.spark.errors import DataLoss
from tidelog.spark.options import parse_source_options


@pytest.fixture
def lake() -> Lake:
    lake = Lake()
    lake.create("t", 100, 20)
    lake.create("u", 7)
    lake.delete("t", 0, 10)
    return lake


def ranges(lake: Lake, *filters: tuple[str, str, Any], **options: str) -> list[tuple[str, int, int, int]]:
    parsed = parse_source_options({"bootstrap.servers": "a:1", "subscribe": "t,u", **options}, is_streaming=False)
    narrowing = Narrowing()
    for one in filters:
        narrowing = narrowing.by(*one)
    found, _ = plan_query(parsed, lake, narrowing)
    return [(one.topic, one.partition, one.start, one.end) for one in found]


MS_19 = datetime.fromtimestamp(0.019, UTC)
ALL = [("t", 0, 10, 100), ("t", 1, 0, 20), ("u", 0, 0, 7)]


def test_a_batch_is_all_there_is(lake: Lake) -> None:
    assert ranges(lake) == ALL


def test_ends_by_offset_and_by_time(lake: Lake) -> None:
    ending = '{"t": {"0": 30, "1": -1}, "u": {"0": 0}}'
    assert ranges(lake, endingOffsets=ending) == [("t", 0, 10, 30), ("t", 1, 0, 20)]
    assert ranges(lake, startingTimestamp="5", endingTimestamp="15") == [
        ("t", 0, 10, 15),
        ("t", 1, 5, 15),
        ("u", 0, 5, 7),
    ]


def test_a_start_that_is_deleted_is_a_loss(lake: Lake) -> None:
    starting = '{"t": {"0": 3, "1": -1}, "u": {"0": -1}}'
    with pytest.raises(DataLoss, match="records 3 to 9"):
        ranges(lake, startingOffsets=starting)
    assert ranges(lake, startingOffsets=starting, failOnDataLoss="false") == [("t", 0, 10, 100)]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([("EqualTo", "topic", "u")], ALL[2:]),
        ([("In", "partition", (1, 5))], ALL[1:2]),
        ([("EqualTo", "partition", 0), ("In", "topic", ("t", "x"))], ALL[:1]),
        ([("EqualTo", "topic", "t"), ("EqualTo", "topic", "u")], []),
        ([("GreaterThan", "offset", 50)], [("t", 0, 51, 100)]),
        ([("GreaterThanOrEqual", "offset", 15), ("LessThan", "offset", 19)], [("t", 0, 15, 19), ("t", 1, 15, 19)]),
        ([("LessThanOrEqual", "offset", 10)], [("t", 0, 10, 11), ("t", 1, 0, 11), ("u", 0, 0, 7)]),
        ([("EqualTo", "offset", 6)], [("t", 1, 6, 7), ("u", 0, 6, 7)]),
        ([("GreaterThanOrEqual", "timestamp", MS_19)], [("t", 0, 19, 100), ("t", 1, 19, 20)]),
        ([("LessThan", "timestamp", MS_19)], ALL),
        ([("EqualTo", "key", b"k"), ("IsNotNull", "value", None), ("StringContains", "topic", "t")], ALL),
    ],
)  # fmt: skip
def test_filters_narrow_what_is_read(
    lake: Lake, filters: list[tuple[str, str, Any]], found: list[tuple[str, int, int, int]]
) -> None:
    assert ranges(lake, *filters) == found
