"""Offsets that were given up, as clients see them that know nothing of it: none of them passes the place by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition

from tests.integration.kafka.conftest import KafkaSite, batch
from tidelog.model.losses import AcceptedLoss, LostRanges

ENOUGH_S = 3.0


async def lose(site: KafkaSite) -> None:
    """Has four records, of which the second and the third are lost."""
    client = await site.client()
    for value in (b"a", b"b", b"c", b"d"):
        await client.produce(("t", 0, batch(value)))
    site.led().log.give_up(LostRanges([AcceptedLoss(1, 3, 0, "tester", 1)]))


def read_by_confluent(settings: dict[str, Any], offset: int) -> list[str]:
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, offset)])
    found: list[str] = []
    for _ in range(int(ENOUGH_S / 0.1)):
        message = consumer.poll(0.1)
        if message is not None:
            error = message.error()
            found.append((message.value() or b"").decode() if error is None else error.name())
            if error is not None or found[-1] == "d":
                break
    consumer.close()
    return found


async def test_librdkafka_tells_its_program_and_goes_on_behind_the_loss(site: KafkaSite) -> None:
    await lose(site)
    host, port = site.server.address
    settings = {"bootstrap.servers": f"{host}:{port}", "log_level": 0}
    assert await asyncio.to_thread(read_by_confluent, settings, 0) == ["a", "INVALID_RECORD"]
    assert await asyncio.to_thread(read_by_confluent, settings, 3) == ["d"]


async def test_aiokafka_stops_at_the_loss_and_goes_on_behind_it(site: KafkaSite) -> None:
    await lose(site)
    host, port = site.server.address
    async with AIOKafkaConsumer(bootstrap_servers=f"{host}:{port}", auto_offset_reset="earliest") as consumer:
        partition = AioPartition("t", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        async with asyncio.timeout(ENOUGH_S):
            assert (await consumer.getone()).value == b"a"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await consumer.getone()
        consumer.seek(partition, 3)
        async with asyncio.timeout(ENOUGH_S):
            assert (await consumer.getone()).value == b"d"
