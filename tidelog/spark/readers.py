"""The readers that Spark asks for positions and tasks, in its driver, and that it has read, in executors.

Spark makes a reader in a process of its own and asks it for positions; another one is pickled once and sent to every
task for the life of the query. So a reader holds options only, and makes connections where it is used. What decodes
records is imported where they are read.
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
    """The value that Spark sends to one task."""

    task: ReadTask


class TidelogReader(DataSourceReader):
    """The reader of a batch query: all that is there when it begins."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """Plans the tasks."""
        cluster = _found(self._options)
        try:
            ranges, snapshot = plan_query(self._options, ClusterView(cluster), self._narrowing)
        finally:
            cluster.close()
        tasks = plan_tasks(ranges, snapshot, self._options)
        return [TidelogPartition(task) for task in tasks or [ReadTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs one task, in an executor."""
        assert isinstance(partition, TidelogPartition)
        return _run(partition.task, self._options, self._columns)


class FilteringReader(TidelogReader):
    """The reader with `filterPushdown`: another class, as Spark refuses one that could push them while it may not."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows what is read; Spark applies all filters again."""
        for one in filters:
            column: tuple[str, ...] = getattr(one, "attribute", ())
            if len(column) == 1:
                self._narrowing = self._narrowing.by(type(one).__name__, column[0], getattr(one, "value", None))
        return filters


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query: what comes, batch by batch."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._planner: StreamPlanner | None = None

    def _planned(self) -> StreamPlanner:
        """Makes the planner where it is used: a reader must be fit for pickling."""
        if self._planner is None:
            cluster = _found(self._options)
            self._planner = StreamPlanner(self._options, ClusterView(cluster), SystemClock().monotonic_s)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Returns where a new query begins."""
        return self._planned().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns what limits a batch, as Spark knows it; the others are applied with it."""
        limits = self._options.limits
        if limits.records_max is not None:
            return ReadMaxRows(limits.records_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.records_min is None else ReadMinRows(limits.records_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns how far the next batch goes. `limit` is the one above, or says to leave all limits out."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._planned().latest(Offsets.from_json(start), is_limited=is_limited).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the query with what there is now."""
        self._planned().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the ends of the partitions: with a batch's end, a query's progress shows the lag."""
        newest = self._planned().newest
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plans the tasks of a batch."""
        ranges, snapshot = self._planned().ranges(Offsets.from_json(start), Offsets.from_json(end))
        return [TidelogPartition(task) for task in plan_tasks(ranges, snapshot, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs one task, in an executor."""
        assert isinstance(partition, TidelogPartition)
        return _run(partition.task, self._options, self._columns)


def _found(options: SourceOptions) -> Cluster:
    return find_cluster(options.bootstrap, timeout_s=options.timeout_s, security=options.security)


def _run(task: ReadTask, options: SourceOptions, columns: list[str]) -> Iterator[pa.RecordBatch]:
    from tidelog.spark.task_reader import run_task  # noqa: PLC0415 - planning needs neither numpy nor codecs

    return run_task(task, options, columns)
