"""Division of offset ranges into Spark tasks.

A task of a Python source costs some 25 ms before its first record, so a task per partition, as in Spark's Kafka source,
is a bad default: small whole ranges are combined, and the records of a partition stay in order within one task.
`minPartitions` and `maxRecordsPerPartition` split ranges instead, and then each piece is a task, as with Kafka.

The plan depends on the ranges and options only: a micro-batch that is repeated after a restart has the same plan,
whatever the number of machines and the leaders. The sink relies on that. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidelog.spark.options import Division

TASK_RECORDS = 250_000
"""Records up to which no additional task is planned."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records [start, end) of one partition; `topic_id` distinguishes topics of the same name."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str

    @property
    def size(self) -> int:
        """The number of offsets, including gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


Task = tuple[OffsetRange, ...]


def plan(ranges: Sequence[OffsetRange], division: Division) -> list[Task]:
    """Returns the tasks of one batch. Each range is read exactly once, and the pieces of a partition keep their
    order."""
    ranges = sorted(offset_range for offset_range in ranges if offset_range.size > 0)
    if division.partitions_min is not None or division.records_max is not None:
        pieces = _cut_to(ranges, division.records_max)
        return [(piece,) for piece in _cut_into(pieces, division.partitions_min)]
    return _gather(ranges, division.tasks_max)


def _gather(ranges: Sequence[OffsetRange], tasks_max: int) -> list[Task]:
    """Distributes whole ranges over at most `tasks_max` tasks, the largest first, each to the smallest task (Graham's
    LPT rule)."""
    records = sum(offset_range.size for offset_range in ranges)
    count = min(len(ranges), tasks_max, max(1, math.ceil(records / TASK_RECORDS)))
    bins: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [0] * count
    for offset_range in sorted(ranges, key=lambda offset_range: (-offset_range.size, offset_range)):
        least = loads.index(min(loads))
        bins[least].append(offset_range)
        loads[least] += offset_range.size
    return sorted(tuple(sorted(contents)) for contents in bins if contents)


def _cut_to(ranges: Sequence[OffsetRange], records_max: int | None) -> list[OffsetRange]:
    if records_max is None:
        return list(ranges)
    return [
        piece for offset_range in ranges for piece in _cut(offset_range, math.ceil(offset_range.size / records_max))
    ]


def _cut_into(ranges: Sequence[OffsetRange], partitions_min: int | None) -> list[OffsetRange]:
    """Splits ranges into at least `partitions_min` pieces as Spark's Kafka source: ranges below their share stay whole,
    the others share the remaining pieces."""
    if partitions_min is None or len(ranges) >= partitions_min:
        return list(ranges)
    share = sum(offset_range.size for offset_range in ranges) / partitions_min
    large = [offset_range for offset_range in ranges if offset_range.size > share]
    records, count = sum(offset_range.size for offset_range in large), partitions_min - (len(ranges) - len(large))
    parts = []
    for offset_range in ranges:
        pieces = max(1, round(offset_range.size / records * count)) if offset_range.size > share else 1
        parts += _cut(offset_range, pieces)
    return parts


def _cut(offset_range: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Splits a range into pieces that differ by at most one record, none of them empty."""
    pieces = min(pieces, offset_range.size)
    edges = [offset_range.start + offset_range.size * number // pieces for number in range(pieces + 1)]
    return [replace(offset_range, start=start, end=end) for start, end in pairwise(edges)]
