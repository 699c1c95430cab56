"""The job `stats`: records and bytes of a topic by partition, by hour, and of the largest keys, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, count, desc, grouping_id, lit, octet_length, unix_millis
from pyspark.sql.functions import sum as total_of

from tidelog.spark.jobs.progress import Tell, quiet, watched

KEYS_MAX = 20


@dataclass(frozen=True, slots=True)
class Volume:
    """The number of records, and the bytes of their keys and values, of one partition, hour or key."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The volume of a topic. `by_hour` uses the records' timestamps, UTC; `by_key` has the largest keys in bytes first,
    None for no key."""

    total: Volume
    by_partition: dict[tuple[str, int], Volume]
    by_hour: dict[datetime, Volume]
    by_key: dict[bytes | None, Volume]


def stats(spark: SparkSession, bootstrap: str, topics: str, *, keys_max: int = KEYS_MAX, tell: Tell = quiet) -> Stats:
    """Counts the present records of the topics (comma-separated)."""
    frame = (
        spark.read.format("tidelog")
        .schema("key binary, value binary, topic string, partition int, timestamp timestamp")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .load()
    )
    hour = (unix_millis("timestamp") / lit(3_600_000)).cast("bigint")
    groups = frame.select(
        "topic",
        "partition",
        hour.alias("hour"),
        "key",
        (_size("key") + _size("value")).alias("bytes"),
    ).groupingSets(
        [[col("topic"), col("partition")], [col("hour")], [col("key")]],
        "topic",
        "partition",
        "hour",
        "key",
    )
    with watched(spark, f"reading {topics}", tell):
        counted = groups.agg(
            grouping_id().alias("kind"),
            count("*").alias("records"),
            total_of("bytes").alias("volume"),
        ).persist()
        try:
            return _collect(counted, keys_max)
        finally:
            counted.unpersist()


PARTITION, HOUR, KEY = 0b0011, 0b1101, 0b1110
"""Spark's `grouping_id` of rows grouped by partition, hour or key: a bit per column (topic, partition, hour, key), set
if the row is *not* grouped by it."""


def _collect(counted: DataFrame, keys_max: int) -> Stats:
    rows = counted.where(col("kind") != KEY).collect()
    by_partition = {
        (row["topic"], row["partition"]): Volume(row["records"], row["volume"])
        for row in rows
        if row["kind"] == PARTITION
    }
    by_hour = {
        datetime.fromtimestamp(row["hour"] * 3600, UTC): Volume(row["records"], row["volume"])
        for row in rows
        if row["kind"] == HOUR
    }
    keys = counted.where(col("kind") == KEY).orderBy(desc("volume"), desc("records"), "key").limit(keys_max)
    by_key = {_bytes(row["key"]): Volume(row["records"], row["volume"]) for row in keys.collect()}
    total = Volume(
        sum(volume.records for volume in by_partition.values()), sum(volume.bytes for volume in by_partition.values())
    )
    return Stats(total, dict(sorted(by_partition.items())), dict(sorted(by_hour.items())), by_key)


def _size(column: str) -> Column:
    return coalesce(octet_length(column), lit(0)).cast("bigint")


def _bytes(key: bytearray | bytes | None) -> bytes | None:
    return None if key is None else bytes(key)
