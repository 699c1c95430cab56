"""Delays of New York's flights per carrier and week, kept up to date by Spark while the flights come in.

A streaming query reads the topic and counts. What changes in a batch goes to Parquet and, as the newest value of its
key, into a second topic. In the end both are compared with the same query over the CSV file.

    python examples/spark_flights.py                                      # on three brokers started for it
    python examples/spark_flights.py --bootstrap http://127.0.0.1:8082    # on yours
    python examples/spark_flights.py --bootstrap ... --target DIR --job   # the job alone: kill it, start it again

Both outputs can be written twice without harm, which is what makes the job restartable at any moment: a batch's Parquet
directory is named by the batch, and its records by a `writeId` made of it. For the second, the rows of a batch must
come in the same order each time; hence the sort.

Exit status 1 if the results differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flights import CARRIER, prepare, read_flights, write
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, count, element_at, max_by, split, struct, to_json, to_timestamp, when, window
from pyspark.sql.functions import max as newest_of
from pyspark.sql.functions import sum as total_of
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tidelog.admin import AdminClient
from tidelog.model.errors import TidelogError
from tidelog.spark.jobs.progress import Line, follow
from tidelog.testing import BrokerFailed, LocalCluster

DELAY, TIME = 8, 18
"""Columns of a row, as `flights.CARRIER`: minutes late on arrival, or NA; and when the flight was to leave."""
WEEK = "7 days"
BATCH_RECORDS = 50_000

Result = tuple[str, str, int, int]
"""Carrier, first day of the week, flights that arrived, their minutes of delay."""


def delays(rows: DataFrame) -> DataFrame:
    """Flights and minutes of delay per carrier and week, of rows in the column `value`. Whole numbers: their sum does
    not depend on the order in which Spark adds them."""
    fields = split(col("value").cast("string"), ",")

    def field(number: int) -> Column:
        return element_at(fields, number + 1)

    parsed = rows.select(
        field(CARRIER).alias("carrier"),
        to_timestamp(field(TIME)).alias("time"),
        when(field(DELAY).rlike("^-?[0-9]+$"), field(DELAY)).cast("bigint").alias("minutes"),
    ).where("minutes IS NOT NULL")
    counted = parsed.groupBy("carrier", window("time", WEEK)).agg(
        count("*").alias("flights"), total_of("minutes").alias("minutes")
    )
    return counted.select(
        "carrier", col("window.start").cast("date").cast("string").alias("week"), "flights", "minutes"
    )


def start(
    spark: SparkSession, bootstrap: str, topic: str, target: Path, *, batch_records: int = BATCH_RECORDS
) -> StreamingQuery:
    """The job: goes on where it ended, and ends when it has caught up with the topic."""
    rows = (
        spark.readStream.format("tidelog")
        .schema("value binary")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch_records))
        .load()
    )

    def keep(changed: DataFrame, batch_id: int) -> None:
        ordered = changed.coalesce(1).sortWithinPartitions("carrier", "week").persist()
        ordered.write.mode("overwrite").parquet(str(target / "parquet" / f"batch={batch_id}"))
        (
            ordered.select(
                struct("carrier", "week").alias("name"), struct("carrier", "week", "flights", "minutes").alias("found")
            )
            .select(to_json("name").alias("key"), to_json("found").alias("value"))
            .write.format("tidelog")
            .mode("append")
            .option("bootstrap.servers", bootstrap)
            .option("topic", results_topic(topic))
            .option("writeId", f"{target}/{batch_id}")
            .save()
        )
        ordered.unpersist()

    return (
        delays(rows)
        .writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def results_topic(topic: str) -> str:
    """Where the results go."""
    return f"{topic}-delays"


def from_parquet(spark: SparkSession, target: Path) -> list[Result]:
    """The newest of what the job wrote to Parquet."""
    versions = spark.read.parquet(str(target / "parquet"))
    newest = versions.groupBy("carrier", "week").agg(
        max_by("flights", "batch").alias("flights"), max_by("minutes", "batch").alias("minutes")
    )
    return _results(newest)


def from_topic(spark: SparkSession, bootstrap: str, topic: str) -> list[Result]:
    """The newest value of each key in the topic of results: a key's records are in one partition, in order."""
    records = (
        spark.read.format("tidelog")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", results_topic(topic))
        .load()
    )
    newest = records.groupBy("key").agg(newest_of(struct("offset", "value")).alias("last")).collect()
    results = [json.loads(bytes(row["last"]["value"])) for row in newest]
    return sorted((result["carrier"], result["week"], result["flights"], result["minutes"]) for result in results)


