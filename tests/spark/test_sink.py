"""The sink in Spark: every record once, although Spark writes some of them twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Topic, ended, uncommit
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(120)]

VALUES = [b"%d" % number for number in range(1000)]


@pytest.fixture
def target(spark: SparkSession, broker: LocalCluster) -> Topic:
    return Topic(spark, broker, partitions=2)


def copy(frame: DataFrame, target: Topic, checkpoint: Path) -> None:
    writer = frame.writeStream.format("tidelog").option("kafka.bootstrap.servers", target.cluster.bootstrap)
    writer = writer.option("topic", target.name).option("checkpointLocation", str(checkpoint))
    ended(writer.trigger(availableNow=True).start())


@pytest.mark.parametrize("configs", [None, {"commit.protocol": "paxos", "commit.order": "key"}], ids=["isr", "by key"])
def test_a_batch_that_spark_writes_again_is_there_once(
    spark: SparkSession, broker: LocalCluster, configs: dict[str, str] | None, tmp_path: Path
) -> None:
    topic, target = Topic(spark, broker, configs=configs), Topic(spark, broker, partitions=2, configs=configs)
    topic.write(VALUES)
    source = topic.stream(maxOffsetsPerTrigger="400")
    copy(source, target, tmp_path)
    uncommit(tmp_path, 2)
    topic.write([b"more"])
    copy(source, target, tmp_path)
    assert sorted(target.values()) == sorted([*VALUES, b"more"])


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_task_that_fails_half_way_is_there_once(
    spark: SparkSession, broker: LocalCluster, topic: Topic, tmp_path: Path
) -> None:
    target = Topic(spark, broker)
    topic.write([b"%05d" % number + b"x" * 3000 for number in range(5000)])

    def fragile(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if context.attemptNumber() == 0 and number == 8:
                raise RuntimeError("the executor was lost")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        copy(topic.stream().select("value").mapInArrow(fragile, "value binary"), target, tmp_path)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [value[:5] for value in target.values()] == [b"%05d" % number for number in range(5000)]


def test_a_batch_write_with_a_name_is_there_once(spark: SparkSession, target: Topic) -> None:
    rows = spark.range(500).selectExpr("cast(id % 7 AS string) AS key", "cast(id AS string) AS value")
    writer = rows.write.format("tidelog").mode("append").option("bootstrap.servers", target.cluster.bootstrap)
    for write_id in ("january", "january", "february"):
        writer.option("topic", target.name).option("writeId", write_id).save()
    assert sorted(target.values()) == sorted(b"%d" % number for number in range(500) for _ in range(2))


def test_other_rows_under_the_same_name_are_refused(spark: SparkSession, target: Topic) -> None:
    for number, rows in enumerate(["a", "b"]):
        frame = spark.createDataFrame([(rows,)], "value string").coalesce(1)
        writer = frame.write.format("tidelog").mode("append").option("bootstrap.servers", target.cluster.bootstrap)
        writer = writer.option("topic", target.name).option("writeId", "w")
        if number == 0:
            writer.save()
        else:
            with pytest.raises(Exception, match="sortWithinPartitions"):
                writer.save()
    assert target.values() == [b"a"]


def test_columns_say_where_to(spark: SparkSession, target: Topic, topic: Topic) -> None:
    frame = spark.createDataFrame(
        [(target.name, 1, "k", "v", [("h", bytearray(b"1"))]), (topic.name, None, None, "w", None)],
        "topic string, partition int, key string, value string, headers array<struct<key:string,value:binary>>",
    )
    frame.write.format("tidelog").mode("append").option("bootstrap.servers", target.cluster.bootstrap).save()
    (row,) = target.batch(includeHeaders="true").collect()
    assert (row["partition"], row["key"], row["value"]) == (1, b"k", b"v")
    assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [("h", b"1")]
    assert topic.values() == [b"w"]


def test_a_topic_is_not_overwritten(spark: SparkSession, target: Topic) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    writer = frame.write.format("tidelog").mode("overwrite").option("bootstrap.servers", target.cluster.bootstrap)
    with pytest.raises(Exception, match="can only be appended to"):
        writer.option("topic", target.name).save()
