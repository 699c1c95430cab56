from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidRequest
from tidelog.spark.columns import ddl, query_columns
from tidelog.spark.sink_options import check_schema, parse_sink_options
from tidelog.spark.sink_rows import SinkRow, sink_rows

OPTIONS = parse_sink_options({"bootstrap.servers": "a:1"}, is_streaming=True)
TO_T = replace(OPTIONS, topic="t")


def schema(**kinds: str) -> list[Any]:
    return [
        SimpleNamespace(name=name, nullable=True, dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
        for name, kind in kinds.items()
    ]


def test_text_and_bytes_and_nulls() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None, ""]),
            "value": pa.array([None, b"v", b""], pa.binary()),
            "topic": pa.array(["a", "b", "a"]),
            "partition": pa.array([None, 2, 0], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": None}], None, []]),
            "offset": pa.array([1, 2, 3]),
        }
    )
    assert list(sink_rows(batch, OPTIONS, 77)) == [
        SinkRow("a", None, 77, b"k", None, (("h", None),)),
        SinkRow("b", 2, 77, None, b"v", ()),
        SinkRow("a", 0, 77, b"", b"", ()),
    ]


def test_the_option_beats_the_column() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "topic": pa.array(["a"])})
    assert [row.topic for row in sink_rows(batch, TO_T, 0)] == ["t"]
    with pytest.raises(InvalidRequest, match="null in column 'topic'"):
        list(sink_rows(pa.record_batch({"value": ["v"], "topic": pa.array([None], pa.string())}), OPTIONS, 0))


def test_timestamps_are_the_rows_own_if_they_are_to_be() -> None:
    times = pa.array([1_000_999, None, -1], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"value": pa.array(["v"] * 3), "timestamp": times})
    assert [row.timestamp_ms for row in sink_rows(batch, TO_T, 5)] == [5, 5, 5]
    kept = replace(TO_T, keeps_timestamps=True)
    assert [row.timestamp_ms for row in sink_rows(batch, kept, 5)] == [1000, 5, -1]


def test_a_header_needs_a_name() -> None:
    headers = pa.array(
        [[{"key": None, "value": b"x"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    with pytest.raises(InvalidRequest, match="header"):
        list(sink_rows(pa.record_batch({"value": pa.array(["v"]), "headers": headers}), TO_T, 0))


def test_a_schema_that_can_be_written() -> None:
    check_schema(schema(value="string", timestamp="string", other="double"), TO_T)
    check_schema(schema(key="binary", value="binary", topic="string", partition="int"), OPTIONS)


@pytest.mark.parametrize(
    ("kinds", "options", "says"),
    [
        ({"key": "string"}, TO_T, "no column 'value'"),
        ({"value": "string"}, OPTIONS, "where to"),
        ({"value": "double"}, TO_T, "binary or string, not double"),
        ({"value": "string", "partition": "bigint"}, TO_T, "column partition must be int"),
        ({"value": "string", "headers": "string"}, TO_T, "column headers must be array"),
        ({"value": "string"}, replace(TO_T, keeps_timestamps=True), "needs a column 'timestamp'"),
        ({"value": "string", "timestamp": "bigint"}, replace(TO_T, keeps_timestamps=True), "must be timestamp"),
    ],
)
def test_a_schema_that_can_not(kinds: dict[str, str], options: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        check_schema(schema(**kinds), options)


def test_sink_options() -> None:
    found = parse_sink_options(
        {"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.compression.type": "zstd", "writeid": "w"},
        is_streaming=False,
    )
    assert (found.topic, found.compression, found.write_id) == ("t", Compression.ZSTD, "w")
    assert (found.is_idempotent, found.timeout_s) == (True, 120)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kafka.acks": "1"}, "acks=all"),
        ({"writeId": "w", "idempotence": "false"}, "makes no sense"),
        ({"kafka.compression.type": "brotli"}, "zstd"),
        ({"subscribe": "t"}, "unknown option subscribe"),
    ],
)
def test_a_mistake_in_a_sink_is_told(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_sink_options({"bootstrap.servers": "a:1", **options}, is_streaming=False)
    with pytest.raises(InvalidRequest, match="known by its id"):
        parse_sink_options({"bootstrap.servers": "a:1", "writeId": "w"}, is_streaming=True)


def test_a_schema_to_read_is_a_choice_of_columns() -> None:
    assert query_columns(schema(offset="bigint", value="binary")) == ["offset", "value"]
    assert "headers" not in ddl(include_headers=False)
    assert ddl(include_headers=True).endswith("`headers` array<struct<key:string,value:binary>>")


@pytest.mark.parametrize(
    ("kinds", "says"), [({"values": "binary"}, "no column 'values'"), ({"value": "string"}, "is binary, not string")]
)
def test_other_columns_can_not_be_read(kinds: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        query_columns(schema(**kinds))
