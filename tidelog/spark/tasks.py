"""The work of a Spark task: offset ranges, and the leaders of their partitions at planning time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.model.ids import TopicPartition
from tidelog.spark.options import SourceOptions
from tidelog.spark.planner import OffsetRange, Task, plan
from tidelog.spark.view import Snapshot


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The work of one reading task. `leaders` are those at planning time."""

    ranges: Task
    leaders: Mapping[TopicPartition, str] = field(default_factory=dict)


def plan_tasks(ranges: Sequence[OffsetRange], snapshot: Snapshot, options: SourceOptions) -> list[ReadTask]:
    """Returns the reading tasks of one batch."""
    tasks = []
    for task in plan(ranges, options.division):
        keys = [TopicPartition(offset_range.topic, offset_range.partition) for offset_range in task]
        tasks.append(ReadTask(task, {key: snapshot.leaders[key] for key in keys if key in snapshot.leaders}))
    return tasks
