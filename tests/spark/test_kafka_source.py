"""Spark's own Kafka source and sink, unmodified, on tidelog topics. They are jars: `make kafka-jars`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Topic, ended, kafka_jars
from tidelog.testing import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not kafka_jars(), reason="Spark's Kafka jars are not here: make kafka-jars"),
]
ROWS = 1_000


@pytest.fixture(scope="module")
def listening() -> Iterator[LocalCluster]:
    with LocalCluster(kafka=True) as cluster:
        yield cluster


def read(spark: SparkSession, cluster: LocalCluster, topic: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.kafka_bootstrap)
    return reader.option("subscribe", topic).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


@pytest.mark.parametrize("protocol", ["isr", "paxos"])
def test_sparks_own_kafka_source_and_sink(
    spark: SparkSession, listening: LocalCluster, protocol: str, tmp_path: Path
) -> None:
    configs = {"commit.protocol": protocol}
    source = Topic(spark, listening, partitions=3, configs=configs)
    target = Topic(spark, listening, partitions=3, configs=configs)
    options = {"kafka.bootstrap.servers": listening.kafka_bootstrap}
    rows = spark.range(ROWS).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.format("kafka").options(**options, topic=source.name).save()
    assert values(read(spark, listening, source.name)) == [*range(ROWS)]

    stream = (
        spark.readStream.format("kafka").options(**options, subscribe=source.name, startingOffsets="earliest").load()
    )
    writer = stream.select("key", "value").writeStream.format("kafka").options(**options, topic=target.name)
    ended(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())
    assert values(read(spark, listening, target.name)) == [*range(ROWS)]
    assert len(target.values()) == ROWS, "and tidelog's own source reads the same"
