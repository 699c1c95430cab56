"""Groups of unchanged clients on three real brokers: the coordinator is killed, and the members go on."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from tests.integration.kafka.groups.test_clients import Member, members, stopped, until
from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 6
QUICK = {"group.initial.rebalance.delay.ms": "0", "group.consumer.heartbeat.interval.ms": "500"}


async def write(servers: str, first: int, count: int) -> None:
    """So many values, spread over all partitions."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert await asyncio.to_thread(producer.flush, 30.0) == 0


async def read(made: list[Member], count: int) -> None:
    wanted = {b"%d" % number for number in range(count)}
    await until(lambda: {value for member in made for value in member.values} == wanted)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_coordinator_is_killed_and_the_members_go_on(protocol: str) -> None:
    async with LocalCluster(3, kafka=True, settings=QUICK) as cluster, AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        servers = cluster.kafka_bootstrap
        with members(servers, protocol, {}, {}, {}) as made:
            await until(lambda: sorted(len(one.partitions) for one in made) == [2, 2, 2])
            await write(servers, 0, 300)
            await read(made, 300)
            had = [set(one.partitions) for one in made]
            coordinator = (await admin.describe_group("g")).coordinator_id
            await asyncio.to_thread(cluster.kill, coordinator)
            await write(servers, 300, 300)
            await read(made, 600)
            assert [one.partitions for one in made] == had, "nobody was expelled or moved"
            await asyncio.to_thread(cluster.restart, coordinator)
            await stopped([made[0]])
            await until(lambda: sorted(len(one.partitions) for one in made[1:]) == [3, 3])
            await write(servers, 600, 100)
            await read(made, 700)
            await stopped(made)