def from_csv(spark: SparkSession, rows: Sequence[bytes]) -> list[Result]:
    """The same query over a CSV file of the rows."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "flights.csv"
        path.write_bytes(b"\n".join(rows))
        return _results(delays(spark.read.text(str(path))))


def _results(frame: DataFrame) -> list[Result]:
    rows = frame.select("carrier", "week", "flights", "minutes").collect()
    return sorted((row["carrier"], row["week"], row["flights"], row["minutes"]) for row in rows)


async def create_topics(bootstrap: str, topic: str) -> None:
    """Makes both topics, unless they are there."""
    await prepare(bootstrap, topic)
    async with AdminClient(bootstrap) as admin:
        if results_topic(topic) not in await admin.list_topics():
            await admin.create_topic(results_topic(topic), partitions=1)


def run(spark: SparkSession, bootstrap: str, topic: str, target: Path, rows: Sequence[bytes]) -> bool:
    """Writes the flights, runs the job, compares and reports. True if all results are the same."""
    line = Line()
    asyncio.run(create_topics(bootstrap, topic))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        asyncio.run(write(bootstrap, topic, rows, progress))
    follow(start(spark, bootstrap, topic, target), "counting delays", line)
    line.end()
    expected = from_csv(spark, rows)
    same = expected == from_parquet(spark, target) == from_topic(spark, bootstrap, topic)
    report(expected, is_same=same)
    return same


def report(results: Sequence[Result], *, is_same: bool) -> None:
    """A table of the year."""
    table = Table("carrier", "flights", "minutes late, mean", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for carrier in sorted({result[0] for result in results}):
        mine = [result for result in results if result[0] == carrier]
        flights = sum(result[2] for result in mine)
        table.add_row(carrier, f"{flights:,}", f"{sum(result[3] for result in mine) / flights:.1f}")
    console = Console()
    console.print(table)
    console.print("Parquet, topic and CSV file agree: " + ("[green]yes[/]" if is_same else "[red]NO[/]"))


def session() -> SparkSession:
    """A session on this machine's cores, for a checkpoint on a local disk."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    checkpoints = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    return (
        SparkSession.builder.appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.streaming.checkpointFileManagerClass", checkpoints)
        .getOrCreate()
    )


@contextmanager
def brokers(bootstrap: str | None) -> Iterator[str]:
    """The brokers to use: some that run, or three started here that end with the program."""
    if bootstrap is not None:
        yield bootstrap
        return
    with LocalCluster(brokers=3) as cluster:
        yield cluster.bootstrap


@contextmanager
def directory(target: Path | None) -> Iterator[Path]:
    """Where results and checkpoint go: as told, or for this time only."""
    if target is not None:
        yield target
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description="Delays per carrier and week, by Spark, from a topic.")
    parser.add_argument("--bootstrap", metavar="URL", help="running brokers; default: three started for this")
    parser.add_argument("--topic", default="flights", help="default: %(default)s")
    parser.add_argument("--target", type=Path, metavar="DIR", help="where results and checkpoint go")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    parser.add_argument("--batch-records", type=int, metavar="N", default=BATCH_RECORDS, help="default: %(default)s")
    parser.add_argument("--job", action="store_true", help="only the streaming job, on a topic that is there")
    options = parser.parse_args()
    if options.job and not (options.bootstrap and options.target):
        parser.error("--job needs --bootstrap and --target")
    spark = session()
    try:
        if options.job:
            follow(
                start(spark, options.bootstrap, options.topic, options.target, batch_records=options.batch_records),
                "counting delays",
                Line(),
            )
            return 0
        with brokers(options.bootstrap) as bootstrap, directory(options.target) as target:
            return 0 if run(spark, bootstrap, options.topic, target, read_flights(options.limit)) else 1
    except (TidelogError, BrokerFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
