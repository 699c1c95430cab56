"""Records go over HTTP and by Kafka's protocol alike: the same receipts, the same errors, each record once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.errors import InvalidRequest, OffsetOutOfRange, TooLarge
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.ports import free_ports
from tidelog.transport.errors import DeliveryUnknown

pytestmark = pytest.mark.process

WAYS = ("http", "kafka", "auto")


@pytest.fixture(scope="module")
def relayed_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def doors() -> Iterator[LocalCluster]:
    with LocalCluster(kafka=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def relayed(relayed_port: int) -> Iterator[LocalCluster]:
    """Tells its clients that it takes frames at a port where it does not listen."""
    with LocalCluster(kafka=True, settings={"kafka.advertised.listener": f"127.0.0.1:{relayed_port}"}) as cluster:
        yield cluster


async def made(cluster: LocalCluster, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, configs=configs or {})
    return name


@pytest.mark.parametrize("way", WAYS)
async def test_receipts_and_records_are_the_same(doors: LocalCluster, read: Any, way: str) -> None:
    topic = await made(doors, f"same-{way}", 3)
    async with Producer(doors.bootstrap, transport=way, batch_size=300, linger_ms=600_000) as producer:
        first = await producer.send_and_wait(topic, b"first", partition=0)
        sent = await producer.send_batch(topic, [b"%d" % n + b"x" * 100 for n in range(60)], partition=0)
        others = [await producer.send(topic, b"o%d" % n, partition=n) for n in (1, 2)]
        sent.hurry()
        assert [metadata.offset for metadata in await sent] == list(range(1, 61))
        for other in others:
            other.hurry()
        assert [(await other).offset for other in others] == [0, 0]
    assert first[:3] == (topic, 0, 0)
    assert (first.leader_epoch, first.acked_by, first.durability) == (0, (1,), "fsynced")
    records = await read(doors.bootstrap, TopicPartition(topic, 0))
    assert [record.value[:2] for record in records][:3] == [b"fi", b"0x", b"1x"]
    assert len(records) == 61


@pytest.mark.parametrize("way", ["http", "kafka"])
async def test_errors_are_the_same(doors: LocalCluster, way: str) -> None:
    topic = await made(doors, f"small-{way}", configs={"max.message.bytes": "1000"})
    async with Producer(doors.bootstrap, transport=way) as producer:
        with pytest.raises(TooLarge) as caught:
            await producer.send_and_wait(topic, b"x" * 2_000)
        assert caught.value.definite
        assert (await producer.send_and_wait(topic, b"fits")).offset == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_consumer_reads_what_is_there_and_what_comes(doors: LocalCluster, way: str) -> None:
    topic = await made(doors, f"read-{way}", 2)
    async with Producer(doors.bootstrap) as producer:
        await producer.send_batch(topic, [b"%d" % n + b"x" * 1_000 for n in range(3_000)], partition=0)
        async with Consumer(
            topic, bootstrap_servers=doors.bootstrap, auto_offset_reset="earliest", transport=way
        ) as one:
            found = [await asyncio.wait_for(one.getone(), 10) for _ in range(3_000)]
            assert [record.value.rstrip(b"x") for record in found if record.value] == [b"%d" % n for n in range(3_000)]
            await producer.send_and_wait(topic, b"late", partition=1)
            late = await asyncio.wait_for(one.getone(), 10)
            assert (late.partition, late.value) == (1, b"late")


@pytest.mark.parametrize("way", ["http", "kafka"])
async def test_an_offset_that_is_not_there_is_told_alike(doors: LocalCluster, way: str) -> None:
    topic = await made(doors, f"range-{way}")
    terms = {"bootstrap_servers": doors.bootstrap, "auto_offset_reset": "none", "transport": way}
    async with Consumer(**terms) as consumer:  # type: ignore[arg-type]  # terms of several types
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 7)
        with pytest.raises(OffsetOutOfRange) as caught:
            await asyncio.wait_for(consumer.getone(), 10)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 0)


async def test_a_way_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="auto, http, kafka"):
        Producer(transport="pigeon")


async def test_a_cluster_without_the_listener_is_told_from_one_that_is_away(cluster: LocalCluster) -> None:
    topic = await made(cluster, "no-listener")
    away = pytest.raises(InvalidRequest, match="no broker listens")
    with away:
        await Consumer(topic, bootstrap_servers=cluster.bootstrap, transport="kafka").start()
    async with Producer(cluster.bootstrap, transport="kafka") as producer:
        with away:
            await producer.send(topic, b"x")
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, transport="kafka", group_id="g") as member:
        with away:
            await asyncio.wait_for(member.getmany(timeout_ms=20_000), 20)


async def test_a_door_that_leads_nowhere_is_told_once_and_records_go_by_http(
    relayed: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await made(relayed, "nowhere")
    with caplog.at_level(logging.WARNING, "tidelog.transport.frames"):
        async with Producer(relayed.bootstrap) as producer:
            assert [(await producer.send_and_wait(topic, b"x")).offset for _ in range(3)] == [0, 1, 2]
    assert ["records go by HTTP" in record.message for record in caplog.records] == [True]
    async with Producer(relayed.bootstrap, transport="kafka", delivery_timeout_ms=500) as producer:
        with pytest.raises(Exception, match="transport is kafka") as caught:
            await producer.send_and_wait(topic, b"x")
        assert caught.value.definite  # type: ignore[attr-defined]  # any of several errors


@asynccontextmanager
async def relay(port: int, target: str, *, loses: int) -> AsyncIterator[list[int]]:
    """Hands requests on to a broker, and cuts the connection in place of the answers to so many Produce requests."""
    lost: list[int] = []
    host, _, number = target.rpartition(":")
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # When the client has gone, nothing else keeps this task, which waits for the broker, from the collector.
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        upstream, onward = await asyncio.open_connection(host, int(number))
        try:
            while True:
                request = await _frame(reader)
                onward.write(request)
                answer = await _frame(upstream)
                if request[4:6] == b"\0\0" and len(lost) < loses:
                    lost.append(len(request))
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            onward.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield lost
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))


async def test_a_lost_answer_is_asked_for_again_and_nothing_comes_twice(
    relayed: LocalCluster, relayed_port: int, read: Any
) -> None:
    topic = await made(relayed, "lost")
    async with (
        relay(relayed_port, _kafka(relayed), loses=3) as lost,
        Producer(relayed.bootstrap, transport="kafka") as producer,
    ):
        offsets = [(await producer.send_and_wait(topic, b"%d" % number)).offset for number in range(6)]
    assert len(lost) == 3
    assert offsets == list(range(6))
    records = await read(relayed.bootstrap, TopicPartition(topic, 0))
    assert [record.value for record in records] == [b"%d" % number for number in range(6)]


async def test_without_numbers_a_lost_answer_is_unknown(relayed: LocalCluster, relayed_port: int) -> None:
    topic = await made(relayed, "unknown")
    async with (
        relay(relayed_port, _kafka(relayed), loses=1) as lost,
        Producer(relayed.bootstrap, transport="kafka", enable_idempotence=False) as producer,
    ):
        with pytest.raises(DeliveryUnknown) as caught:
            await producer.send_and_wait(topic, b"x")
        assert not caught.value.definite
        assert (await producer.send_and_wait(topic, b"y")).offset == 1
    assert len(lost) == 1


def _kafka(cluster: LocalCluster) -> str:
    return cluster.kafka_bootstrap
