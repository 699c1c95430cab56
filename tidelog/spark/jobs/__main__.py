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
    found = argparse.ArgumentParser(
        prog="tidelog.spark.jobs",
        description="Whole-topic pipelines on Spark.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("archive", help="topics to Parquet, each record once; goes on where it ended")
    one.add_argument("topics", help="a comma list")
    one.add_argument("target", help="a directory that Spark can write")
    one.add_argument("--records-per-batch", type=int, default=RECORDS_PER_BATCH)
    one = commands.add_parser("replay", help="an archive back into a topic, each record once")
    one.add_argument("source", help="what archive wrote")
    one.add_argument("topic", help="where to; it must exist")
    one.add_argument("--from-topic", help="the archived topic, if it is another one")
    one.add_argument("--by-key", action="store_true", help="let keys choose partitions")
    one.add_argument("--write-id", help="the name under which a repeat is recognised")
    one = commands.add_parser("audit", help="read every replica, compare; exit status 1 if anything is wrong")
    one.add_argument("topics", nargs="+")
    one = commands.add_parser("stats", help="volume by partition, hour and key")
    one.add_argument("topics", help="a comma list")
    one.add_argument("--keys", type=int, default=KEYS_MAX, help="how many of the largest keys")
    for command in commands.choices.values():
        command.add_argument("--bootstrap", required=True, help="a comma list of brokers")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    asked = parser().parse_args(arguments)
    builder = SparkSession.builder.appName(f"tidelog {asked.command}").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    tell = Line()
    try:
        return run(spark, asked, tell)
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
    found = re.findall(r"^tidelog\.[\w.]*errors\.\w+: (.+)$", str(error), re.MULTILINE)
    return found[-1] if found else None


def run(spark: SparkSession, asked: argparse.Namespace, tell: Line) -> int:
    """Runs one command in an existing session; returns its exit status."""
    match asked.command:
        case "archive":
            count = archive(
                spark, asked.bootstrap, asked.topics, asked.target, records_per_batch=asked.records_per_batch, tell=tell
            )
            print(f"archived {count:,} records of {asked.topics}")
        case "replay":
            count = replay(
                spark,
                asked.source,
                asked.bootstrap,
                asked.topic,
                archived_topic=asked.from_topic,
                write_id=asked.write_id,
                by_key=asked.by_key,
                tell=tell,
            )
            print(f"{asked.topic} has the {count:,} records of {asked.source}")
        case "audit":
            report = audit(spark, asked.bootstrap, asked.topics, tell=tell)
            for problem in report.problems:
                print(problem)
            print(f"read {report.records:,} records, {report.bytes:,} bytes, of {report.replicas} replicas: ", end="")
            print(f"{len(report.problems)} problems" if report.problems else "all whole and alike")
            return 1 if report.problems else 0
        case _:
            _show(stats(spark, asked.bootstrap, asked.topics, keys_max=asked.keys, tell=tell))
    return 0


def _show(found: Stats) -> None:
    _table("partition", {f"{topic}-{number}": volume for (topic, number), volume in found.by_partition.items()})
    _table("hour (UTC)", {hour.strftime("%Y-%m-%d %H:%M"): volume for hour, volume in found.by_hour.items()})
    keys = {"(none)" if key is None else key.decode(errors="replace"): volume for key, volume in found.by_key.items()}
    _table("largest keys", keys)
    print(f"{'total':32}{found.total.records:>16,}{found.total.bytes:>20,}")


def _table(title: str, volumes: dict[str, Volume]) -> None:
    print(f"{title:32}{'records':>16}{'bytes':>20}")
    for name, volume in volumes.items():
        print(f"{name:32}{volume.records:>16,}{volume.bytes:>20,}")
    print()


if __name__ == "__main__":
    sys.exit(main())
