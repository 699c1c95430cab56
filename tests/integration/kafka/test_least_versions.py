"""Clients that people have, against a broker that offers each of them no more than the least that it works with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from tests.integration.kafka.admin_kit import at, beside
from tests.integration.kafka.conftest import KafkaSite
from tidelog.broker.kafka import api_versions, connection
from tidelog.broker.kafka.apis import APIS, Key

LEAST: Final[Mapping[Key, int]] = {
    Key.PRODUCE: 3,
    Key.FETCH: 4,
    Key.LIST_OFFSETS: 1,
    Key.METADATA: 1,
    Key.OFFSET_COMMIT: 2,
    Key.OFFSET_FETCH: 1,
    Key.FIND_COORDINATOR: 0,
    Key.JOIN_GROUP: 0,
    Key.HEARTBEAT: 0,
    Key.LEAVE_GROUP: 0,
    Key.SYNC_GROUP: 0,
    Key.API_VERSIONS: 0,
    Key.INIT_PRODUCER_ID: 0,
}
"""The newest version of each request type; there are no others. librdkafka and aiokafka need no more."""
LEAST_OF_KAFKA_PYTHON: Final = {
    **LEAST,
    Key.METADATA: 4,
    Key.OFFSET_FETCH: 2,
    Key.FIND_COORDINATOR: 1,
    Key.JOIN_GROUP: 2,
    Key.HEARTBEAT: 1,
    Key.LEAVE_GROUP: 1,
    Key.SYNC_GROUP: 1,
}
"""kafka-python takes a broker with less for one that is older than record batches."""
VALUES: Final = [b"%d" % number for number in range(20)]
WAIT_S: Final = 30.0


def narrow(monkeypatch: pytest.MonkeyPatch, newest: Mapping[Key, int]) -> None:
    """Has brokers offer these request types alone, up to these versions, and close connections over any other."""
    apis = {key: APIS[key]._replace(newest=version) for key, version in newest.items()}
    monkeypatch.setattr(api_versions, "APIS", apis)
    monkeypatch.setattr(connection, "APIS", apis)
    monkeypatch.setattr(api_versions, "table", api_versions.table.__wrapped__)


async def test_librdkafka(site: KafkaSite, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, LEAST)
    for compression in ("none", "gzip"):
        await beside(confluent_writes, at(site), compression)
    assert await beside(confluent_reads, at(site), 2 * len(VALUES)) == sorted(VALUES * 2)
    assert await beside(confluent_reads, at(site), 0) == [], "it goes on where it was"


def confluent_writes(servers: str, compression: str) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": compression, "linger.ms": 5}
    )
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(WAIT_S) == 0


def confluent_reads(servers: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: list[bytes] = []
    until_s = time.monotonic() + WAIT_S
    while (len(values) < count or not consumer.assignment()) and time.monotonic() < until_s:
        values += [message.value() or b"" for message in consumer.consume(count or 1, 0.2) if not message.error()]
    if count:
        consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(values)


async def test_aiokafka(site: KafkaSite, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, LEAST)
    async with AIOKafkaProducer(bootstrap_servers=at(site), enable_idempotence=True) as producer:
        await asyncio.gather(*[producer.send_and_wait("t", value) for value in VALUES])
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer("t", bootstrap_servers=at(site), **settings) as consumer, asyncio.timeout(WAIT_S):
        assert sorted([(await consumer.getone()).value for _ in VALUES]) == sorted(VALUES)
        await consumer.commit()
        committed = [await consumer.committed(partition) for partition in consumer.assignment()]
        assert sum(filter(None, committed)) == len(VALUES)


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
@pytest.mark.usefixtures("kafka_python_sockets")
async def test_kafka_python(site: KafkaSite, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, LEAST_OF_KAFKA_PYTHON)
    assert await beside(kafka_python_writes_and_reads, at(site)) == sorted(VALUES)


def kafka_python_writes_and_reads(servers: str) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for sent in [producer.send("t", value) for value in VALUES]:
        sent.get(WAIT_S)
    producer.close()
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer("t", bootstrap_servers=servers, consumer_timeout_ms=WAIT_S * 1000, **settings)
    values = sorted(record.value for _, record in zip(VALUES, consumer, strict=False))
    consumer.commit()
    assert sum(consumer.committed(partition) or 0 for partition in consumer.assignment()) == len(VALUES)
    consumer.close()
    return values
