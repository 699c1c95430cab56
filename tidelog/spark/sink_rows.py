"""Conversion of Spark rows to records: `key`, `value`, `topic`, `partition` and `headers`, as in Spark's Kafka sink.

Keys and values are binary or text. Other columns are ignored, as in Spark's Kafka sink, so that rows can be written as
they were read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from tidelog.model.errors import InvalidRequest
from tidelog.model.records import Header
from tidelog.spark.sink_options import SinkOptions


class SinkRow(NamedTuple):
    """One record to write. `partition` is None where the key decides."""

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def sink_rows(batch: pa.RecordBatch, options: SinkOptions, now_ms: int) -> Iterator[SinkRow]:
    """Yields the records of an Arrow batch, in order. Raises `InvalidRequest` for a row without a topic."""
    count = batch.num_rows
    columns = {name: batch.column(position) for position, name in enumerate(batch.schema.names)}
    topics = [options.topic] * count if options.topic is not None else columns["topic"].to_pylist()
    numbers = columns["partition"].to_pylist() if "partition" in columns else [None] * count
    times = _times_ms(columns["timestamp"], now_ms) if options.keeps_timestamps else [now_ms] * count
    keys = _contents(columns["key"]) if "key" in columns else [None] * count
    headers = columns["headers"].to_pylist() if "headers" in columns else [None] * count
    values = _contents(columns["value"])
    for topic, number, time_ms, key, value, row_headers in zip(
        topics, numbers, times, keys, values, headers, strict=True
    ):
        if topic is None:
            raise InvalidRequest("a row has null in column 'topic', and there is no option topic")
        yield SinkRow(topic, number, time_ms, key, value, _headers(row_headers) if row_headers else ())


def _contents(column: pa.Array) -> list[bytes | None]:
    contents: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return contents


def _times_ms(column: pa.Array, now_ms: int) -> list[int]:
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [now_ms if micro is None else micro // 1000 for micro in micros]


def _headers(headers: list[dict[str, Any] | None]) -> tuple[Header, ...]:
    if any(header is None or header["key"] is None for header in headers):
        raise InvalidRequest("a header is null, or has no key")
    return tuple((header["key"], header["value"]) for header in headers if header is not None)
