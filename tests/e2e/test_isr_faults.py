"""What is acknowledged is in every in-sync replica, on disk: brokers are killed, paused, restarted and wiped, and each
acknowledged record is there once, in order.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pytest
from flights import read_flights
from flights_faults import SETTINGS, run, until_in_sync

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tidelog.admin import AdminClient, NewAssignment
from tidelog.consumer import Consumer
from tidelog.model.ids import TopicPartition
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

GAP_S_MAX = 10.0
"""A producer never waits longer where brokers are killed or restarted: a bound for slow machines, not a figure."""
LEADER = 1
"""Of the partition of a test's topic, when it begins: the first of its replicas."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        yield cluster


async def create(cluster: LocalCluster, topic: str, configs: Mapping[str, str] | None = None) -> None:
    """A topic of one partition, led by `LEADER`."""
    replicas = sorted(cluster.node_ids, key=lambda node_id: (node_id - LEADER) % 3)
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic(topic, replicas_assignments={0: replicas}, configs=configs)


async def whole(cluster: LocalCluster, topic: str) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await until_in_sync(admin, topic)


async def read(cluster: LocalCluster, topic: str) -> list[str]:
    """All values of partition 0."""
    await asyncio.to_thread(until, lambda: -1 not in Asked(cluster, 1).leaders(topic))
    return await asyncio.to_thread(Asked(cluster, 1).values, topic, 0)


