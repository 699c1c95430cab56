"""A batch query: both ends are looked up once, and narrowed by Spark's filters.

Filters only reduce what is read; Spark applies them again to every row. Topics and partitions that cannot match are
left out. A bound on offsets is used directly; a bound on timestamps through the brokers' time index: all records before
the first one with that time are older. Pure, except for the `View` of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tidelog.model.ids import OFFSET_MAX, TopicPartition
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.planner import OffsetRange
from tidelog.spark.ranges import check_exists, ranges_between, resolve
from tidelog.spark.view import Snapshot, View


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The restrictions by the query's filters; None is no restriction. Offsets are [offset_min, offset_end)."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int = OFFSET_MAX
    timestamp_ms_min: int | None = None

    def by(self, kind: str, column: str, value: Any) -> Narrowing:
        """Returns the restrictions with one more filter of Spark, if it can be used; `kind` is the name of its
        class."""
        if column in ("topic", "partition") and kind in ("EqualTo", "In"):
            return self._one_of(column, value if kind == "In" else (value,))
        if column == "offset" and isinstance(value, int):
            return self._offsets(kind, value)
        if column == "timestamp" and isinstance(value, datetime) and kind in ("GreaterThan", "GreaterThanOrEqual"):
            time_ms = max(self.timestamp_ms_min or 0, int(value.timestamp() * 1000))
            return replace(self, timestamp_ms_min=time_ms)
        return self

    def _one_of(self, column: str, values: Iterable[Any]) -> Narrowing:
        matching = frozenset(values)
        if column == "topic":
            return replace(self, topics=matching if self.topics is None else self.topics & matching)
        return replace(self, partitions=matching if self.partitions is None else self.partitions & matching)

    def _offsets(self, kind: str, value: int) -> Narrowing:
        least = {"EqualTo": value, "GreaterThanOrEqual": value, "GreaterThan": value + 1}.get(kind, 0)
        end = {"EqualTo": value + 1, "LessThanOrEqual": value + 1, "LessThan": value}.get(kind, OFFSET_MAX)
        return replace(self, offset_min=max(self.offset_min, least), offset_end=min(self.offset_end, end))

    def wants(self, partition: TopicPartition) -> bool:
        """Returns False if no record of the partition can match."""
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )


def plan_query(options: SourceOptions, view: View, narrowing: Narrowing) -> tuple[list[OffsetRange], Snapshot]:
    """Returns the offset ranges of a batch query, and the state of the partitions. Raises `InvalidRequest`, and
    `DataLoss` unless `failOnDataLoss` is off."""
    snapshot = view.snapshot(options.selection, {})
    check_exists(options.selection.named, options.selection.assigned, snapshot)
    start = Offsets(resolve(options.start, snapshot, view), snapshot.topic_ids)
    end = Offsets(resolve(options.end, snapshot, view), snapshot.topic_ids)
    ranges = [
        offset_range
        for offset_range in ranges_between(start, end, snapshot, options.loss)
        if narrowing.wants(TopicPartition(offset_range.topic, offset_range.partition))
    ]
    return _narrowed(ranges, view, narrowing), snapshot


def _narrowed(ranges: list[OffsetRange], view: View, narrowing: Narrowing) -> list[OffsetRange]:
    begins = {}
    if narrowing.timestamp_ms_min is not None and ranges:
        begins = view.first_since(
            {TopicPartition(*_key(offset_range)): narrowing.timestamp_ms_min for offset_range in ranges}
        )
    narrowed = []
    for offset_range in ranges:
        begin = begins.get(TopicPartition(*_key(offset_range)), 0)
        start = max(offset_range.start, narrowing.offset_min, offset_range.end if begin is None else begin)
        narrowed.append(replace(offset_range, start=start, end=min(offset_range.end, narrowing.offset_end)))
    return [offset_range for offset_range in narrowed if offset_range.size > 0]


def _key(offset_range: OffsetRange) -> tuple[str, int]:
    return offset_range.topic, offset_range.partition
