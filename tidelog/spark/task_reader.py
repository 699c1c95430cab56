"""What a task that reads does: its ranges, from their leaders, decoded. Runs in Spark's executors."""

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
    """Reads the records of the task's ranges. Raises `DataLoss` as the loss rule says, or what went wrong too long."""
    cluster = shared_cluster(options.bootstrap, options.timeout_s, options.security)
    is_empty = True
    for one in task.ranges:
        leader = task.leaders.get(TopicPartition(one.topic, one.partition))
        for piece in read_range(cluster, one, leader, options.loss):
            for batch in decode_piece(piece, one, columns):
                is_empty = False
                yield batch
    _check_topics(cluster, task.ranges, options.loss)
    if is_empty:  # Spark takes the schema from what comes
        schema = arrow_schema(columns)
        yield pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _check_topics(cluster: Cluster, ranges: Task, loss: LossRule) -> None:
    """Ids are never used again: a topic that is the same one now was so all the time that its records were read."""
    wanted = {one.topic: one.topic_id for one in ranges}
    found = {topic.name: topic.topic_id for topic in cluster.metadata(sorted(wanted)).topics}
    for topic, topic_id in wanted.items():
        if found.get(topic) != topic_id:
            loss.lost(f"topic {topic!r} was deleted while it was read")
