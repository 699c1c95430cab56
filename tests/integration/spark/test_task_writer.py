"""Tasks that write, without Spark: to a real broker, once and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tidelog.admin import AdminClient
from tidelog.model.batch_header import Compression
from tidelog.model.errors import InvalidRequest, TooLarge, UnknownTopic
from tidelog.spark import task_writer
from tidelog.spark.cluster import Cluster
from tidelog.spark.decode import decode_piece
from tidelog.spark.errors import LossRule, NotRepeatable
from tidelog.spark.options import Selection
from tidelog.spark.planner import OffsetRange
from tidelog.spark.range_reader import read_range
from tidelog.spark.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.task_writer import TaskWriter
from tidelog.spark.view import ClusterView
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process
_numbers = count()


def create(broker: LocalCluster, partitions: int = 2, configs: dict[str, str] | None = None) -> str:
    topic = f"topic-{next(_numbers)}"

    async def ask() -> None:
        async with AdminClient(broker.bootstrap) as admin:
            await admin.create_topic(topic, partitions=partitions, configs=configs)

    asyncio.run(ask())
    return topic


def read(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    snapshot = ClusterView(cluster).snapshot(Selection(topics=(topic,)), {})
    found: list[dict[str, Any]] = []
    for key, extent in sorted(snapshot.extents.items()):
        one = OffsetRange(*key, extent.start, extent.end, snapshot.topic_ids[topic])
        for piece in read_range(cluster, one, None, LossRule()):
            for batch in decode_piece(piece, one, ["partition", "offset", "key", "value", "headers"]):
                found += batch.to_pylist()
    return found


@pytest.fixture
def options(broker: LocalCluster) -> Callable[..., SinkOptions]:
    parsed = parse_sink_options({"bootstrap.servers": broker.bootstrap}, is_streaming=True)
    return lambda topic, **changes: replace(parsed, topic=topic, **changes)


def rows(*values: str | None, keys: list[str | None] | None = None) -> pa.RecordBatch:
    return pa.record_batch(
        {"key": pa.array(keys or [None] * len(values), pa.string()), "value": pa.array(values, pa.string())}
    )


@pytest.mark.parametrize("compression", Compression)
def test_what_is_written_twice_is_appended_once(
    broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions], compression: Compression
) -> None:
    topic = create(broker)
    wanted = options(topic, compression=compression)
    values = [f"value {number}" * 50 for number in range(3000)]
    batch = rows(*values, keys=[f"k{number % 17}" for number in range(3000)])
    for attempt in range(3):
        pieces = [batch.slice(start, 700 + attempt) for start in range(0, 3000, 700 + attempt)]
        assert TaskWriter(cluster, wanted, "stream/q/7/0").write(pieces).records == 3000
    found = read(cluster, topic)
    assert sorted(str(row["value"], "utf-8") for row in found) == sorted(values)
    assert [row["value"] for row in found if row["key"] == b"k3"] == [v.encode() for v in values[3::17]]


def test_an_attempt_that_died_half_way_is_completed(
    broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(broker)
    all_of_it = [rows(*(f"{start + number:05}" * 20 for number in range(10_000))) for start in (0, 10_000, 20_000)]

    def dying() -> Iterator[pa.RecordBatch]:
        yield from all_of_it[:2]
        raise RuntimeError("the executor was lost")

    monkeypatch.setattr(task_writer, "HELD_BYTES", 1)
    with pytest.raises(RuntimeError):
        TaskWriter(cluster, options(topic), "stream/q/7/0").write(dying())
    assert 0 < len(read(cluster, topic)) <= 20_000
    TaskWriter(cluster, options(topic), "stream/q/7/0").write(all_of_it)
    assert len(read(cluster, topic)) == 30_000


def test_attempts_whose_input_just_ended_are_completed(
    broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions]
) -> None:
    """Spark does not tell a sink that the computation before it failed: its input is over, that is all."""
    topic = create(broker)
    pieces = [rows(*(f"{start + number:05}" for number in range(100))) for start in range(0, 1000, 100)]
    for seen in (3, 4, 9, 10, 10):
        TaskWriter(cluster, options(topic), "stream/q/7/0").write(pieces[:seen])
        assert len(read(cluster, topic)) == 100 * seen
    assert sorted(str(row["value"], "utf-8") for row in read(cluster, topic)) == [
        f"{number:05}" for number in range(1000)
    ]
    with pytest.raises(NotRepeatable):
        TaskWriter(cluster, options(topic), "stream/q/7/0").write([rows("00000", "other")])
    assert len(read(cluster, topic)) == 1000


def test_another_task_batch_or_query_is_another_write(
    broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions]
) -> None:
    topic = create(broker)
    for scope in ("stream/q/7/0", "stream/q/7/1", "stream/q/8/0", "stream/r/7/0"):
        TaskWriter(cluster, options(topic), scope).write([rows("same")])
    assert len(read(cluster, topic)) == 4


def test_other_rows_the_second_time_are_refused_and_nothing_is_lost_in_silence(
    broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions]
) -> None:
    topic = create(broker, partitions=1)
    TaskWriter(cluster, options(topic), "s").write([rows("a", "b")])
    with pytest.raises(NotRepeatable, match="sortWithinPartitions"):
        TaskWriter(cluster, options(topic), "s").write([rows("b", "a")])
    assert [row["value"] for row in read(cluster, topic)] == [b"a", b"b"]


def test_nulls_and_headers(broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions]) -> None:
    topic = create(broker, partitions=1)
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None])
    batch = pa.record_batch({"value": pa.array([None, b""], pa.binary()), "headers": headers})
    TaskWriter(cluster, options(topic), "s").write([batch])
    assert [(row["key"], row["value"], row["headers"]) for row in read(cluster, topic)] == [
        (None, None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]),
        (None, b"", None),
    ]


def test_a_topic_that_is_not_there(cluster: Cluster, options: Callable[..., SinkOptions]) -> None:
    with pytest.raises(UnknownTopic, match="create it first"):
        TaskWriter(cluster, options("nowhere"), "s").write([rows("a")])


def test_a_row_that_is_too_large(broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions]) -> None:
    topic = create(broker, configs={"max.message.bytes": "2000"})
    with pytest.raises(TooLarge, match=r"max\.message\.bytes"):
        TaskWriter(cluster, options(topic), "s").write([rows("x" * 3000)])


@pytest.mark.slow
def test_a_broker_that_is_killed_and_started_again_knows_what_it_has(options: Callable[..., SinkOptions]) -> None:
    with LocalCluster() as own:
        topic = create(own)
        cluster = Cluster([own.bootstrap], timeout_s=30.0)

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows(*("x" * 2000 for _ in range(5000)))
            own.kill()
            own.restart()
            yield rows("after")

        for _ in range(2):
            TaskWriter(cluster, options(topic), "s").write(batches())
            assert len(read(cluster, topic)) == 5001
        cluster.close()


def test_partitions_beyond_the_topics(
    broker: LocalCluster, cluster: Cluster, options: Callable[..., SinkOptions]
) -> None:
    topic = create(broker)
    batch = pa.record_batch({"value": pa.array(["v"]), "partition": pa.array([2], pa.int32())})
    with pytest.raises(InvalidRequest, match="has 2 partitions"):
        TaskWriter(cluster, options(topic), "s").write([batch])
