"""The source in Spark: what it gives, and what becomes of a query that fails, is restarted, or whose topic changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.asking import until
from tests.spark.conftest import SETTINGS, Batches, Topic, run
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import Compression
from tidelog.model.records import RecordLike
from tidelog.spark.cluster import BATCHES_HEADERS, Cluster
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(120)]

KAFKAS_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)


def post(broker: LocalCluster, topic: str, data: bytes) -> None:
    cluster = Cluster([broker.bootstrap], timeout_s=10.0)
    target = f"/topics/{topic}/partitions/0/batches"
    cluster.send("POST", broker.broker().url, target, body=data, headers=BATCHES_HEADERS)
    cluster.close()


def test_rows_are_those_of_kafkas_source_whatever_the_codec(spark: SparkSession, broker: LocalCluster) -> None:
    topic = Topic(spark, broker, configs={"retention.ms": "-1"})
    records: list[RecordLike] = [
        (1_700_000_000_123, b"k", b"v", [("h", b"1"), ("h", None)]),
        (1_700_000_000_124, None, None, []),
        (-1, b"", b"", [("", b"")]),
    ]
    for codec in Compression:
        post(broker, topic.name, bytes(encode_batch(records, compression=codec)))
    found = topic.batch(includeHeaders="true")
    assert found.schema.simpleString() == f"{KAFKAS_SCHEMA},headers:array<struct<key:string,value:binary>>>"
    assert topic.batch().schema.simpleString() == f"{KAFKAS_SCHEMA}>"
    rows = sorted(found.collect(), key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == [*range(15)]
    for first in range(0, 15, 3):
        plain, empty, blank = (row.asDict(recursive=True) for row in rows[first : first + 3])
        assert (plain["key"], plain["value"], plain["topic"], plain["partition"]) == (b"k", b"v", topic.name, 0)
        assert plain["timestamp"].timestamp() == 1_700_000_000.123
        assert plain["timestampType"] == 0
        assert plain["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
        assert (empty["key"], empty["value"], empty["headers"]) == (None, None, None)
        assert (blank["key"], blank["value"], blank["headers"]) == (b"", b"", [{"key": "", "value": b""}])


def test_a_schema_chooses_columns_and_filters_narrow_what_is_read(spark: SparkSession, broker: LocalCluster) -> None:
    topic = Topic(spark, broker, partitions=2)
    for partition in (0, 1):
        topic.write([b"%d" % number for number in range(100)], partition)
    reader = spark.read.format("tidelog").option("bootstrap.servers", broker.bootstrap).option("subscribe", topic.name)
    chosen = reader.schema("offset bigint, partition int, value binary").option("filterPushdown", "true").load()
    assert chosen.columns == ["offset", "partition", "value"]
    narrow = chosen.where("partition = 1 and offset >= 97")
    assert sorted((row[0], row[1], bytes(row[2])) for row in narrow.collect()) == [
        (97, 1, b"97"),
        (98, 1, b"98"),
        (99, 1, b"99"),
    ]
    assert narrow.rdd.getNumPartitions() == 1
    pieces = reader.option("minPartitions", "6").load()
    assert (pieces.rdd.getNumPartitions(), pieces.count()) == (6, 200)


def test_sql_finds_the_format(spark: SparkSession, topic: Topic) -> None:
    topic.write([b"a", b"b"])
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW from_sql USING tidelog "
        f"OPTIONS (`bootstrap.servers` '{topic.cluster.bootstrap}', subscribe '{topic.name}')"
    )
    assert spark.sql("SELECT cast(value AS string) v FROM from_sql ORDER BY offset").collect() == [("a",), ("b",)]


def test_a_mistake_in_an_option_is_told(topic: Topic) -> None:
    with pytest.raises(Exception, match="unknown option startingoffset"):
        topic.batch(startingOffset="earliest").collect()


@pytest.mark.parametrize("dies_in", [0, 1])
def test_a_batch_that_failed_is_read_again_and_nothing_else(topic: Topic, tmp_path: Path, dies_in: int) -> None:
    topic.write([b"v"] * 10)
    sink = Batches()
    sink.dies_in = dies_in
    with pytest.raises(Exception, match="the sink is broken"):
        run(topic.stream(maxOffsetsPerTrigger="5"), sink, tmp_path)
    topic.write([b"v"] * 10)
    sink.dies_in = None
    run(topic.stream(maxOffsetsPerTrigger="5"), sink, tmp_path)
    assert sink.seen == {0: [*range(5)], 1: [*range(5, 10)], 2: [*range(10, 15)], 3: [*range(15, 20)]}


def test_latest_is_pinned_although_the_first_batch_fails(topic: Topic, tmp_path: Path) -> None:
    topic.write([b"old"] * 10)
    sink = Batches()
    sink.dies_in = 0
    with pytest.raises(Exception, match="the sink is broken"):
        run(topic.stream(startingOffsets="latest"), sink, tmp_path)
    topic.write([b"new"] * 5)
    sink.dies_in = None
    run(topic.stream(startingOffsets="latest"), sink, tmp_path)
    assert sink.seen == {0: [], 1: [*range(10, 15)]}


def test_a_query_over_many_partitions_ends(spark: SparkSession, broker: LocalCluster, tmp_path: Path) -> None:
    """Spark compares positions as strings: were their keys not always in one order, this would go on for ever."""
    topic = Topic(spark, broker, partitions=12)
    for partition in range(12):
        topic.write([b"v"] * (partition + 1), partition)
    sink = Batches()
    run(topic.stream(), sink, tmp_path)
    run(topic.stream(), sink, tmp_path)
    assert {batch: len(offsets) for batch, offsets in sink.seen.items()} == {0: 78}


def test_available_now_ends_although_more_is_written(topic: Topic, tmp_path: Path) -> None:
    topic.write([b"v"] * 10)

    class Writing(Batches):
        def __call__(self, frame: DataFrame, batch_id: int) -> None:
            super().__call__(frame, batch_id)
            topic.write([b"late"] * 10)

    sink = Writing()
    query = run(topic.stream(maxOffsetsPerTrigger="4"), sink, tmp_path)
    assert sink.seen == {0: [*range(4)], 1: [*range(4, 8)], 2: [8, 9]}
    progress = query.lastProgress
    assert progress is not None
    (source,) = json.loads(progress.json)["sources"]
    assert source["endOffset"][topic.name] == {"0": 10}
    lag = source["latestOffset"][topic.name]["0"] - source["endOffset"][topic.name]["0"]
    assert lag == 20  # what was there when the last batch was planned


def test_retention_that_overtakes_a_query(spark: SparkSession, broker: LocalCluster, tmp_path: Path) -> None:
    topic = Topic(spark, broker, configs={"segment.bytes": "1024", "retention.bytes": "1024"})
    sink = Batches()
    topic.write([b"first"])
    run(topic.stream(), sink, tmp_path)
    for _ in range(8):
        topic.write([b"x" * 900])
    until(lambda: topic.start_offset() > 1)
    start = topic.start_offset()
    with pytest.raises(Exception, match=r"records 1 to \d+ have been deleted.*failOnDataLoss"):
        run(topic.stream(), sink, tmp_path)
    run(topic.stream(failOnDataLoss="false"), sink, tmp_path)
    assert sink.offsets[0] == 0
    assert sink.offsets[1] >= start
    assert sink.offsets[-1] == 8


def test_an_accepted_loss_fails_a_query_or_is_passed(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster(settings=SETTINGS) as cluster:
        topic, sink = Topic(spark, cluster), Batches()
        for value in (b"first", b"lost-for-good", b"last"):
            topic.write([value])
        cluster.kill()
        (path,) = (path for path in cluster.broker().data_dir.rglob("*.log") if b"lost-for-good" in path.read_bytes())
        path.write_bytes(path.read_bytes().replace(b"lost-for-good", b"lost-for-ever"))
        cluster.restart()
        with pytest.raises(Exception, match=r"offsets 1 to 1 .* are damaged"):
            topic.batch(failOnDataLoss="false", **{"kafkaConsumer.pollTimeoutMs": "2000"}).collect()
        command = ["accept-loss", "--topic", topic.name, "--partition", "0", "--execute"]
        subprocess.run([sys.executable, "-m", "tidelog", "log", *command, "--bootstrap", cluster.bootstrap], check=True)
        with pytest.raises(Exception, match=r"records 1-1 are lost.*failOnDataLoss"):
            topic.values()
        with pytest.raises(Exception, match=r"records 1-1 are lost.*failOnDataLoss"):
            run(topic.stream(), sink, tmp_path)
        run(topic.stream(failOnDataLoss="false"), sink, tmp_path)
        assert sink.offsets == [0, 2]
        assert topic.values(failOnDataLoss="false") == [b"first", b"last"]


def test_a_topic_that_was_made_again_is_a_loss(topic: Topic, tmp_path: Path) -> None:
    topic.write([b"v"] * 5)
    sink = Batches()
    run(topic.stream(), sink, tmp_path)
    topic.delete()
    topic.create()
    topic.write([b"other"] * 9)
    with pytest.raises(Exception, match="deleted and made again"):
        run(topic.stream(), sink, tmp_path)
    run(topic.stream(failOnDataLoss="false"), sink, tmp_path)
    assert {batch: len(offsets) for batch, offsets in sink.seen.items() if offsets} == {0: 5, 1: 9}


def test_idle_queries_stop_and_pick_up_what_comes(topic: Topic, tmp_path: Path) -> None:
    rows: list[Any] = []
    query = (
        topic.stream()
        .writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        topic.write([b"v"] * 3)
        until(lambda: len(rows) == 3)
        topic.write([b"v"] * 2)
        until(lambda: len(rows) == 5)
    finally:
        query.stop()
    assert query.exception() is None
