"""Producers and readers of a cluster whose brokers are killed one after the other, the controller among them.

Each is killed and started again, the leaders of partitions among them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.e2e.asking import Answer, Asked, until
from tests.e2e.clusters import running
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC = "spread"
PARTITIONS = 3
KILLS = 4
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture
def cluster(protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, settings=SETTINGS) as cluster:
        assert Asked(cluster, 1).create(TOPIC, PARTITIONS).status == 201
        yield cluster


async def produce(name: str, bootstrap: str, over: asyncio.Event) -> list[list[str]]:
    """Writes to all partitions in turn until it is over; what was acknowledged, by partition."""
    sent: list[tuple[int, str, Delivery]] = []
    async with Producer(bootstrap, delivery_timeout_ms=90_000) as producer:
        for number in count():
            if over.is_set():
                break
            value, partition = f"{name}-{number}", number % PARTITIONS
            sent.append((partition, value, await producer.send(TOPIC, f'"{value}"'.encode(), partition=partition)))
            await asyncio.sleep(0.002)
        found: list[list[str]] = [[] for _ in range(PARTITIONS)]
        for partition, value, delivery in sent:
            place = await delivery
            assert place.partition == partition
            found[partition].append(value)
    return found


def post(cluster: LocalCluster, over: threading.Event) -> tuple[list[set[str]], list[set[str]]]:
    """Writes through brokers that do not lead, without a way to repeat. What was acknowledged, and what may be there;
    anything else was surely not appended."""
    acknowledged: list[set[str]] = [set() for _ in range(PARTITIONS)]
    unknown: list[set[str]] = [set() for _ in range(PARTITIONS)]
    leaders = Asked(cluster, 1).leaders(TOPIC)
    for number in count():
        if over.is_set():
            return acknowledged, unknown
        partition = number % PARTITIONS
        other = next(node_id for node_id in (1 + number % 3, 1 + (number + 1) % 3) if node_id != leaders[partition])
        value = f"http-{number}"
        try:
            answer = Asked(cluster, other).produce(TOPIC, partition, value, timeout_ms=2_000)
        except OSError:
            unknown[partition].add(value)  # whoever was asked was killed
            continue
        if answer.status == 200:
            acknowledged[partition].add(value)
        elif is_unknown(answer):
            unknown[partition].add(value)
    raise AssertionError


def is_unknown(answer: Answer) -> bool:
    assert answer.status in {500, 503, 504}, answer
    return answer.status != 503


def some_controller(cluster: LocalCluster) -> int:
    return Asked(cluster, 1).controller or 1


async def kill_in_turn(cluster: LocalCluster) -> None:
    for i in range(KILLS):
        await asyncio.sleep(1)
        victim = await asyncio.to_thread(some_controller, cluster) if i % 2 else 1 + i % 3
        await asyncio.to_thread(cluster.kill, victim)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(cluster.restart, victim)


async def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(cluster: LocalCluster) -> None:
    over, posting_over = asyncio.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        posting = pool.submit(post, cluster, posting_over)
        try:
            async with asyncio.TaskGroup() as tasks:
                left = tasks.create_task(produce("left", cluster.broker(2).url, over))
                right = tasks.create_task(produce("right", cluster.bootstrap, over))
                await kill_in_turn(cluster)
                over.set()
        finally:
            posting_over.set()
        acknowledged, unknown = await asyncio.wrap_future(posting)
    asked = [Asked(cluster, node_id) for node_id in cluster.node_ids]
    until(lambda: all(-1 not in each.leaders(TOPIC) for each in asked))
    for partition in range(PARTITIONS):
        [values, *others] = [each.values(TOPIC, partition) for each in asked]
        assert all(other == values for other in others), "whoever is read from"
        for producer in (left, right):
            mine = producer.result()[partition]
            assert len(mine) > 100
            assert [value for value in values if value.startswith(mine[0].split("-")[0])] == mine
        posted = [value for value in values if value.startswith("http-")]
        assert len(posted) == len(set(posted))
        assert acknowledged[partition] and acknowledged[partition] <= set(posted)
        assert set(posted) <= acknowledged[partition] | unknown[partition], "what was refused is not there"