class Load:
    """A producer that sends numbers one after another until it is told to stop, and what was acknowledged."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.acknowledged: list[tuple[int, str]] = []
        self.gap_s_max = 0.0
        self._cluster, self._topic = cluster, topic
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Load:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        acknowledged_s = time.monotonic()
        async with Producer(self._cluster.bootstrap) as producer:
            under_way: list[tuple[str, Delivery]] = []
            for number in count():
                if self._is_over and not under_way:
                    return
                if not self._is_over:
                    value = f'"{number}"'
                    under_way.append((value, await producer.send(self._topic, value.encode(), partition=0)))
                while under_way and (under_way[0][1].done() or self._is_over):
                    value, delivery = under_way.pop(0)
                    place = await delivery
                    assert place.offset is not None
                    self.acknowledged.append((place.offset, value.strip('"')))
                    now_s = time.monotonic()
                    self.gap_s_max, acknowledged_s = max(self.gap_s_max, now_s - acknowledged_s), now_s
                await asyncio.sleep(0.002)

    def check(self, values: list[str]) -> None:
        """What is read is what was acknowledged, each once, at the offset that was told."""
        assert self.acknowledged
        assert [(offset, value) for offset, value in enumerate(values)] == self.acknowledged


# -- the load ------------------------------------------------------------------------------------------------------


async def flights(cluster: LocalCluster, topic: str, faults: int) -> bool:
    return await run(cluster, topic, read_flights(20_000), faults)


async def test_the_flights_while_each_broker_is_broken_once(cluster: LocalCluster) -> None:
    assert await flights(cluster, "flights-short", 3)


@pytest.mark.slow
async def test_the_flights_while_all_brokers_are_broken_in_every_way(cluster: LocalCluster) -> None:
    assert await flights(cluster, "flights-long", 9)


# -- single rules --------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_killed_leader_is_replaced_and_a_producer_notices_little(cluster: LocalCluster) -> None:
    await create(cluster, "killed")
    async with Load(cluster, "killed") as load:
        await asyncio.sleep(0.5)
        cluster.kill(LEADER)
        await asyncio.sleep(1.5)
        await asyncio.to_thread(cluster.restart, LEADER)
    load.check(await read(cluster, "killed"))
    assert load.gap_s_max < GAP_S_MAX
    await whole(cluster, "killed")


async def test_too_few_in_sync_refuse_acks_all_until_one_is_back(cluster: LocalCluster) -> None:
    await create(cluster, "min", {"min.insync.replicas": "3"})
    asked = Asked(cluster, LEADER)
    assert asked.produce("min", 0, "before").status == 200
    cluster.kill(3)
    url = f"{asked.url}/topics/min/partitions/0"
    one = {"records": [{"value": "leader only"}]}
    await asyncio.to_thread(until, lambda: 3 not in isr(asked, "min"))
    refused = asked.produce("min", 0, "never")
    assert (refused.status, refused.code) == (503, 50302)
    assert "min.insync.replicas" in refused.body["message"] and "nothing was appended" in refused.body["message"]
    assert metric(asked, "tidelog_under_replicated_partitions") >= 1
    assert metric(asked, "tidelog_under_min_isr_partitions") == 1
    assert metric(asked, "tidelog_isr_shrinks_total") >= 1
    assert metric(asked, 'tidelog_partition_in_sync_replicas{partition="0",topic="min"}') == 2
    alone = ask(f"{url}?acks=1", one, media=JSON_RECORDS)
    assert (alone.status, alone.body["offsets"][0]["acked_by"]) == (200, [LEADER])
    assert alone.body["offsets"][0]["durability"] == "leader"
    assert ask(f"{url}?acks=0", {"records": [{"value": "nobody waits"}]}, media=JSON_RECORDS).status == 204
    assert asked.values("min", 0) == ["before"], "what is in fewer replicas is not committed"
    await asyncio.to_thread(cluster.restart, 3)
    await whole(cluster, "min")
    await asyncio.to_thread(until, lambda: metric(asked, "tidelog_isr_expands_total") >= 1)
    assert metric(asked, "tidelog_under_min_isr_partitions") == 0
    assert metric(asked, "tidelog_replica_fetches_total") > 0
    await asyncio.to_thread(
        until, lambda: metric(asked, 'tidelog_replica_lag_records{partition="0",replica="3",topic="min"}') == 0
    )
    after = asked.produce("min", 0, "after")
    assert sorted(after.body["offsets"][0]["acked_by"]) == [1, 2, 3]
    assert after.body["offsets"][0]["durability"] == "fsynced"
    assert await read(cluster, "min") == ["before", "leader only", "nobody waits", "after"]


async def test_a_key_is_honoured_by_any_broker_after_the_leader_is_gone(cluster: LocalCluster) -> None:
    await create(cluster, "keyed")

    def post(node_id: int, key: str, value: str) -> int:
        answer = ask(
            f"{cluster.broker(node_id).url}/topics/keyed/partitions/0",
            {"records": [{"value": value}]},
            media=JSON_RECORDS,
            headers={"Idempotency-Key": key},
        )
        assert answer.status == 200, answer
        return int(answer.body["offsets"][0]["offset"])

    for number in range(5):
        assert post(1 + number % 3, f"key-{number}", f"{number}") == number
    cluster.kill(LEADER)
    for number in range(5):
        assert post(2 + number % 2, f"key-{number}", f"{number}") == number
    assert post(3, "another", "5") == 5
    await asyncio.to_thread(cluster.restart, LEADER)
    await whole(cluster, "keyed")
    assert post(LEADER, "key-3", "3") == 3
    assert await read(cluster, "keyed") == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.slow
async def test_a_reader_goes_on_where_the_killed_leader_stopped(cluster: LocalCluster) -> None:
    await create(cluster, "reading")
    found: list[tuple[int, str]] = []

    async def follow(enough: Callable[[], bool]) -> None:
        async with Consumer(bootstrap=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("reading", 0)])
            while not enough():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found.extend((record.offset, (record.value or b"").decode().strip('"')) for record in records)

    load = Load(cluster, "reading")
    is_over = asyncio.Event()
    reading = asyncio.create_task(follow(lambda: is_over.is_set() and len(found) >= len(load.acknowledged)))
    async with load:
        await asyncio.sleep(0.5)
        cluster.kill(LEADER)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(cluster.restart, LEADER)
    is_over.set()
    async with asyncio.timeout(20):
        await reading
    assert found == load.acknowledged
    await whole(cluster, "reading")


@pytest.mark.slow
async def test_a_wiped_broker_is_filled_again_and_can_lead(cluster: LocalCluster) -> None:
    await create(cluster, "wiped")
    asked = Asked(cluster, 1)
    values = [f"{number}" for number in range(500)]
    assert asked.produce("wiped", 0, *values).status == 200
    voter = asked.voters[3]
    cluster.wipe(3)
    await asyncio.to_thread(cluster.restart, 3)
    await whole(cluster, "wiped")
    await asyncio.to_thread(until, lambda: asked.voters.get(3, voter) != voter)
    cluster.kill(LEADER)
    assert Asked(cluster, 2).produce("wiped", 0, "more").status == 200
    await asyncio.to_thread(cluster.restart, LEADER)
    await whole(cluster, "wiped")
    await asyncio.to_thread(until, lambda: own_copy(cluster, 3, "wiped") == [*values, "more"])


async def test_each_broker_answers_from_its_own_copy(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("copies", replicas_assignments={0: [1, 2]})
    assert Asked(cluster, 3).produce("copies", 0, "a", "b").status == 200
    await asyncio.to_thread(
        until, lambda: all(own_copy(cluster, node_id, "copies") == ["a", "b"] for node_id in (1, 2))
    )
    records = f"{cluster.broker(3).url}/topics/copies/partitions/0/records?offset=0"
    none = ask(f"{records}&replica=local", media=JSON_RECORDS)
    assert (none.status, none.code) == (404, 40404)
    assert len(ask(f"{records}&replica=any", media=JSON_RECORDS).body) == 2, "forwarded, as it holds no copy"
    follower = f"{cluster.broker(2).url}/topics/copies/partitions/0/records?replica=local"
    waiting = asyncio.create_task(asyncio.to_thread(ask, f"{follower}&offset=2&timeout=10000", media=JSON_RECORDS))
    await asyncio.sleep(0.1)
    assert Asked(cluster, 1).produce("copies", 0, "c").status == 200
    assert [record["value"] for record in (await waiting).body] == ["c"], "a reader of a copy is woken"
    beyond = ask(f"{follower}&offset=99", media=JSON_RECORDS)
    assert beyond.status == 416


@pytest.mark.slow
async def test_all_are_killed_at_once_and_nothing_acknowledged_is_lost(cluster: LocalCluster) -> None:
    await create(cluster, "crash")
    async with Load(cluster, "crash") as load:
        await asyncio.sleep(0.7)
        cluster.kill(*cluster.node_ids)
        await asyncio.to_thread(cluster.restart, *cluster.node_ids)
    load.check(await read(cluster, "crash"))
    await whole(cluster, "crash")


@pytest.mark.slow
async def test_a_move_outlives_the_controller_that_began_it(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("moved", replicas_assignments={0: [1, 2]})
        assert Asked(cluster, 1).produce("moved", 0, "a", "b").status == 200
        controller = Asked(cluster, 1).controller
        await admin.alter_reassignments([NewAssignment("moved", 0, (3, 2))])
        await asyncio.to_thread(cluster.kill, controller)
        await asyncio.to_thread(cluster.restart, controller)
        async with asyncio.timeout(30):
            while await admin.list_reassignments():
                await asyncio.sleep(0.1)
        (partition,) = (await admin.describe_topic("moved")).partitions
        assert partition.replicas == (3, 2)
    assert await read(cluster, "moved") == ["a", "b"]
    gone = ask(f"{cluster.broker(1).url}/topics/moved/partitions/0/records?offset=0&replica=local", media=JSON_RECORDS)
    assert (gone.status, gone.code) == (404, 40404)


@pytest.mark.slow
async def test_brokers_are_restarted_in_turn_under_load(cluster: LocalCluster) -> None:
    await create(cluster, "rolling")
    async with Load(cluster, "rolling") as load:
        for node_id in cluster.node_ids:
            await asyncio.to_thread(cluster.restart, node_id)
            await whole(cluster, "rolling")
    load.check(await read(cluster, "rolling"))
    assert load.gap_s_max < GAP_S_MAX


def own_copy(cluster: LocalCluster, node_id: int, topic: str) -> list[str]:
    """What a broker has of partition 0, and knows to be committed."""
    url = f"{cluster.broker(node_id).url}/topics/{topic}/partitions/0/records?offset=0&replica=local"
    answer = ask(url, media=JSON_RECORDS)
    assert answer.status == 200, answer
    return [record["value"] for record in answer.body]


def metric(asked: Asked, name: str) -> float:
    """One sample of `/metrics`."""
    with urllib.request.urlopen(f"{asked.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name]
    return float(value)


def isr(asked: Asked, topic: str) -> list[int]:
    """Of partition 0."""
    return list(ask(f"{asked.url}/metadata?topics={topic}").body["topics"][0]["partitions"][0]["isr"])
