"""The readers of the data source: the driver asks them for positions and tasks, and executors read with them.

Spark creates one reader in a process of its own for positions; another one is pickled once and sent to every task of
the query. So a reader contains options only, and connects where it is used. The modules for decoding are imported where
records are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.adapters.system import SystemClock
from tidelog.spark.batch import Narrowing, plan_query
from tidelog.spark.cluster import Cluster, find_cluster
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import SourceOptions
from tidelog.spark.stream import StreamPlanner
from tidelog.spark.tasks import ReadTask, plan_tasks
from tidelog.spark.view import ClusterView

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TidelogPartition(InputPartition):
    """A task's work as Spark sends it to an executor."""

    task: ReadTask


class TidelogReader(DataSourceReader):
    """The reader of a batch query, for all records that exist when it starts."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks of the query."""
        cluster = _cluster_of(self._options)
        try:
            ranges, snapshot = plan_query(self._options, ClusterView(cluster), self._narrowing)
        finally:
            cluster.close()
        tasks = plan_tasks(ranges, snapshot, self._options)
        return [TidelogPartition(task) for task in tasks or [ReadTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the records of one task, in an executor."""
        assert isinstance(partition, TidelogPartition)
        return _run(partition.task, self._options, self._columns)


class FilteringReader(TidelogReader):
    """The batch reader with `filterPushdown`. A separate class, since Spark rejects a reader with `pushFilters` when
    filter pushdown is disabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Uses filters to read less; returns all of them, so that Spark applies them again."""
        for condition in filters:
            column: tuple[str, ...] = getattr(condition, "attribute", ())
            if len(column) == 1:
                self._narrowing = self._narrowing.by(
                    type(condition).__name__, column[0], getattr(condition, "value", None)
                )
        return filters


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query, in micro-batches."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._planner: StreamPlanner | None = None

    def _planned(self) -> StreamPlanner:
        """Returns the planner, created at first use, because a reader must be picklable."""
        if self._planner is None:
            cluster = _cluster_of(self._options)
            self._planner = StreamPlanner(self._options, ClusterView(cluster), SystemClock().monotonic_s)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Returns the start positions of a new query."""
        return self._planned().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit of a micro-batch in Spark's form; limits unknown to Spark are applied in addition."""
        limits = self._options.limits
        if limits.records_max is not None:
            return ReadMaxRows(limits.records_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.records_min is None else ReadMinRows(limits.records_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns the end positions of the next batch. `limit` is that of `getDefaultReadLimit`, or `ReadAllAvailable`
        for no limits."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._planned().latest(Offsets.from_json(start), is_limited=is_limited).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Makes the query end at the present ends of the partitions."""
        self._planned().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the latest known ends of the partitions, from which Spark reports the lag; None if they were never
        looked up."""
        newest = self._planned().newest
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns the tasks of a micro-batch."""
        ranges, snapshot = self._planned().ranges(Offsets.from_json(start), Offsets.from_json(end))
        return [TidelogPartition(task) for task in plan_tasks(ranges, snapshot, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the records of one task, in an executor."""
        assert isinstance(partition, TidelogPartition)
        return _run(partition.task, self._options, self._columns)


def _cluster_of(options: SourceOptions) -> Cluster:
    return find_cluster(options.bootstrap, timeout_s=options.timeout_s, security=options.security)


def _run(task: ReadTask, options: SourceOptions, columns: list[str]) -> Iterator[pa.RecordBatch]:
    from tidelog.spark.task_reader import run_task  # noqa: PLC0415 - planning needs neither numpy nor codecs

    return run_task(task, options, columns)
