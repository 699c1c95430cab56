"""The job `replay`: an archive back into a topic, with the same keys, values, headers and timestamps, in the same
partitions and order.

One task writes one partition, in the order of the offsets. The write has an id, and its chunks that are already in the
topic are not appended again: an interrupted replay is simply repeated. That holds while brokers remember a producer
(`producer.id.expiration.ms`, a day), and while the archive is unchanged.
"""

from __future__ import annotations

from pyspark.sql import SparkSession, functions

from tidelog.model.errors import InvalidRequest
from tidelog.spark.cluster import find_cluster
from tidelog.spark.columns import ddl
from tidelog.spark.jobs.archive import RECORDS
from tidelog.spark.jobs.progress import Tell, quiet, watched
from tidelog.spark.options import TIMEOUT_MS
from tidelog.transport.addresses import parse_bootstrap


def replay(
    spark: SparkSession,
    source: str,
    bootstrap: str,
    topic: str,
    *,
    archived_topic: str | None = None,
    write_id: str | None = None,
    by_key: bool = False,
    tell: Tell = quiet,
) -> int:
    """Appends the records that `archive` wrote to `source`; returns their number. `archived_topic` is the archive's
    topic, if not `topic`; `by_key` chooses partitions by the records' keys, for a topic with another number of
    partitions.

    Raises `InvalidRequest` if the topic has too few partitions.
    """
    records = spark.read.schema(f"{ddl(include_headers=True)}, `date` date").parquet(f"{source}/{RECORDS}")
    chosen = records.where(functions.col("topic") == (archived_topic or topic)).drop("topic", "date")
    with watched(spark, f"reading {source}", tell):
        totals = chosen.agg(functions.count("*").alias("records"), functions.max("partition").alias("last")).first()
    assert totals is not None
    if totals["records"] == 0:
        return 0
    _check_partitions(bootstrap, topic, 0 if by_key else totals["last"])
    tasks = totals["last"] + 1
    ordered = chosen.repartition(tasks, "partition").sortWithinPartitions("partition", "offset")
    rows = ordered.drop("partition") if by_key else ordered
    with watched(spark, f"writing {topic}", tell):
        (
            rows.write.format("tidelog")
            .mode("append")
            .option("bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("keepTimestamps", "true")
            .option("writeId", write_id or f"replay of {source}")
            .save()
        )
    return int(totals["records"])


def _check_partitions(bootstrap: str, topic: str, last: int) -> None:
    cluster = find_cluster(parse_bootstrap(bootstrap), timeout_s=TIMEOUT_MS / 1000)
    try:
        topics = cluster.metadata([topic]).topics
    finally:
        cluster.close()
    if not topics:
        raise InvalidRequest(f"topic {topic!r} does not exist; create it first")
    if last >= len(topics[0].partitions):
        raise InvalidRequest(
            f"the archive has a partition {last}, and topic {topic!r} has {len(topics[0].partitions)} partitions; "
            "by_key lets keys choose"
        )
