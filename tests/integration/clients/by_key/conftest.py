"""Consumers whose `run` processes several records of a partition at a time, on a real broker in this process.

A handler's records wait at gates that the test opens, so what overtakes what is decided here, and not by time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.http.conftest import Site
from tidelog.consumer import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from tidelog.consumer.intervals import ProcessedOffsets, decode_processed
from tidelog.producer import Producer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

SETTINGS = {"group.min.session.timeout.ms": 100}
WAIT_S = 20.0
T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


@asynccontextmanager
async def broker(partitions: int, **settings: object) -> AsyncIterator[Site]:
    """Starts one broker with topic `t` of so many partitions."""
    site = Site(SimDisk(), SimRunner(random.Random(0), mean_s=0.0002), lingering_s=0.05)
    await site.start(SETTINGS | settings)
    await site.topic(partitions=partitions)
    yield site
    await site.stop()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A broker with one partition, `T0`."""
    async with broker(1) as site:
        yield site


@pytest.fixture
async def four() -> AsyncIterator[Site]:
    async with broker(4) as site:
        yield site


def url(site: Site) -> str:
    return f"http://127.0.0.1:{site.address[1]}"


def consumer(site: Site, *topics: str, **options: Any) -> Consumer:
    given: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 50,
        "session_timeout_ms": 5_000,
        "order": "key",
    }
    return Consumer(*topics, bootstrap_servers=url(site), **given | options)


async def produce(site: Site, values: Iterable[int], keys: int = 10, partitions: int = 1) -> None:
    """Produces the numbers to all partitions in turn; the key is the number modulo `keys`, or None if `keys` is 0."""
    async with Producer(url(site)) as producer:
        for value in values:
            key = b"%d" % (value % keys) if keys else None
            await producer.send("t", b"%d" % value, key=key, partition=value % partitions)


class Handler:
    """Counts the records that it is given; those behind a gate stay until the gate is opened."""

    def __init__(self, *held: int) -> None:
        self.gates = {value: asyncio.Event() for value in held}
        self.started: list[int] = []
        self.finished: list[int] = []
        self._changed = asyncio.Event()

    async def __call__(self, record: ConsumerRecord) -> None:
        assert record.value is not None
        value = int(record.value)
        self.started.append(value)
        self._changed.set()
        if value in self.gates:
            await self.gates[value].wait()
        self.finished.append(value)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_finished(self, count: int) -> None:
        await self.until(lambda: len(self.finished) >= count)

    def open(self, *values: int) -> None:
        for value in values:
            self.gates[value].set()


@asynccontextmanager
async def running(consumer: Consumer, handler: Handler, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Runs a consumer, and stops it."""
    async with consumer:
        task = asyncio.create_task(consumer.run(handler, **options))
        try:
            yield task
            await consumer.stop()
            async with asyncio.timeout(WAIT_S):
                await task
        finally:
            task.cancel()


async def committed(site: Site, partition: TopicPartition = T0) -> ProcessedOffsets:
    async with Consumer(bootstrap_servers=url(site), group_id="g") as reader:
        found = await reader.committed(partition, metadata=True)
    assert isinstance(found, OffsetAndMetadata)
    return decode_processed(*found)


async def until(condition: Callable[[], bool]) -> None:
    """For what tells nobody when it comes true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)
