"""How fast one Spark task reads from a broker on the same machine, against a source that makes its rows up.

    python bench/spark_source.py [--megabytes 200] [--rounds 3]

Both are streaming queries of one task into the `noop` sink, over Spark's Arrow path, in turns; the generator's rows
cost nothing to make, so it is the ceiling of what any Python source can reach here. Batches on the broker hold 900
records or more. A third pair of queries, over few records, shows what a micro-batch costs before it has read anything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark_generated import KEY

from tidelog.admin import AdminClient
from tidelog.model.batch_codec import encode_batch
from tidelog.spark.cluster import BATCHES_HEADERS, Cluster
from tidelog.testing import LocalCluster

RECORDS_PER_BATCH = 1000
BATCHES = 5
"""Micro-batches of a query; the first is left out, it starts processes."""


def session() -> SparkSession:
    """As docs/spark.md recommends it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    checkpoints = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.streaming.checkpointFileManagerClass", checkpoints)
        .getOrCreate()
    )


def steady(frame: DataFrame) -> list[tuple[int, float]]:
    """Rows and seconds of each micro-batch after the first."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found = [one for one in query.recentProgress if one.numInputRows][1:]
    return [(one.numInputRows, one.durationMs["triggerExecution"] / 1000) for one in found]


def fill(cluster: LocalCluster, topic: str, rows: int, size: int) -> None:
    """Writes `rows` records in batches of a thousand, fewer if they are large."""
    client = Cluster([cluster.bootstrap], timeout_s=60.0)
    per_batch = min(RECORDS_PER_BATCH, max(200, 900_000 // size))
    target = f"/topics/{topic}/partitions/0/batches"
    batch = bytes(encode_batch([(1_700_000_000_000 + number, KEY, os.urandom(size)) for number in range(per_batch)]))
    for _ in range(rows // per_batch):
        client.send("POST", cluster.broker().url, target, body=batch, headers=BATCHES_HEADERS).check()
    client.close()


def create(cluster: LocalCluster, topic: str) -> None:
    """One partition."""

    async def ask() -> None:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic(topic, partitions=1, configs={"retention.ms": "-1"})

    asyncio.run(ask())


def streams(
    spark: SparkSession, cluster: LocalCluster, topic: str, *, rows: int, size: int, per_batch: int
) -> dict[str, DataFrame]:
    """Both sources, cut into equal micro-batches."""
    generator = spark.readStream.format("generated").options(rows=str(rows), size=str(size), perBatch=str(per_batch))
    broker = spark.readStream.format("tidelog").option("bootstrap.servers", cluster.bootstrap)
    broker = broker.option("subscribe", topic).option("startingOffsets", "earliest")
    return {"generator": generator.load(), "tidelog": broker.option("maxOffsetsPerTrigger", str(per_batch)).load()}


def measure(spark: SparkSession, cluster: LocalCluster, size: int, megabytes: int, rounds: int) -> None:
    """One line for each source, and their ratio."""
    topic, rows = f"size-{size}", megabytes * 1_000_000 // size // 1000 * 1000
    create(cluster, topic)
    fill(cluster, topic, rows, size)
    found: dict[str, list[float]] = {"generator": [], "tidelog": []}
    for _ in range(rounds):
        for name, frame in streams(spark, cluster, topic, rows=rows, size=size, per_batch=rows // BATCHES).items():
            batches = steady(frame)
            found[name].append(sum(count for count, _ in batches) / sum(seconds for _, seconds in batches))
    for name, rates in found.items():
        best = max(rates)
        spread = ", ".join(f"{rate / 1e6:.2f}" for rate in rates)
        print(f"{size:>5} B  {name:10} {best / 1e6:6.2f} M rows/s {best * size / 1e6:7.0f} MB/s   (each: {spread})")
    pairs = sorted(ours / theirs for ours, theirs in zip(found["tidelog"], found["generator"], strict=True))
    print(
        f"{size:>5} B  of the ceiling: {statistics.median(pairs):.0%} (pairs: {', '.join(f'{p:.0%}' for p in pairs)})"
    )


def measure_floor(spark: SparkSession, cluster: LocalCluster) -> None:
    """What a micro-batch costs that has next to nothing to read."""
    create(cluster, "floor")
    fill(cluster, "floor", 20_000, 100)
    frames = streams(spark, cluster, "floor", rows=20_000, size=100, per_batch=1000)
    for name, frame in frames.items():
        found = steady(frame)
        seconds = statistics.median(seconds for _, seconds in found)
        print(f"{name:10} {seconds * 1000:.0f} ms a micro-batch of 1000 records (median of {len(found)})")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="One Spark task, against a source that makes its rows up.")
    parser.add_argument("--megabytes", type=int, default=200, help="read by each query; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    spark = session()
    with LocalCluster() as cluster:
        for size in (100, 1000):
            measure(spark, cluster, size, options.megabytes, options.rounds)
        measure_floor(spark, cluster)
    spark.stop()


if __name__ == "__main__":
    main()
