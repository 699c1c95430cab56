"""The data source that Spark knows as `tidelog`: thin, every decision is made elsewhere.

Spark makes a reader in a process of its own and asks it for positions; another one is pickled once and sent to every
task for the life of the query. So a reader holds options only, and makes connections where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.adapters.system import SystemClock
from tidelog.model.errors import InvalidRequest
from tidelog.spark.batch import Narrowing, plan_query
from tidelog.spark.cluster import Cluster, find_cluster
from tidelog.spark.columns import ddl, wanted_columns
from tidelog.spark.offsets import Offsets
from tidelog.spark.option_values import OptionValues
from tidelog.spark.options import SourceOptions, parse_source_options
from tidelog.spark.sink import TidelogStreamWriter, TidelogWriter
from tidelog.spark.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.sink_rows import check_schema
from tidelog.spark.stream import StreamPlanner
from tidelog.spark.tasks import ReadTask, plan_tasks, run_task
from tidelog.spark.view import ClusterView


class TidelogDataSource(DataSource):
    """`spark.readStream.format("tidelog")`, and `read`, `write`, `writeStream`. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidelog"

    def schema(self) -> str:
        """The columns of Spark's Kafka source."""
        return ddl(include_headers=OptionValues(self.options).flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query's."""
        options = parse_source_options(self.options, is_streaming=False)
        kind = FilteringReader if options.pushes_filters else TidelogReader
        return kind(options, wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming query's."""
        return TidelogStreamReader(parse_source_options(self.options, is_streaming=True), wanted_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch query's."""
        return TidelogWriter(self._sink_options(schema, overwrite, is_streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A streaming query's."""
        return TidelogStreamWriter(self._sink_options(schema, overwrite, is_streaming=True))

    def _sink_options(self, schema: StructType, overwrite: bool, *, is_streaming: bool) -> SinkOptions:
        if overwrite:
            raise InvalidRequest("a topic can only be appended to: use mode append, or outputMode append or update")
        options = parse_sink_options(self.options, is_streaming=is_streaming)
        check_schema(schema, options)
        _found(options)
        return options


@dataclass
class TidelogPartition(InputPartition):
    """What Spark sends to one task."""

    task: ReadTask


class TidelogReader(DataSourceReader):
    """Reads all that is there when the query begins."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        cluster = _found(self._options)
        try:
            ranges, snapshot = plan_query(self._options, ClusterView(cluster), self._narrowing)
        finally:
            cluster.close()
        tasks = plan_tasks(ranges, snapshot, self._options)
        return [TidelogPartition(task) for task in tasks or [ReadTask(())]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task, in an executor."""
        assert isinstance(partition, TidelogPartition)
        return run_task(partition.task, self._options, self._columns)


class FilteringReader(TidelogReader):
    """With `filterPushdown`. A class of its own, because Spark refuses one that could push filters while it may not."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows what is read; Spark applies all filters again."""
        for one in filters:
            column: tuple[str, ...] = getattr(one, "attribute", ())
            if len(column) == 1:
                self._narrowing = self._narrowing.by(type(one).__name__, column[0], getattr(one, "value", None))
        return filters


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, batch by batch."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options, self._columns = options, columns
        self._planner: StreamPlanner | None = None

    def _planned(self) -> StreamPlanner:
        """Made where it is used: a reader must be fit for pickling."""
        if self._planner is None:
            cluster = _found(self._options)
            self._planner = StreamPlanner(self._options, ClusterView(cluster), SystemClock().monotonic_s)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._planned().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What limits a batch, as Spark knows it; the others are applied with it."""
        limits = self._options.limits
        if limits.records_max is not None:
            return ReadMaxRows(limits.records_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.records_min is None else ReadMinRows(limits.records_min)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes. `limit` is the one above, or says to leave all limits out."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._planned().latest(Offsets.from_json(start), is_limited=is_limited).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """What there is now is all."""
        self._planned().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions: with a batch's end, a query's progress shows the lag."""
        newest = self._planned().newest
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A batch's tasks."""
        ranges, snapshot = self._planned().ranges(Offsets.from_json(start), Offsets.from_json(end))
        return [TidelogPartition(task) for task in plan_tasks(ranges, snapshot, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task, in an executor."""
        assert isinstance(partition, TidelogPartition)
        return run_task(partition.task, self._options, self._columns)


def _found(options: SourceOptions | SinkOptions) -> Cluster:
    return find_cluster(options.bootstrap, timeout_s=options.timeout_s, security=options.security)
