"""The flights example on three brokers, while its job is killed three times, and a leader with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.asking import Asked, until
from tests.spark.conftest import ROOT
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(600)]

ROWS = 20_000
BATCH_RECORDS = 3_000
KILLS = 3
BATCH_S_MAX = 120
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@pytest.fixture
def three() -> Iterator[LocalCluster]:
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        yield cluster


class Job:
    """The example's job, in a session of its own, so that all its processes can be killed at once."""

    def __init__(self, cluster: LocalCluster, topic: str, target: Path) -> None:
        self._parquet = target / "parquet"
        self._output = target.parent / "output"
        command = [sys.executable, "examples/spark_flights.py", "--job", "--bootstrap", cluster.bootstrap]
        command += ["--topic", topic, "--target", str(target), "--batch-records", str(BATCH_RECORDS)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}", "JDK_JAVA_OPTIONS": QUICK_START}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )
        self._batches_before = self.batches

    @property
    def batches(self) -> int:
        """How many were begun, by this job and those before it."""
        return len(list(self._parquet.glob("batch=*")))

    def wait_for_batches(self, count: int) -> None:
        """Until it has begun so many, and is not done yet."""
        until(lambda: self._process.poll() is not None or self.batches >= self._batches_before + count, BATCH_S_MAX)
        assert self._process.poll() is None, self._output.read_text()

    def wait(self) -> None:
        """Until it has done all there is."""
        assert self._process.wait(2 * BATCH_S_MAX) == 0, self._output.read_text()

    def kill(self) -> None:
        """SIGKILL, to all of it; nothing if it has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def test_a_job_that_is_killed_three_times_comes_to_the_same_result(
    spark: SparkSession, three: LocalCluster, tmp_path: Path
) -> None:
    import spark_flights
    from flights import read_flights, write
    from rich.progress import Progress

    topic, target = "flights", tmp_path / "target"
    rows = read_flights(ROWS)
    asyncio.run(spark_flights.create_topics(three.bootstrap, topic))
    with Progress(disable=True) as progress:
        asyncio.run(write(three.bootstrap, topic, rows, progress))
    for kill in range(KILLS):
        job = Job(three, topic, target)
        try:
            job.wait_for_batches(1)
            if kill == 1:
                leader = Asked(three, 1).leaders(topic)[0]
                three.kill(leader)
                job.wait_for_batches(2)
        finally:
            job.kill()
    three.restart(leader)
    last = Job(three, topic, target)
    try:
        last.wait()
    finally:
        last.kill()
    expected = spark_flights.from_csv(spark, rows)
    assert sum(result[2] for result in expected) > 0.9 * ROWS
    assert spark_flights.from_parquet(spark, target) == expected
    assert spark_flights.from_topic(spark, three.bootstrap, topic) == expected
