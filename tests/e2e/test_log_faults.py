"""A replicated log on three real brokers, whose processes are killed and paused under its writers and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e.clusters import running
from tests.e2e.loading import create, whole
from tests.integration.clients.log_story import Story, contend
from tidelog.admin import AdminClient
from tidelog.log import Reader, Writer
from tidelog.model.errors import TidelogError
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
KEEPS_ALL = {"retention.ms": "-1"}


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


async def leader_of(cluster: LocalCluster, topic: str) -> int:
    """Waits until all replicas are in sync, so that none of them is indispensable, and one leads."""
    await whole(cluster, topic)
    async with AdminClient(cluster.bootstrap) as admin:
        while (leader := (await admin.describe_topic(topic)).partitions[0].leader) < 0:
            await asyncio.sleep(0.05)
    return leader


async def test_brokers_are_killed_in_the_middle_of_appends(cluster: LocalCluster) -> None:
    """One writer, several entries at a time: none is lost, none is there twice, and nobody is fenced by it."""
    await create(cluster, "killed", KEEPS_ALL, cluster.node_ids)
    told: dict[bytes, int] = {}
    is_over = asyncio.Event()

    async def append(writer: Writer, lane: int) -> None:
        number = 0
        while not is_over.is_set():
            data = b"%d/%d" % (lane, number)
            told[data] = await writer.append(data)
            number += 1

    async with Writer(cluster.bootstrap, "killed", timeout_ms=60_000) as writer:
        lanes = [asyncio.create_task(append(writer, lane)) for lane in range(4)]
        for _ in range(4):
            node_id = await leader_of(cluster, "killed")
            before = len(told)
            cluster.kill(node_id)
            while len(told) < before + 100:
                await asyncio.sleep(0.05)
                assert not any(lane.done() for lane in lanes), "an append failed"
            await asyncio.to_thread(cluster.restart, node_id)
        is_over.set()
        await asyncio.gather(*lanes)
        ending = writer.ending
    async with Reader(cluster.bootstrap, "killed") as reader:
        found = {entry.data: entry.position async for entry in reader.read(0, ending)}
        assert await reader.catchup() == ending
    assert found == told


async def test_writers_contend_while_brokers_are_killed_and_paused(cluster: LocalCluster) -> None:
    await create(cluster, "contended", KEEPS_ALL, cluster.node_ids)
    story = Story()
    is_over = asyncio.Event()

    async def write(number: int) -> None:
        life = 0
        while not is_over.is_set():
            name = b"%d.%d" % (number, life)
            try:
                await contend(cluster.bootstrap, "contended", name, 5, story, timeout_ms=4_000)
            except TidelogError:  # not even started, in the midst of a fault
                await asyncio.sleep(0.1)
            life += 1

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    for is_killed in (True, False, True, False):
        node_id = await leader_of(cluster, "contended")
        before = len(story.acknowledged)
        (cluster.kill if is_killed else cluster.pause)(node_id)
        while len(story.acknowledged) < before + 100:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(cluster.restart if is_killed else cluster.resume, node_id)
    is_over.set()
    await asyncio.gather(*writers)
    await story.check(cluster.bootstrap, "contended")
    assert story.refused


async def test_catching_up_finds_what_a_leader_acknowledged_before_it_died(cluster: LocalCluster) -> None:
    await create(cluster, "caught-up", KEEPS_ALL, cluster.node_ids)
    async with Writer(cluster.bootstrap, "caught-up") as writer, Reader(cluster.bootstrap, "caught-up") as reader:
        for _ in range(4):
            node_id = await leader_of(cluster, "caught-up")
            position = await writer.append(b"acknowledged")
            cluster.kill(node_id)
            assert await reader.catchup() > position
            assert [entry.position async for entry in reader.read(position, position + 1)] == [position]
            await asyncio.to_thread(cluster.restart, node_id)
