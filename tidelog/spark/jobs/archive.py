"""A topic to Parquet: everything that is there now, each record exactly once, whatever happens on the way.

It is a streaming query that ends when it has caught up. Spark's log holds the offset range of each batch before it is
read, and Parquet's own log (`_spark_metadata`) names the files of the batches that were finished: one that was begun
and not finished is written again, under the same number, and what it left behind is never looked at. Started again, the
archive goes on where it ended.

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
    """Archives what is new in the topics (a comma list) and returns how many records that was. `date` is that of the
    record's timestamp, in the session's time zone.

    Raises what the query failed with; begin again, and it goes on.
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
