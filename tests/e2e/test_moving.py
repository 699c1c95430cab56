"""Replicas move between real brokers under load, and brokers are killed meanwhile: nothing acknowledged is lost, all
copies are the same bytes, and a copy is deleted only when the move that takes it away is decided.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, ask, until
from tests.e2e.clusters import ISR, running
from tidelog.admin import AdminClient, NewAssignment, TopicDescription
from tidelog.model.errors import TidelogError
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
TRICKLE = 20_000
"""Bytes per second that no move gets done with before a test is."""
FULL_SPEED = 0
MOVED_S_MAX = 90.0
PAYLOAD = "x" * 200


@pytest.fixture
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Brokers come and go, so each test has its own."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


# -- the load ----------------------------------------------------------------------------------------------------------


class Load:
    """Writes numbers to all partitions in turn, and keeps what was acknowledged, by partition and offset."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: list[dict[int, str]] = [{} for _ in range(partitions)]
        self._bootstrap, self._topic = bootstrap, topic
        self._is_over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """All that was sent is acknowledged at the end, or this raises."""
        writing = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            self._is_over = True
            await writing

    async def _run(self) -> None:
        async with Producer(self._bootstrap, delivery_timeout_ms=60_000) as producer, asyncio.TaskGroup() as tasks:
            for number in count():
                if self._is_over:
                    return
                partition = number % len(self.acknowledged)
                value = f"{number} {PAYLOAD}"
                delivery = await producer.send(self._topic, f'"{value}"'.encode(), partition=partition)
                tasks.create_task(self._settle(partition, value, delivery))
                await asyncio.sleep(0.002)

    async def _settle(self, partition: int, value: str, delivery: Delivery) -> None:
        place = await delivery
        assert place.offset is not None and place.offset not in self.acknowledged[partition]
        self.acknowledged[partition][place.offset] = value

    async def grow(self, records: int) -> None:
        """Returns when so many more are acknowledged."""
        wanted = records + sum(map(len, self.acknowledged))
        async with asyncio.timeout(MOVED_S_MAX):
            while sum(map(len, self.acknowledged)) < wanted:
                await asyncio.sleep(0.05)

    def check(self, cluster: LocalCluster) -> None:
        """What is read is what was acknowledged, each once, at the offset that was told."""
        asked = Asked(cluster, cluster.node_ids[0])
        for partition, acknowledged in enumerate(self.acknowledged):
            assert dict(asked.records(self._topic, partition)) == acknowledged


# -- what is looked at -------------------------------------------------------------------------------------------------


def directory_of(cluster: LocalCluster, node_id: int, topic_id: str) -> Path:
    """Returns where a broker keeps its copies of a topic's partitions."""
    return cluster.broker(node_id).data_dir / "topics" / topic_id


def logs_of(cluster: LocalCluster, node_id: int, topic_id: str) -> dict[int, bytes]:
    """The bytes of each partition's copy on a broker's disk."""
    root = directory_of(cluster, node_id, topic_id)
    directories = [path for path in root.iterdir() if path.name.isdecimal()] if root.exists() else []
    return {
        int(path.name): b"".join(segment.read_bytes() for segment in sorted(path.glob("*.log"))) for path in directories
    }


def is_still(cluster: LocalCluster) -> bool:
    """True if no broker of the cluster knows of a move."""
    answers = [ask(f"{Asked(cluster, node_id).v3}/topics/-/partitions/-/reassignment") for node_id in cluster.node_ids]
    return all(answer.status == 200 and not answer.body["data"] for answer in answers)


async def settled(cluster: LocalCluster, admin: AdminClient, topic: str) -> TopicDescription:
    """Returns the topic, once no broker knows of a move and all its replicas are in sync.

    Each broker answers from its own image of the cluster, and the topic may be asked of another one than the moves: so
    all are asked for moves, and before the topic is.
    """
    async with asyncio.timeout(MOVED_S_MAX):
        while True:
            with suppress(TidelogError):
                if await asyncio.to_thread(is_still, cluster):
                    described = await admin.describe_topic(topic)
                    if all(len(found.isr) == len(found.replicas) for found in described.partitions):
                        return described
            await asyncio.sleep(0.1)


async def check_copies(cluster: LocalCluster, admin: AdminClient, topic: str) -> None:
    """Every broker has copies of just what it is assigned, and all copies of a partition are the same bytes."""
    described = await settled(cluster, admin, topic)

    assigned: dict[int, set[int]] = {node_id: set() for node_id in cluster.node_ids}
    for found in described.partitions:
        for node_id in found.replicas:
            assigned[node_id].add(found.partition_id)

    def are_equal() -> bool:
        held = {node_id: logs_of(cluster, node_id, described.topic_id) for node_id in cluster.node_ids}
        if {node_id: set(logs) for node_id, logs in held.items()} != assigned:
            return False
        copies = ({held[node_id][found.partition_id] for node_id in found.replicas} for found in described.partitions)
        return all(len(different) == 1 for different in copies)

    await asyncio.to_thread(until, are_equal)


