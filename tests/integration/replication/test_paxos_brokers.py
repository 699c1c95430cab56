"""Three whole brokers with a topic that commits by majority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.integration.replication.three_brokers import NODES, ThreeBrokers, three_brokers, until
from tidelog.broker.broker import NewTopic
from tidelog.controller.partition_commands import NewReplicas
from tidelog.model.cluster import COMMIT_ORDER, COMMIT_PROTOCOL, KEY, PAXOS, TOTAL
from tidelog.model.ids import NodeId


@pytest.fixture(params=[TOTAL, KEY])
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of the test's topics."""
    return {COMMIT_PROTOCOL: PAXOS, COMMIT_ORDER: request.param}


@pytest.fixture
async def three(configs: dict[str, str]) -> AsyncIterator[ThreeBrokers]:
    """Topic `t`, one partition on all of them, led by broker 1."""
    async with three_brokers() as cluster:
        await cluster.brokers[1].admin.create_topic(NewTopic("t", assignments={0: NODES}, configs=configs))
        yield cluster


async def shown_by_all(cluster: ThreeBrokers, *nodes: int, values: list[bytes]) -> None:
    async with asyncio.timeout(20):
        for node in nodes:
            while await cluster.values(node) != values:
                await asyncio.sleep(0.02)


async def test_what_is_acknowledged_is_on_a_majority_and_soon_on_all(three: ThreeBrokers) -> None:
    receipt = await three.produce(2, b"a")
    assert len(receipt.acked_by) >= 2
    assert receipt.durability == "fsynced"
    await three.produce(3, b"b")
    await shown_by_all(three, *NODES, values=[b"a", b"b"])


async def test_when_the_leader_stops_the_next_goes_on(three: ThreeBrokers) -> None:
    await three.produce(1, b"a")
    await three.stop(1)
    await three.produce(2, b"b")
    assert three.info().leader in (2, 3)
    await three.start(1)
    await three.produce(1, b"c")
    await shown_by_all(three, *NODES, values=[b"a", b"b", b"c"])


@pytest.mark.slow
async def test_all_come_back_with_all(three: ThreeBrokers) -> None:
    for value in (b"a", b"b", b"c"):
        await three.produce(1, value)
    await three.stop(*NODES)
    await three.start(*NODES)
    await three.produce(2, b"d")
    await shown_by_all(three, *NODES, values=[b"a", b"b", b"c", b"d"])


async def test_a_disk_that_was_replaced_votes_under_another_id(three: ThreeBrokers) -> None:
    await three.produce(1, b"a")
    before = three.info().members
    await three.stop(3)
    three.replace_disk(3)
    await three.produce(1, b"b")
    await three.start(3)
    await until(lambda: three.info().members == three.info().wanted and three.info().members != before)
    assert [member.node_id for member in three.info().members] == [1, 2, 3]
    assert max(member.engine_id for member in three.info().members) == 4
    await three.stop(2)
    await three.produce(1, b"c")
    await shown_by_all(three, 1, 3, values=[b"a", b"b", b"c"])


def has_moved(cluster: ThreeBrokers, target: list[int]) -> bool:
    return not cluster.info("m").is_moving and [*cluster.info("m").replicas] == target


@pytest.mark.slow
async def test_a_partition_moves_to_other_brokers(three: ThreeBrokers, configs: dict[str, str]) -> None:
    await three.brokers[1].admin.create_topic(NewTopic("m", assignments={0: [1]}, configs=configs))
    topic_id = three.brokers[1].topic("m").topic_id
    for target in ([1, 2, 3], [2, 3], [3]):
        nodes = [NodeId(node) for node in target]
        await three.brokers[2].admin.alter_reassignments([NewReplicas(topic_id, 0, nodes)])
        await until(partial(has_moved, three, target))
        assert [member.node_id for member in three.info("m").members] == target
    assert three.info("m").leader == 3
