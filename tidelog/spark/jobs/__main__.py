"""The command line of the Spark jobs: `spark-submit` this file, or `python -m tidelog.spark.jobs`."""

from __future__ import annotations

import argparse
import re
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelog.model.errors import TidelogError
from tidelog.spark.jobs import archive, audit, replay, stats
from tidelog.spark.jobs.archive import RECORDS_PER_BATCH
from tidelog.spark.jobs.progress import Line
from tidelog.spark.jobs.stats import KEYS_MAX, Stats, Volume

EXAMPLES = """examples:
  archive --bootstrap http://127.0.0.1:8082 flights /archive/flights
  replay  --bootstrap http://127.0.0.1:8082 /archive/flights flights-again --from-topic flights
  audit   --bootstrap http://127.0.0.1:8082 flights orders
  stats   --bootstrap http://127.0.0.1:8082 flights"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="tidelog.spark.jobs",
        description="Whole-topic pipelines on Spark.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    job = commands.add_parser("archive", help="topics to Parquet, each record once; goes on where it ended")
    job.add_argument("topics", help="a comma list")
    job.add_argument("target", help="a directory that Spark can write")
    job.add_argument("--records-per-batch", type=int, default=RECORDS_PER_BATCH)
    job = commands.add_parser("replay", help="an archive back into a topic, each record once")
    job.add_argument("source", help="what archive wrote")
    job.add_argument("topic", help="where to; it must exist")
    job.add_argument("--from-topic", help="the archived topic, if it is another one")
    job.add_argument("--by-key", action="store_true", help="let keys choose partitions")
    job.add_argument("--write-id", help="the name under which a repeat is recognised")
    job = commands.add_parser("audit", help="read every replica, compare; exit status 1 if anything is wrong")
    job.add_argument("topics", nargs="+")
    job = commands.add_parser("stats", help="volume by partition, hour and key")
    job.add_argument("topics", help="a comma list")
    job.add_argument("--keys", type=int, default=KEYS_MAX, help="how many of the largest keys")
    for command in commands.choices.values():
        command.add_argument("--bootstrap", required=True, help="a comma list of brokers")
    return root


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    options = parser().parse_args(arguments)
    builder = SparkSession.builder.appName(f"tidelog {options.command}").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    tell = Line()
    try:
        return run(spark, options, tell)
    except (TidelogError, PySparkException) as error:
        message = explain(error)
        if message is None:
            raise
        tell.end()
        print(f"error: {message}", file=sys.stderr)
        return 1
    finally:
        tell.end()
        spark.stop()


def explain(error: Exception) -> str | None:
    """Returns the message of a tidelog error, also one that Spark wraps with the traceback of a worker; None for other
    errors."""
    if isinstance(error, TidelogError):
        return error.message
    messages = re.findall(r"^tidelog\.[\w.]*errors\.\w+: (.+)$", str(error), re.MULTILINE)
    return messages[-1] if messages else None


def run(spark: SparkSession, options: argparse.Namespace, tell: Line) -> int:
    """Runs one command in an existing session; returns its exit status."""
    match options.command:
        case "archive":
            count = archive(
                spark,
                options.bootstrap,
                options.topics,
                options.target,
                records_per_batch=options.records_per_batch,
                tell=tell,
            )
            print(f"archived {count:,} records of {options.topics}")
        case "replay":
            count = replay(
                spark,
                options.source,
                options.bootstrap,
                options.topic,
                archived_topic=options.from_topic,
                write_id=options.write_id,
                by_key=options.by_key,
                tell=tell,
            )
            print(f"{options.topic} has the {count:,} records of {options.source}")
        case "audit":
            report = audit(spark, options.bootstrap, options.topics, tell=tell)
            for problem in report.problems:
                print(problem)
            print(f"read {report.records:,} records, {report.bytes:,} bytes, of {report.replicas} replicas: ", end="")
            print(f"{len(report.problems)} problems" if report.problems else "all whole and alike")
            return 1 if report.problems else 0
        case _:
            _show(stats(spark, options.bootstrap, options.topics, keys_max=options.keys, tell=tell))
    return 0


def _show(volumes: Stats) -> None:
    _table("partition", {f"{topic}-{number}": volume for (topic, number), volume in volumes.by_partition.items()})
    _table("hour (UTC)", {hour.strftime("%Y-%m-%d %H:%M"): volume for hour, volume in volumes.by_hour.items()})
    keys = {"(none)" if key is None else key.decode(errors="replace"): volume for key, volume in volumes.by_key.items()}
    _table("largest keys", keys)
    print(f"{'total':32}{volumes.total.records:>16,}{volumes.total.bytes:>20,}")


def _table(title: str, volumes: dict[str, Volume]) -> None:
    print(f"{title:32}{'records':>16}{'bytes':>20}")
    for name, volume in volumes.items():
        print(f"{name:32}{volume.records:>16,}{volume.bytes:>20,}")
    print()


if __name__ == "__main__":
    sys.exit(main())
