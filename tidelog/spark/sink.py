"""The writers that Spark calls: in executors for rows, in the driver at the end of a batch.

There is no commit or abort: an appended record is visible at once, even if the remainder of its batch never follows;
and a repeated batch is not appended again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.adapters.system import SystemEntropy
from tidelog.model.errors import InvalidRequest
from tidelog.spark.cluster import find_cluster, shared_cluster
from tidelog.spark.sink_options import SinkOptions, check_schema, parse_sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RANDOM_BYTES = 16


@dataclass
class TaskWritten(WriterCommitMessage):
    """A task's report to the driver: the numbers of records and batches that it wrote."""

    records: int
    batches: int


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query. The query's id survives restarts, and a repeated batch keeps its number."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query_id is not None and batch_id is not None, "not a micro-batch of a streaming query"
        return _write(iterator, self._options, f"stream/{query_id}/{batch_id}", context)


class TidelogWriter(DataSourceArrowWriter):
    """The writer of a batch query, identified by its `writeId`, or else a random id, which still covers repeated
    attempts of a task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write_id = options.write_id or SystemEntropy().token_hex(RANDOM_BYTES)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        return _write(iterator, self._options, f"write/{self._write_id}", context)


def checked_options(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool, is_streaming: bool
) -> SinkOptions:
    """Returns the validated options of a query that writes rows of this schema, once a broker has responded. Raises
    `InvalidRequest`, `ConnectFailed`."""
    if overwrite:
        raise InvalidRequest("a topic can only be appended to: use mode append, or outputMode append or update")
    options = parse_sink_options(given, is_streaming=is_streaming)
    check_schema(schema, options)
    find_cluster(options.bootstrap, timeout_s=options.timeout_s, security=options.security).close()
    return options


def _write(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, write: str, context: TaskContext
) -> WriterCommitMessage:
    from tidelog.spark.task_writer import TaskWriter  # noqa: PLC0415 - planning needs no encoder

    attempt = "" if options.is_idempotent else f"/{SystemEntropy().token_hex(RANDOM_BYTES)}"
    scope = f"{write}/{context.partitionId()}{attempt}"
    cluster = shared_cluster(options.bootstrap, options.timeout_s, options.security)
    written = TaskWriter(cluster, options, scope).write(iterator)
    return TaskWritten(written.records, written.batches)
