"""A broker with the topics that the programs of `docs/programs.md` take, and those programs as processes.

They are marked `programs`: `make programs` runs them in an environment that has their libraries, `make test` does not.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.e2e.asking import WAIT_S, until
from tests.integration.cli.conftest import environment
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, ConsumerRecord, TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
STOP_S_MAX = 30


class Broker:
    """A broker with the topics `orders` and `orders-dead`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.url, self.kafka = cluster.bootstrap, cluster.kafka_bootstrap

    async def prepare(self) -> None:
        async with AdminClient(self.url) as admin:
            await admin.create_topic("orders", partitions=3)
            await admin.create_topic("orders-dead")

    def order(self, *orders: tuple[str, int]) -> None:
        """Writes orders, keyed by their items."""

        async def write() -> None:
            values = [json.dumps({"item": item, "count": count}).encode() for item, count in orders]
            async with Producer(self.url) as producer:
                await producer.send_batch("orders", values, keys=[item.encode() for item, _ in orders])

        asyncio.run(write())

    def records(self, topic: str, count: int) -> list[ConsumerRecord]:
        """The first records of partition 0."""

        async def read() -> list[ConsumerRecord]:
            consumer = Consumer(bootstrap_servers=self.url, auto_offset_reset="earliest")
            async with asyncio.timeout(WAIT_S), consumer:
                consumer.assign([TopicPartition(topic, 0)])
                return [await consumer.getone() for _ in range(count)]

        return asyncio.run(read())

    def lags(self, group: str) -> dict[int, int | None]:
        """How far a group without members is behind, in each partition of `orders` that has records."""

        async def ask() -> dict[int, int | None]:
            async with AdminClient(self.url) as admin:
                assert not (await admin.describe_group(group)).consumers
                found = await admin.group_lags(group)
                return {lag.partition_id: lag.lag for lag in found if lag.log_end_offset}

        return asyncio.run(ask())


class Program:
    """A program that runs until it is told to end. Its output is in one file."""

    def __init__(self, words: list[str | Path], output: Path, **variables: str) -> None:
        self._output = output
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment(PYTHONUNBUFFERED="", **variables),
                stdout=out,
                stderr=out,
            )

    def says(self, text: str) -> None:
        """Waits until it has said something."""
        until(lambda: self._process.poll() is not None or text in self.output)
        assert text in self.output, self.output

    @property
    def output(self) -> str:
        return self._output.read_text()

    def terminate(self) -> int:
        """Tells it to end, by SIGTERM; the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S_MAX)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def ran(words: list[str | Path], seconds_max: int = 120, cwd: Path = ROOT, **variables: str) -> str:
    """Runs a program to its end; what it printed."""
    done = subprocess.run(
        words, cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=seconds_max, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def broker() -> Iterator[Broker]:
    with LocalCluster(kafka=True) as cluster:
        broker = Broker(cluster)
        asyncio.run(broker.prepare())
        yield broker
