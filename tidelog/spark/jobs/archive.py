"""The job `archive`: a topic's present records to Parquet, each exactly once, also after failures.

It is a streaming query that ends when it has caught up. Spark's log has the offset range of each batch before it is
read, and Parquet's own log (`_spark_metadata`) lists the files of finished batches. An unfinished batch is written
again under the same number, and its first files are ignored. A restarted archive continues where it ended.

    TARGET/records/topic=T/partition=P/date=YYYY-MM-DD/*.parquet     read them with Spark, from TARGET/records
    TARGET/_checkpoint
"""

from __future__ import annotations

from pyspark.sql import SparkSession, functions

from tidelog.spark.jobs.progress import Tell, follow, quiet

RECORDS_PER_BATCH = 1_000_000
RECORDS = "records"
CHECKPOINT = "_checkpoint"


def archive(
    spark: SparkSession,
    bootstrap: str,
    topics: str,
    target: str,
    *,
    records_per_batch: int = RECORDS_PER_BATCH,
    tell: Tell = quiet,
) -> int:
    """Archives the new records of the topics (comma-separated) and returns their number. `date` is the date of the
    record's timestamp, in the session's time zone.

    Raises the query's error; a restart continues the archive.
    """
    frame = (
        spark.readStream.format("tidelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(records_per_batch))
        .load()
    )
    query = (
        frame.withColumn("date", functions.to_date("timestamp"))
        .writeStream.format("parquet")
        .option("path", f"{target}/{RECORDS}")
        .option("checkpointLocation", f"{target}/{CHECKPOINT}")
        .partitionBy("topic", "partition", "date")
        .trigger(availableNow=True)
        .start()
    )
    try:
        return follow(query, f"archiving {topics}", tell)
    finally:
        query.stop()
