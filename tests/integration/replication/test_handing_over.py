"""A broker that stops hands over what it leads, under load from all sides: nobody is told of it, nothing is unknown."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.integration.replication.three_brokers import ThreeBrokers, three_brokers, until
from tests.unit.broker.conftest import batch
from tidelog.broker.broker import NewTopic
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId
from tidelog.sim.kit.environment import SimClock
from tidelog.sim.kit.loop import SimLoop, run

EVERY_S = 0.02


class Writers:
    """Three write through each broker: each sends one plain batch after the other through it, and tries none again."""

    def __init__(self, cluster: ThreeBrokers) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[str] = []
        self._cluster = cluster
        self._tasks = {
            (node, number): asyncio.ensure_future(self._write(node, number))
            for node in cluster.brokers
            for number in range(3)
        }

    async def _write(self, node: int, number: int) -> None:
        loop, broker, sent = asyncio.get_running_loop(), self._cluster.brokers[node], 0
        assert isinstance(loop, SimLoop)
        clock = SimClock(loop)
        while True:
            value = b"%d-%d-%d" % (node, number, sent)
            sent += 1
            try:
                await broker.partition("t", 0).produce(
                    [*batch(value, timestamp_ms=clock.wall_ms())], acks=-1, deadline_s=loop.time() + 5
                )
                self.acknowledged.append(value)
            except TidelogError as error:
                self.errors.append(f"{value!r}: {error!r}")
            await asyncio.sleep(EVERY_S)

    async def end(self, *nodes: int) -> None:
        """Ends those of these brokers."""
        ending = [task for (node, _), task in self._tasks.items() if node in nodes]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


def is_known(cluster: ThreeBrokers) -> bool:
    return all("t" in one.image.topics for one in cluster.brokers.values())


@pytest.mark.parametrize("protocol", ["isr", "paxos"])
def test_whoever_writes_goes_on_at_the_next_leader(protocol: str) -> None:
    async def story() -> None:
        async with three_brokers() as cluster:
            topic = NewTopic("t", assignments={0: (1, 2, 3)}, configs={"commit.protocol": protocol})
            await cluster.brokers[2].admin.create_topic(topic)
            await until(lambda: is_known(cluster))
            await cluster.produce(1, b"first")
            writers = Writers(cluster)
            await asyncio.sleep(0.5)
            began = len(writers.acknowledged)
            await cluster.brokers[1].hand_over()
            info = cluster.info()
            assert (info.leader, info.isr) == (2, (1, 2, 3)), "it is in sync to its end"
            assert cluster.brokers[1].is_ready and cluster.brokers[1].is_leaving
            assert not cluster.brokers[1].is_controller
            await asyncio.sleep(0.2)
            await writers.end(1)
            await cluster.stop(1)
            await asyncio.sleep(0.5)
            await writers.end(2, 3)
            assert 0 < began < len(writers.acknowledged)
            assert writers.errors == []
            await cluster.settle()
            found = Counter(await cluster.values(2))
            assert {value for value in writers.acknowledged if found[value] != 1} == set()

    run(story)


@pytest.mark.parametrize("protocol", ["isr", "paxos"])
def test_the_last_of_the_brokers_has_nobody_to_wait_for(protocol: str) -> None:
    async def story() -> None:
        async with three_brokers() as cluster:
            topic = NewTopic("t", assignments={0: (1, 2, 3)}, configs={"commit.protocol": protocol})
            await cluster.brokers[1].admin.create_topic(topic)
            await asyncio.gather(*(one.hand_over() for one in cluster.brokers.values()))
            began_s = asyncio.get_running_loop().time()
            await cluster.stop(3, 2)
            await until(lambda: not cluster.brokers[1].others)
            assert asyncio.get_running_loop().time() - began_s < 5.0

    run(story)


def test_nothing_is_given_to_a_broker_that_stops_too() -> None:
    async def story() -> None:
        async with three_brokers() as cluster:
            await cluster.brokers[1].admin.create_topic(NewTopic("t", assignments={0: (1, 2, 3)}))
            await until(lambda: is_known(cluster))
            await cluster.brokers[2].hand_over()
            await cluster.brokers[1].hand_over()
            assert cluster.info().leader == NodeId(3)

    run(story)
