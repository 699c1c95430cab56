"""A load on one partition of a cluster that is being broken, and how its replicas are doing."""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, zip_longest
from typing import Any

from flights_faults import until_in_sync

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tidelog.admin import AdminClient
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster

REQUEST_MS = 2_000
"""A producer asks a broker that says nothing for no longer than this, and then another one."""
DELIVERY_MS = 120_000
PROBE_MS = 500
GAP_S_MAX = 5.0
"""A producer never waits longer where brokers are killed or restarted: a bound for slow machines, not a figure."""
DEFINITE = {503, 507}
"""Statuses of a refusal: nothing was appended, and nothing will be."""


async def create(
    cluster: LocalCluster, topic: str, configs: Mapping[str, str] | None = None, replicas: Sequence[int] = (1, 2, 3)
) -> None:
    """A topic of one partition, led by the first of its replicas."""
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic(topic, replicas_assignments={0: replicas}, configs=configs)


async def whole(cluster: LocalCluster, topic: str) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await until_in_sync(admin, topic)


async def read(cluster: LocalCluster, topic: str) -> list[str]:
    """All values of partition 0, once its leader knows that it leads."""
    return [value for _, value in await records(cluster, topic)]


async def records(cluster: LocalCluster, topic: str) -> list[tuple[int, str]]:
    """As `read`, with their offsets: where nobody has a record, as an earlier leader's batch was made void, there is a
    gap (`commit.protocol=paxos`)."""
    asked = Asked(cluster, cluster.node_ids[0])
    url = f"{asked.url}/topics/{topic}/partitions/0/records?offset=0"
    await asyncio.to_thread(until, lambda: ask(url, media=JSON_RECORDS).status == 200)
    return await asyncio.to_thread(asked.records, topic, 0)


class Load:
    """A producer that sends numbers one after another until it is told to stop, and what was acknowledged.

    It begins with the first acknowledgement.
    """

    def __init__(self, cluster: LocalCluster, topic: str, *, every_s: float = 0.002) -> None:
        self.acknowledged: list[tuple[int, str]] = []
        self.gap_s_max = 0.0
        self._cluster, self._topic, self._every_s = cluster, topic, every_s
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Load:
        self._task = asyncio.create_task(self._run())
        while not self.acknowledged and not self._task.done():
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits until all is acknowledged; after a failure, which says more, for nothing."""
        self._is_over = True
        assert self._task is not None
        if kind is not None:
            self._task.cancel()
        with contextlib.suppress(*([asyncio.CancelledError] if kind is not None else [])):
            await self._task

    async def _run(self) -> None:
        acknowledged_s = time.monotonic()
        async with Producer(
            self._cluster.bootstrap, request_timeout_ms=REQUEST_MS, delivery_timeout_ms=DELIVERY_MS
        ) as producer:
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
                await asyncio.sleep(self._every_s)

    def check(self, found: list[tuple[int, str]]) -> None:
        """What is read is what was acknowledged, each once, at the offset that was told."""
        assert self.acknowledged
        different = [pair for pair in zip_longest(found, self.acknowledged) if pair[0] != pair[1]]
        assert not different, (len(found), len(self.acknowledged), different[:3], different[-3:])


class Probes:
    """Requests to one broker, each tried once, and what became of their records: nothing hides an answer."""

    def __init__(self, cluster: LocalCluster, node_id: int, topic: str) -> None:
        self.acknowledged: dict[str, int] = {}
        """Value to offset."""
        self.refused: set[str] = set()
        """Those of which it was said that they are surely not appended."""
        self._asked, self._topic = Asked(cluster, node_id), topic
        self._numbers = count()

    async def send(self) -> list[int]:
        """One record. Returns the replicas that vouch for it; none if it is not acknowledged."""
        value = f"probe {next(self._numbers)}"
        produce = partial(self._asked.produce, self._topic, 0, value, timeout_ms=PROBE_MS, wait_s=2 * PROBE_MS / 1000)
        try:
            answer = await asyncio.to_thread(produce)
        except OSError:
            return []
        if answer.status == 200:
            place = answer.body["offsets"][0]
            self.acknowledged[value] = place["offset"]
            return list(place["acked_by"])
        if answer.status in DEFINITE:
            self.refused.add(value)
        return []

    def check(self, found: list[tuple[int, str]]) -> None:
        """Acknowledged ones are where it was told, refused ones nowhere, and none is there twice."""
        places = {value: offset for offset, value in found}
        assert len(places) == len(found)
        assert self.acknowledged == {value: places.get(value) for value in self.acknowledged}
        assert not self.refused.intersection(places)


def own_copy(cluster: LocalCluster, node_id: int, topic: str) -> list[str]:
    """Returns what a broker has of partition 0, and knows to be committed."""
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


def partition(asked: Asked, topic: str) -> dict[str, Any]:
    """Partition 0 as a broker knows it: `leader`, `leader_epoch`, `isr`, `elr` and so on."""
    found: dict[str, Any] = ask(f"{asked.url}/metadata?topics={topic}").body["topics"][0]["partitions"][0]
    return found


def isr(asked: Asked, topic: str) -> list[int]:
    """Of partition 0."""
    return list(partition(asked, topic)["isr"])
