"""Clients of several brokers: they go to leaders directly, and on when a leader moves or a broker dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.integration.forwarding.conftest import Cluster, Trouble
from tests.integration.http.conftest import JSON_V2, STOP_S
from tidelog.broker.routing import leader_calls
from tidelog.consumer import Consumer, ConsumerRecord, TopicPartition
from tidelog.producer import Producer
from tidelog.transport.errors import DeliveryExpired, DeliveryUnknown

NEWS_S_MAX = 20.0
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
async def two(cluster: Cluster) -> Cluster:
    """Topic `t`: partition 0 led by broker 1, partition 1 by broker 2."""
    await cluster.topic("t", [1, 2])
    return cluster


@pytest.fixture
async def producer(two: Cluster, nobody: str) -> AsyncIterator[Producer]:
    async with Producer(f"{nobody},{two.nodes[3].url},{two.nodes[1].url}", linger_ms=0) as made:
        yield made


async def stop_listening(cluster: Cluster, node: int) -> None:
    await cluster.nodes[node].server.stop(STOP_S)


def forwarded(cluster: Cluster) -> list[tuple[int, str]]:
    """Returns what was forwarded since the last look."""
    asked, cluster.net.asked = cluster.net.asked, []
    return asked


def held(cluster: Cluster, node: int, partition: int = 0) -> list[bytes | None]:
    return cluster.sites[node].values("t", partition)


# -- producer ----------------------------------------------------------------------------------------------------------


async def test_a_producer_goes_to_each_leader_directly(two: Cluster, producer: Producer) -> None:
    for partition in (0, 1):
        metadata = await producer.send_and_wait("t", b"a", partition=partition)
        assert metadata.acked_by == (partition + 1,)
    assert forwarded(two) == []


async def test_a_producer_learns_from_a_receipt_that_the_leader_has_moved(two: Cluster, producer: Producer) -> None:
    await producer.send_and_wait("t", b"a", partition=0)
    two.appoint("t", 0, leader=2)
    assert (await producer.send_and_wait("t", b"b", partition=0)).acked_by == (2,)
    assert forwarded(two) == [(2, "ForwardProduce")]
    sent = [b"b"]
    async with asyncio.timeout(NEWS_S_MAX):  # some may be sent before the news is there
        while len(sent) == 1 or forwarded(two):
            sent.append(b"%d" % len(sent))
            assert (await producer.send_and_wait("t", sent[-1], partition=0)).acked_by == (2,)
    await producer.send_and_wait("t", b"z", partition=0)
    assert forwarded(two) == []
    assert (held(two, 1), held(two, 2)) == ([b"a"], [*sent, b"z"])


async def test_a_leader_that_only_brokers_can_reach_costs_a_hop(two: Cluster, producer: Producer) -> None:
    await producer.send_and_wait("t", b"a", partition=0)
    await stop_listening(two, 1)
    assert (await producer.send_and_wait("t", b"b", partition=0)).acked_by == (1,)
    assert (1, "ForwardProduce") in forwarded(two)


async def test_a_dead_leader_is_left_for_its_successor(two: Cluster, producer: Producer) -> None:
    await producer.send_and_wait("t", b"a", partition=0)
    await stop_listening(two, 1)
    two.net.down[1] = None
    delivery = await producer.send("t", b"b", partition=0)
    delivery.hurry()
    two.appoint("t", 0, leader=2)
    assert (await delivery).acked_by == (2,)


async def test_records_for_a_partition_without_leader_are_surely_not_appended(two: Cluster) -> None:
    two.appoint("t", 0, leader=-1)
    async with Producer(two.nodes[3].url, linger_ms=0, delivery_timeout_ms=300) as producer:
        with pytest.raises(DeliveryExpired, match="no leader"):
            await producer.send_and_wait("t", b"a", partition=0)
    assert held(two, 1) == []


async def test_an_answer_lost_between_brokers_is_unknown_to_a_producer_without_numbers(two: Cluster) -> None:
    await stop_listening(two, 1)
    async with Producer(two.nodes[3].url, linger_ms=0, enable_idempotence=False) as producer:
        two.net.troubles = [Trouble.ANSWER_LOST]
        with pytest.raises(DeliveryUnknown, match="may have done it"):
            await producer.send_and_wait("t", b"a", partition=0)
    assert held(two, 1) == [b"a"]


async def test_an_answer_lost_between_brokers_is_asked_for_again_with_numbers(
    two: Cluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_calls, "PAUSE_S_MIN", 0.001)
    await stop_listening(two, 1)
    two.net.troubles = [Trouble.ANSWER_LOST, Trouble.UNHEARD, Trouble.ANSWER_LOST]
    offsets = [(await producer.send_and_wait("t", value, partition=0)).offset for value in (b"a", b"b")]
    assert (offsets, held(two, 1)) == ([0, 1], [b"a", b"b"])
    assert not two.net.troubles


async def test_a_broker_that_does_not_serve_is_passed_over(two: Cluster) -> None:
    two.nodes[3].is_ready = False
    async with Producer(f"{two.nodes[3].url},{two.nodes[1].url}", linger_ms=0) as producer:
        assert (await producer.send_and_wait("t", b"a", partition=1)).acked_by == (2,)


# -- consumer ----------------------------------------------------------------------------------------------------------


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    async with asyncio.timeout(20):
        return [await consumer.getone() for _ in range(count)]


async def test_a_consumer_goes_on_when_a_broker_dies_and_when_a_leader_moves(two: Cluster, producer: Producer) -> None:
    bootstrap = ",".join(node.url for node in two.nodes.values())
    async with Consumer(
        "t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50
    ) as consumer:
        await producer.send_and_wait("t", b"a", partition=0)
        await producer.send_and_wait("t", b"b", partition=1)
        assert sorted(record.value or b"" for record in await read(consumer, 2)) == [b"a", b"b"]
        await stop_listening(two, 1)
        await producer.send_and_wait("t", b"c", partition=0)
        assert [record.value for record in await read(consumer, 1)] == [b"c"]
        assert (1, "ForwardRead") in forwarded(two)
        # These brokers copy nothing. Without a record where the other has "b", the next leader's log would end before
        # the consumer's position, and the consumer would begin anew if it asked before "d" is there.
        copied = await two.sites[1].post("/topics/t/partitions/1", {"records": [{"value": "b"}]}, JSON_V2)
        assert copied.status == 200
        two.appoint("t", 1, leader=1)
        await producer.send_and_wait("t", b"d", partition=1)
        assert [record.value for record in await read(consumer, 1)] == [b"d"]


async def test_ends_and_beginnings_come_through_any_broker(two: Cluster, producer: Producer) -> None:
    for partition in (0, 1):
        await producer.send_and_wait("t", b"a", partition=partition)
    async with Consumer(bootstrap_servers=two.nodes[3].url) as consumer:
        assert await consumer.end_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 1)
        assert await consumer.beginning_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 0)
    assert {kind for _, kind in forwarded(two)} == {"ForwardOffsets"}
