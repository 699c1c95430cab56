"""Three brokers in three racks: nothing is forwarded, who leads instead is told, and a killed leader costs nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.kafka.conftest import Client, batch, values_of
from tests.integration.kafka.test_clients import consume, deliver, make
from tidelog.admin import AdminClient
from tidelog.broker.kafka.apis import Key
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster(brokers=3, kafka=True)
    for node_id in made.node_ids:
        made.broker(node_id).change_settings({"broker.rack": f"rack-{node_id}"})
    with made:
        yield made


async def client(cluster: LocalCluster, node_id: int) -> Client:
    host, _, port = (cluster.broker(node_id).kafka or "").rpartition(":")
    return await Client.open((host, int(port)))


async def leader_and_id(cluster: LocalCluster, topic: str) -> tuple[int, uuid.UUID]:
    async with AdminClient(cluster.bootstrap) as admin:
        (partition,) = (await admin.describe_topic(topic)).partitions
    asking = await client(cluster, 1)
    terms = {"include_topic_authorized_operations": False}
    (found,) = (await asking.ask(Key.METADATA, 12, topics=[{"name": topic, "topic_id": None}], **terms)).topics
    await asking.close()
    assert partition.leader is not None
    return partition.leader, found.topic_id


async def test_who_is_asked_and_does_not_lead_says_who_does(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("led", partitions=1)
    leader, topic_id = await leader_and_id(cluster, "led")
    other = next(node_id for node_id in cluster.node_ids if node_id != leader)
    at_leader, elsewhere = await client(cluster, leader), await client(cluster, other)

    refused = await elsewhere.ask(Key.PRODUCE, 10, **produce_tree("led"))
    (partition,) = refused.responses[0].partition_responses
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.not_leader_or_follower, leader)
    (node,) = refused.node_endpoints
    assert f"{node.host}:{node.port}" == cluster.broker(leader).kafka
    (done,) = await at_leader.produce(("led", 0, batch(b"a")))
    assert (done.error_code, done.base_offset) == (ErrorCode.none, 0)

    refused = await elsewhere.fetch_whole((topic_id, 0, 0), version=16)
    (partition,) = refused.responses[0].partitions
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.not_leader_or_follower, leader)
    assert [node.node_id for node in refused.node_endpoints] == [leader]
    await at_leader.close()
    await elsewhere.close()


def produce_tree(topic: str) -> dict[str, Any]:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"a")}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}


async def test_a_client_reads_from_the_replica_in_its_rack(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("near", partitions=1)
    leader, _ = await leader_and_id(cluster, "near")
    other = next(node_id for node_id in cluster.node_ids if node_id != leader)
    at_leader, at_copy = await client(cluster, leader), await client(cluster, other)
    await at_leader.produce(("near", 0, batch(b"a")))
    rack = f"rack-{other}"

    (directed,) = await at_leader.fetch(("near", 0, 0), rack_id=rack)
    assert (directed.preferred_read_replica, directed.records or b"") == (other, b"")
    (found,) = await at_copy.fetch(("near", 0, 0), max_wait=10_000, rack_id=rack)
    assert values_of(found.records) == [b"a"]
    (ahead,) = await at_copy.fetch(("near", 0, 9), rack_id=rack)
    assert ahead.error_code == ErrorCode.offset_not_available
    (own,) = await at_leader.fetch(("near", 0, 0), rack_id=f"rack-{leader}")
    assert (own.preferred_read_replica, values_of(own.records)) == (-1, [b"a"])
    (stranger,) = await at_copy.fetch(("near", 0, 0))
    assert stranger.error_code == ErrorCode.not_leader_or_follower
    await at_leader.close()
    await at_copy.close()


async def test_a_dead_leader_is_still_a_broker_and_is_not_named_again(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("dying", partitions=1, replication_factor=3)
    leader, _ = await leader_and_id(cluster, "dying")
    other = await client(cluster, next(node_id for node_id in cluster.node_ids if node_id != leader))
    terms = {"topics": [{"name": "dying", "topic_id": None}], "include_topic_authorized_operations": False}
    await other.ask(Key.METADATA, 12, **terms)
    await asyncio.to_thread(cluster.kill, leader)
    named: list[int] = []
    async with asyncio.timeout(60):
        while not named or named[-1] in (leader, -1):
            answer = await other.ask(Key.METADATA, 12, **terms)
            named.append(answer.topics[0].partitions[0].leader_id)
            assert [broker.node_id for broker in answer.brokers] == [*cluster.node_ids]
    first = next(number for number, node_id in enumerate(named) if node_id != leader)  # at 0, but on a busy machine
    assert leader not in named[first:]
    await other.close()
    await asyncio.to_thread(cluster.restart, leader)


async def test_producers_go_on_when_a_leader_is_killed(cluster: LocalCluster) -> None:
    await make(cluster, "t")
    settings = {"enable.idempotence": True, "batch.num.messages": 5}
    await asyncio.to_thread(deliver, cluster, "t", 50, **settings)
    producing = asyncio.create_task(asyncio.to_thread(deliver, cluster, "t", 500, **settings))
    await asyncio.to_thread(cluster.kill, 2)
    await producing
    await asyncio.to_thread(cluster.restart, 2)
    values = await asyncio.to_thread(consume, cluster, "t", 550)
    assert sorted(values) == sorted([b"v%d" % n for n in range(50)] + [b"v%d" % n for n in range(500)])