class Watch:
    """Looks all the time whether a copy is gone from a broker to which the partition is still assigned."""

    def __init__(self, cluster: LocalCluster, admin: AdminClient, topic: TopicDescription) -> None:
        self._cluster, self._admin, self._topic = cluster, admin, topic
        self.looks = 0
        self.wrong: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watch]:
        """Until the end of the block; nothing wrong must have been seen."""
        held = {(node, found.partition_id) for found in self._topic.partitions for node in found.replicas}
        task = asyncio.create_task(self._run(held))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert self.looks > 0 and not self.wrong

    async def _run(self, held: set[tuple[int, int]]) -> None:
        """The disk is looked at first: what is gone from it then was taken away before."""
        while True:
            gone = [
                (node, partition)
                for node, partition in held
                if node in self._cluster.node_ids
                and not (
                    self._cluster.broker(node).data_dir / "topics" / self._topic.topic_id / str(partition)
                ).exists()
            ]
            with suppress(TidelogError):
                now = await self._admin.describe_topic(self._topic.topic_name)
                replicas = {found.partition_id: found.replicas for found in now.partitions}
                self.wrong += [f"{node} lost {partition}" for node, partition in gone if node in replicas[partition]]
                self.looks += 1
            held -= set(gone)
            await asyncio.sleep(0.02)


async def until_moving(admin: AdminClient) -> None:
    async with asyncio.timeout(MOVED_S_MAX):
        while not await admin.list_reassignments():
            await asyncio.sleep(0.02)


async def until_still(admin: AdminClient) -> None:
    """Nothing moves any more, nor is anything being taken back."""
    async with asyncio.timeout(MOVED_S_MAX):
        while await admin.list_reassignments():
            await asyncio.sleep(0.05)


async def kill_and_restart(cluster: LocalCluster, node_id: int) -> None:
    cluster.kill(node_id)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(cluster.restart, node_id)


# -- brokers come and go -----------------------------------------------------------------------------------------------


async def test_brokers_are_added_removed_and_replaced_under_load_while_others_are_killed(cluster: LocalCluster) -> None:
    partitions = 6
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("busy", partitions=partitions, replication_factor=3)
        async with Load(cluster.bootstrap, "busy", partitions).running() as load:
            await load.grow(600)

            replicas = sum(len(found.replicas) for one in await admin.describe_topics() for found in one.partitions)
            fourth = await asyncio.to_thread(cluster.add)
            async with Watch(cluster, admin, await admin.describe_topic("busy")).running():
                begun = await admin.rebalance(throttle_bytes_per_s=TRICKLE)
                assert sum(fourth in move.replicas for move in begun) == replicas // 4
                await until_moving(admin)
                await kill_and_restart(cluster, 2)
                assert await admin.rebalance(throttle_bytes_per_s=FULL_SPEED) == [], (
                    "what is under way is not begun again"
                )
                await settled(cluster, admin, "busy")
            await load.grow(300)

            async with Watch(cluster, admin, await admin.describe_topic("busy")).running():
                await admin.rebalance(leaving=[1], throttle_bytes_per_s=TRICKLE)
                await until_moving(admin)
                await kill_and_restart(cluster, fourth)
                await admin.rebalance(leaving=[1], throttle_bytes_per_s=FULL_SPEED)
                described = await settled(cluster, admin, "busy")
            assert all(1 not in found.replicas for found in described.partitions)
            await asyncio.to_thread(until, lambda: logs_of(cluster, 1, described.topic_id) == {})
            await admin.remove_broker(1)
            await asyncio.to_thread(cluster.forget, 1)
            await load.grow(300)

            fifth = await asyncio.to_thread(cluster.add)
            await admin.rebalance(leaving=[2], throttle_bytes_per_s=TRICKLE)
            await until_moving(admin)
            await kill_and_restart(cluster, 3)
            await admin.rebalance(leaving=[2], throttle_bytes_per_s=FULL_SPEED)
            described = await settled(cluster, admin, "busy")
            await admin.remove_broker(2)
            await asyncio.to_thread(cluster.forget, 2)
            await load.grow(300)
        assert {node for found in described.partitions for node in found.replicas} == {3, fourth, fifth}
        await check_copies(cluster, admin, "busy")
        await asyncio.to_thread(load.check, cluster)


