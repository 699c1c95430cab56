"""Three whole brokers, and one whose disk takes nothing more for one partition: the others go on without it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from tests.unit.broker.conftest import batch
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.broker import Broker, NewTopic
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.sim.disk import SimDisk
from tidelog.sim.environment import SimRunner
from tidelog.sim.network import SimNetwork

NODES = (1, 2, 3)
START_S = 20.0


def broker(network: SimNetwork, node_id: int) -> Broker:
    settings = {
        "node.id": node_id,
        "cluster.voters": ",".join(f"{one}@10.0.0.{one}:9192" for one in NODES),
        "peer.listener": f"10.0.0.{node_id}:9192",
        "broker.heartbeat.interval.ms": 100,
        "broker.session.timeout.ms": 1_000,
    }
    runner = SimRunner(random.Random(node_id), mean_s=0.0002)
    return Broker(
        BrokerConfig.model_validate(settings),
        SimDisk(node_id),
        SystemClock(),
        SystemEntropy(),
        runner,
        network.host(f"10.0.0.{node_id}"),
    )


@pytest.fixture
async def three() -> AsyncIterator[dict[int, Broker]]:
    """Topic `t`, one partition on all of them, led by broker 1. Members may lag for 30 s before they are put out."""
    network = SimNetwork(random.Random(0))
    brokers = {node_id: broker(network, node_id) for node_id in NODES}
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(one.start((f"10.0.0.{node}", 8082)) for node, one in brokers.items()))
        for one in brokers.values():
            stack.push_async_callback(one.stop)
        await brokers[1].admin.create_topic(NewTopic("t", assignments={0: NODES}))
        yield brokers


def info(brokers: dict[int, Broker]) -> PartitionInfo:
    return brokers[2].image.topics["t"].partitions[0]


def fail(one: Broker) -> None:
    """As a failed fsync does."""
    copy = one.data.replicas.holder(PartitionId(one.topic("t").topic_id, 0))
    assert copy is not None
    copy.log.take_offline("fsync failed: by a test")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(START_S):
        while not is_so():
            await asyncio.sleep(0.02)


async def produce(one: Broker) -> int:
    """The offset. A leader that is just being replaced says so."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + START_S
    while True:
        try:
            receipt = await one.partition("t", 0).produce(batch(b"v"), acks=-1, deadline_s=loop.time() + 5)
        except TidelogError:
            assert loop.time() < give_up_s
            await asyncio.sleep(0.05)
        else:
            (placement,) = receipt.batches
            assert placement[0] is not None
            return placement[0]


async def test_a_leader_whose_log_has_failed_gives_way_at_once(three: dict[int, Broker]) -> None:
    assert await produce(three[3]) == 0
    fail(three[1])
    await until(lambda: info(three).leader == 2)
    assert info(three).isr == (2, 3)
    assert three[2].image.is_live(three[1].node_id)
    assert await produce(three[1]) >= 1
    assert info(three).isr == (2, 3), "it is not taken back for what it once had"


async def test_a_follower_whose_log_has_failed_holds_nobody_up(three: dict[int, Broker]) -> None:
    """Long before it would be put out because it lags."""
    assert await produce(three[1]) == 0
    fail(three[3])
    async with asyncio.timeout(10):
        await until(lambda: info(three).isr == (1, 2))
        for offset in range(1, 10):
            assert await produce(three[2]) >= offset
    assert info(three).isr == (1, 2)
    assert info(three).leader == 1
