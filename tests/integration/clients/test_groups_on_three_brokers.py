"""A group on three real brokers: its coordinator is killed, and its members go on as if nothing had been."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, ConsumerRebalanceListener, TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

PARTITIONS = 12
WAIT_S = 60.0


class Member(ConsumerRebalanceListener):
    """Reads until it is cancelled; remembers what it was given and how often its partitions changed."""

    def __init__(self, values: Counter[bytes | None]) -> None:
        self.assigned: set[TopicPartition] = set()
        self.changes = 0
        self._values = values

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.assigned |= set(assigned)
        self.changes += 1

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.assigned -= set(revoked)
        self.changes += 1

    async def read(self, bootstrap: str) -> None:
        async with Consumer(bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"], listener=self)
            async for record in consumer:
                self._values[record.value] += 1


async def until_shared(members: Sequence[Member], *shares: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while sorted(len(member.assigned) for member in members) != sorted(shares):
            await asyncio.sleep(0.01)


async def write_and_read(producer: Producer, values: Counter[bytes | None], count: int) -> None:
    """So many more values, each of which reaches somebody."""
    first = len(values)
    for number in range(first, first + count):
        await producer.send("t", b"%d" % number, key=b"%d" % number)
    await producer.flush()
    async with asyncio.timeout(WAIT_S):
        while len(values) < first + count:
            await asyncio.sleep(0.01)


async def test_a_coordinator_is_killed_and_nobody_is_expelled_or_moved() -> None:
    values: Counter[bytes | None] = Counter()
    members = [Member(values) for _ in range(3)]
    with LocalCluster(3) as cluster:
        async with AdminClient(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            await admin.create_topic("t", partitions=PARTITIONS, replication_factor=3)
            tasks = [asyncio.create_task(member.read(cluster.bootstrap)) for member in members]
            await until_shared(members, 4, 4, 4)
            await write_and_read(producer, values, 500)
            changes = [member.changes for member in members]
            coordinator = (await admin.describe_group("g")).coordinator_id
            await asyncio.to_thread(cluster.kill, coordinator)
            await write_and_read(producer, values, 500)
            assert [member.changes for member in members] == changes
            assert sorted(len(member.assigned) for member in members) == [4, 4, 4]
            assert max(values.values()) == 1, "nothing came twice"
            tasks.pop().cancel()  # which leaves the group, through another coordinator
            await until_shared(members[:2], 6, 6)
            await write_and_read(producer, values, 500)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