async def test_a_broker_that_is_lost_for_good_is_replaced_under_load(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("lost", partitions=3, replication_factor=3)
        async with Load(cluster.bootstrap, "lost", 3).running() as load:
            await load.grow(300)
            cluster.wipe(2)
            fourth = await asyncio.to_thread(cluster.add)
            await admin.rebalance(leaving=[2])
            await until_still(admin)
            await admin.remove_broker(2)
            cluster.forget(2)
            await load.grow(300)
        described = await settled(cluster, admin, "lost")
        assert {node for found in described.partitions for node in found.replicas} == {1, 3, fourth}
        await check_copies(cluster, admin, "lost")
        await asyncio.to_thread(load.check, cluster)


# -- single rules ------------------------------------------------------------------------------------------------------


async def test_a_move_goes_on_throttled_as_it_was_when_its_controller_is_killed(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("outlives", replicas_assignments={0: [1, 2], 1: [2, 3]})
        async with Load(cluster.bootstrap, "outlives", 2).running() as load:
            await load.grow(400)
            moves = [NewAssignment("outlives", 0, (3, 2)), NewAssignment("outlives", 1, (1, 3))]
            await admin.alter_reassignments(moves, throttle_bytes_per_s=TRICKLE)
            controller = (await admin.describe_cluster()).controller_id
            await kill_and_restart(cluster, controller)
            left = await admin.list_reassignments()
            assert [found.throttle_bytes_per_s for found in left] == [TRICKLE, TRICKLE]
            await admin.alter_reassignments([], throttle_bytes_per_s=FULL_SPEED)
            await settled(cluster, admin, "outlives")
        described = await settled(cluster, admin, "outlives")
        assert [found.replicas for found in described.partitions] == [(3, 2), (1, 3)]
        await check_copies(cluster, admin, "outlives")
        await asyncio.to_thread(load.check, cluster)


async def test_moves_are_called_off_under_load_and_what_they_copied_is_deleted(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("called-off", replicas_assignments={0: [1, 2], 1: [2, 3]})
        async with Load(cluster.bootstrap, "called-off", 2).running() as load:
            await load.grow(400)
            moves = [NewAssignment("called-off", 0, (3, 1)), NewAssignment("called-off", 1, (1, 2))]
            await admin.alter_reassignments(moves, throttle_bytes_per_s=TRICKLE)
            topic_id = (await admin.describe_topic("called-off")).topic_id
            await asyncio.to_thread(until, lambda: len(logs_of(cluster, 3, topic_id).get(0, b"")) > 0)
            await kill_and_restart(cluster, 3)
            await admin.cancel_reassignments()
            await until_still(admin)
            await load.grow(100)
        described = await settled(cluster, admin, "called-off")
        assert [found.replicas for found in described.partitions] == [(1, 2), (2, 3)]
        await check_copies(cluster, admin, "called-off")
        await asyncio.to_thread(load.check, cluster)


async def test_a_copy_is_deleted_also_if_its_broker_was_down_when_it_was_taken_away(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        fourth = await asyncio.to_thread(cluster.add)
        await admin.create_topic("away", replicas_assignments={0: [1, 2, 3], 1: [2, 3, 1]})
        topic_id = (await admin.describe_topic("away")).topic_id
        async with Load(cluster.bootstrap, "away", 2).running() as load:
            await load.grow(200)
            cluster.kill(1)
            await admin.alter_reassignments([NewAssignment("away", 0, (fourth, 2, 3))])
            await until_still(admin)
            assert set(logs_of(cluster, 1, topic_id)) == {0, 1}
            await asyncio.to_thread(cluster.restart, 1)
        await asyncio.to_thread(until, lambda: set(logs_of(cluster, 1, topic_id)) == {1})
        await check_copies(cluster, admin, "away")
        await asyncio.to_thread(load.check, cluster)


async def test_brokers_count_what_a_move_costs(cluster: LocalCluster, protocol: str) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("counted", replicas_assignments={0: [1, 2]})
        async with Load(cluster.bootstrap, "counted", 1).running() as load:
            await load.grow(500)
        described = await admin.describe_topic("counted")
        held_bytes = len(logs_of(cluster, 1, described.topic_id)[0])
        await admin.alter_reassignments([NewAssignment("counted", 0, (3, 2))])
        await settled(cluster, admin, "counted")
        moved = {node_id: metrics(cluster, node_id) for node_id in cluster.node_ids}
        received_bytes = moved[3]["tidelog_moves_received_bytes_total"]
        sent_bytes = sum(found["tidelog_moves_sent_bytes_total"] for found in moved.values())
        if protocol == ISR:
            assert received_bytes == sent_bytes == held_bytes, "nothing is copied twice"
        else:
            for moved_bytes in (received_bytes, sent_bytes):
                assert 0.9 * held_bytes < moved_bytes < 2 * held_bytes, "it asks several, in turn"
        await check_copies(cluster, admin, "counted")


def metrics(cluster: LocalCluster, node_id: int) -> dict[str, float]:
    """The counters of a broker that have no labels."""
    with urllib.request.urlopen(f"{cluster.broker(node_id).url}/metrics", timeout=10) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value, *_ in lines if "{" not in name}
