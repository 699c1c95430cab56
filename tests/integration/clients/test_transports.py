"""Records go over HTTP and by Kafka's protocol alike: the same receipts, the same errors, each record once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.integration.clients.losing_proxy import LosingProxy
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.errors import InvalidRequest, OffsetOutOfRange, TooLarge
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process

WAYS = ("http", "kafka", "auto")


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
    doors: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await made(doors, "nowhere")
    async with LosingProxy(doors) as proxy:
        await proxy.stop_frames()
        with caplog.at_level(logging.WARNING, "tidelog.transport.frames"):
            async with Producer(proxy.bootstrap) as producer:
                assert [(await producer.send_and_wait(topic, b"x")).offset for _ in range(3)] == [0, 1, 2]
        assert ["records go by HTTP" in record.message for record in caplog.records] == [True]
        caplog.clear()
        async with Producer(proxy.bootstrap, transport="kafka", delivery_timeout_ms=500) as producer:
            with pytest.raises(Exception, match=r"transport is kafka: .*[Cc]onnect") as caught:
                await producer.send_and_wait(topic, b"x")
        assert ["no records are sent" in record.message for record in caplog.records] == [True]
        assert caught.value.definite  # type: ignore[attr-defined]  # any of several errors
