"""Whole-topic pipelines: what goes out comes back, begun again as often as it takes."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import Topic, uncommit
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import InvalidRequest
from tidelog.spark.cluster import BATCHES_HEADERS, Cluster
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(180)]

HOUR_MS = 3_600_000
BEGIN_MS = 472_222 * HOUR_MS


@pytest.fixture(scope="module")
def filled(spark: SparkSession, broker: LocalCluster) -> Topic:
    """100 records in each of two partitions, of five keys, two hours, some without value or with headers."""
    topic = Topic(spark, broker, partitions=2, configs={"retention.ms": "-1"})
    client = Cluster([broker.bootstrap], timeout_s=10.0)
    for partition in (0, 1):
        records = [
            (
                BEGIN_MS + number * HOUR_MS // 50,
                b"k%d" % (number % 5),
                None if number == 7 else b"%d" % number,
                [("h", b"%d" % number)] if number % 10 == 0 else [],
            )
            for number in range(100)
        ]
        target = f"/topics/{topic.name}/partitions/{partition}/batches"
        for first in range(0, 100, 20):
            data = encode_batch(records[first : first + 20])
            client.send("POST", broker.broker().url, target, body=data, headers=BATCHES_HEADERS)
    client.close()
    return topic


def rows(topic: Topic) -> list[tuple[Any, ...]]:
    """All that a record is but for its topic."""
    found = topic.batch(includeHeaders="true").drop("topic").collect()
    return sorted((tuple(row.asDict(recursive=True).values()) for row in found), key=lambda row: (row[2], row[3]))


def test_an_archive_is_resumed_and_replayed_to_the_same_records(
    spark: SparkSession, broker: LocalCluster, filled: Topic, tmp_path: Path
) -> None:
    from tidelog.spark.jobs import archive, replay

    told: list[str] = []
    target = str(tmp_path / "archive")
    assert archive(spark, broker.bootstrap, filled.name, target, records_per_batch=120, tell=told.append) == 200
    assert told[-1] == f"archiving {filled.name}: 200 records in 2 batches"
    uncommit(tmp_path / "archive" / "_checkpoint", 1)  # died before the end of its last batch was noted
    archive(spark, broker.bootstrap, filled.name, target)
    archived = spark.read.parquet(f"{target}/records")
    assert (archived.count(), archived.select("partition", "offset").distinct().count()) == (200, 200)
    again = Topic(spark, broker, partitions=2, configs={"retention.ms": "-1"})
    for _ in range(2):
        assert replay(spark, target, broker.bootstrap, again.name, archived_topic=filled.name) == 200
    assert rows(again) == rows(filled)
    small = Topic(spark, broker, configs={"retention.ms": "-1"})
    with pytest.raises(Exception, match="the archive has a partition 1"):
        replay(spark, target, broker.bootstrap, small.name, archived_topic=filled.name)
    assert replay(spark, target, broker.bootstrap, small.name, archived_topic=filled.name, by_key=True) == 200
    assert small.batch().count() == 200


def test_the_volume_of_a_topic(spark: SparkSession, broker: LocalCluster, filled: Topic) -> None:
    from tidelog.spark.jobs import stats
    from tidelog.spark.jobs.stats import Volume

    found = stats(spark, broker.bootstrap, filled.name, keys_max=2)
    size = sum(2 + len(b"%d" % number) for number in range(100)) - 1  # one value is null
    assert found.total == Volume(200, 2 * size)
    assert found.by_partition == {(filled.name, 0): Volume(100, size), (filled.name, 1): Volume(100, size)}
    hours = [datetime.fromtimestamp((BEGIN_MS + hour * HOUR_MS) / 1000, UTC) for hour in (0, 1)]
    assert {hour: volume.records for hour, volume in found.by_hour.items()} == dict.fromkeys(hours, 100)
    by_key = {b"k%d" % key: [number for number in range(100) if number % 5 == key] for key in range(5)}
    volumes = {key: 2 * sum(2 + (number != 7) * len(b"%d" % number) for number in mine) for key, mine in by_key.items()}
    largest = sorted(volumes, key=lambda key: (-volumes[key], key))[:2]
    assert list(found.by_key.items()) == [(key, Volume(40, volumes[key])) for key in largest]


def test_an_audit_as_a_spark_job(spark: SparkSession, broker: LocalCluster, filled: Topic) -> None:
    from tidelog.spark.jobs import audit

    report = audit(spark, broker.bootstrap, [filled.name])
    assert (report.replicas, report.records, report.problems) == (2, 200, ())


def test_the_commands(
    spark: SparkSession, broker: LocalCluster, filled: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidelog.spark.jobs.__main__ import explain, parser, run
    from tidelog.spark.jobs.progress import Line

    def told(*words: str) -> tuple[int, str]:
        command, *arguments = words
        status = run(spark, parser().parse_args([command, "--bootstrap", broker.bootstrap, *arguments]), Line())
        return status, capsys.readouterr().out

    again = Topic(spark, broker, partitions=2, configs={"retention.ms": "-1"})
    target = str(tmp_path / "archive")
    assert told("archive", filled.name, target) == (0, f"archived 200 records of {filled.name}\n")
    replayed = told("replay", target, again.name, "--from-topic", filled.name)
    assert replayed == (0, f"{again.name} has the 200 records of {target}\n")
    status, text = told("audit", filled.name, again.name)
    assert status == 0
    assert text.startswith("read 400 records,")
    assert text.endswith("of 4 replicas: all whole and alike\n")
    status, text = told("stats", again.name, "--keys", "1")
    assert status == 0
    assert [line.split()[0] for line in text.splitlines() if line.startswith((again.name, "k", "total"))] == [
        f"{again.name}-0",
        f"{again.name}-1",
        "k0",
        "total",
    ]
    with pytest.raises(Exception, match="STREAM_FAILED") as raised:
        told("archive", "nowhere", f"{target}-2")
    assert explain(raised.value) == "topic 'nowhere' does not exist; create it first"
    assert explain(InvalidRequest("no")) == "no"
    assert explain(ValueError("no")) is None


@pytest.mark.usefixtures("spark")
def test_the_commands_explain_themselves() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tidelog.spark.jobs", "--help"], capture_output=True, text=True, check=True
    )
    assert all(command in ended.stdout for command in ("archive", "replay", "audit", "stats", "examples:"))
