"""A reading task: reads its ranges from the leaders and decodes them. Runs in Spark's executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelog.model.arrow import arrow_schema
from tidelog.model.ids import TopicPartition
from tidelog.spark.cluster import Cluster, shared_cluster
from tidelog.spark.decode import decode_piece
from tidelog.spark.errors import LossRule
from tidelog.spark.options import SourceOptions
from tidelog.spark.planner import Task
from tidelog.spark.range_reader import read_range
from tidelog.spark.tasks import ReadTask


def run_task(task: ReadTask, options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the records of the task's ranges. Raises `DataLoss` if records are missing and `failOnDataLoss` is true,
    or the last error after the timeout without progress."""
    cluster = shared_cluster(options.bootstrap, options.timeout_s, options.security)
    is_empty = True
    for offset_range in task.ranges:
        leader = task.leaders.get(TopicPartition(offset_range.topic, offset_range.partition))
        for piece in read_range(cluster, offset_range, leader, options.loss):
            for batch in decode_piece(piece, offset_range, columns):
                is_empty = False
                yield batch
    _check_topics(cluster, task.ranges, options.loss)
    if is_empty:  # Spark takes the schema from what comes
        schema = arrow_schema(columns)
        yield pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _check_topics(cluster: Cluster, ranges: Task, loss: LossRule) -> None:
    """Reports topics that were deleted or recreated while they were read. Ids are unique, so an unchanged id means that
    it was the same topic all the time."""
    expected = {offset_range.topic: offset_range.topic_id for offset_range in ranges}
    current = {topic.name: topic.topic_id for topic in cluster.metadata(sorted(expected)).topics}
    for topic, topic_id in expected.items():
        if current.get(topic) != topic_id:
            loss.lost(f"topic {topic!r} was deleted while it was read")
