"""A data directory as version 0.2.0 left it when it was killed: a topic of each protocol with the values 0 to 39, a
group that has read ten of each, snapshots of the metadata. It opens, and goes on."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.model.levels import LEVEL_MAX
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process

TOPICS = ("i", "p")
READ_S_MAX = 30.0


def expected(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


async def read(bootstrap: str, topic: str, count: int, group: str | None = None) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        async with asyncio.timeout(READ_S_MAX):
            while len(found) < count:
                records = await consumer.getmany(timeout_ms=1_000)
                found += [record.value for some in records.values() for record in some]
    return found


async def produce(bootstrap: str, values: list[bytes]) -> None:
    async with Producer(bootstrap) as producer:
        for topic in TOPICS:
            for value in values:
                await producer.send(topic, value, partition=0)
        await producer.flush()


async def raise_level(bootstrap: str) -> tuple[int, int]:
    async with AdminClient(bootstrap) as admin:
        raised = await admin.raise_feature_level()
        return raised.before, raised.feature_level


def test_it_opens_and_goes_on_and_is_upgraded(tmp_path: Path) -> None:
    packed = Path(__file__).parent / "directory.tar.xz"
    (tmp_path / "broker-1").mkdir()
    subprocess.run(["tar", "-xJf", packed, "-C", tmp_path / "broker-1"], check=True)
    with LocalCluster(brokers=1, data_dir=tmp_path) as cluster:
        for topic in TOPICS:
            assert asyncio.run(read(cluster.bootstrap, topic, 40)) == expected(0, 40)
            assert asyncio.run(read(cluster.bootstrap, topic, 30, "g")) == expected(10, 40)
        asyncio.run(produce(cluster.bootstrap, expected(40, 50)))
        cluster.restart()
        assert asyncio.run(raise_level(cluster.bootstrap)) == (1, LEVEL_MAX)
        asyncio.run(produce(cluster.bootstrap, expected(50, 60)))
        cluster.kill()
        cluster.restart()
        for topic in TOPICS:
            assert asyncio.run(read(cluster.bootstrap, topic, 60)) == expected(0, 60)
