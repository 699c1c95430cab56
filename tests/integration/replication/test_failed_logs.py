"""Three whole brokers, and one whose disk takes nothing more for one partition: the others go on without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.integration.replication.three_brokers import NODES, START_S, ThreeBrokers, three_brokers, until
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.replicas import replicas
from tidelog.model.errors import LogOffline
from tidelog.model.ids import PartitionId
from tidelog.sim.kit.medium import CAPACITY_BYTES


@pytest.fixture
async def three() -> AsyncIterator[ThreeBrokers]:
    """Topic `t`, one partition on all of them, led by broker 1. Members may lag for 30 s before they are put out."""
    async with three_brokers() as cluster:
        await cluster.brokers[1].admin.create_topic(NewTopic("t", assignments={0: NODES}))
        yield cluster


def fail(one: Broker) -> None:
    """As a failed fsync does."""
    copy = one.data.replicas.holders.get(PartitionId(one.topic("t").topic_id, 0))
    assert copy is not None
    copy.log.take_offline("fsync failed: by a test")


async def test_a_leader_whose_log_has_failed_gives_way_at_once(three: ThreeBrokers) -> None:
    assert await three.offset(3) == 0
    fail(three.brokers[1])
    await until(lambda: three.info().leader == 2)
    assert three.info().isr == (2, 3)
    assert three.brokers[2].image.is_live(three.brokers[1].node_id)
    assert await three.offset(1) >= 1
    assert three.info().isr == (2, 3), "it is not taken back for what it once had"


async def test_a_follower_whose_log_has_failed_holds_nobody_up(three: ThreeBrokers) -> None:
    """Long before it would be put out because it lags."""
    assert await three.offset(1) == 0
    fail(three.brokers[3])
    async with asyncio.timeout(10):
        await until(lambda: three.info().isr == (1, 2))
        for offset in range(1, 10):
            assert await three.offset(2) >= offset
    assert three.info().isr == (1, 2)
    assert three.info().leader == 1


async def test_a_copy_that_has_failed_says_so_where_it_ends(three: ThreeBrokers) -> None:
    assert await three.offset(1) == 0
    await three.until_shown(3, [b"v"])
    fail(three.brokers[3])
    await three.offset(1)
    copy = three.brokers[3].data.local_copy(PartitionId(three.brokers[3].topic("t").topic_id, 0))
    assert copy is not None
    assert (await copy.read(0, bytes_max=1)).next_offset == 1
    with pytest.raises(LogOffline, match="check the disk"):
        await copy.read(1, bytes_max=1)


async def test_a_log_that_a_full_disk_kept_shut_is_opened_however_often_the_metadata_change(
    three: ThreeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "REOPEN_S", 0.3)
    last, medium = three.brokers[3], three.disks[3].medium
    medium.capacity_bytes = medium.used_bytes
    await three.brokers[1].admin.create_topic(NewTopic("u", assignments={0: NODES}))
    partition_id = PartitionId(three.brokers[1].topic("u").topic_id, 0)
    await until(lambda: partition_id.topic_id in [one.topic_id for one in last.data.replicas.unfit()])
    medium.capacity_bytes = CAPACITY_BYTES
    async with asyncio.timeout(START_S):
        while partition_id not in last.data.replicas.holders:
            last.data.follow(last.image)
            await asyncio.sleep(0.01)
