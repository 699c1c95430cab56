"""The clients that people have, unmodified, against brokers as they are: what one writes all the others read."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer as TidelogConsumer
from tidelog.model.ids import TopicPartition as OwnPartition
from tidelog.testing import LocalCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated call when it is imported
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonPartition

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
PARTITIONS = 3
WAIT_S = 30.0


@pytest.fixture(
    scope="module", params=[1, pytest.param(3, marks=pytest.mark.slow)], ids=["one broker", "three brokers"]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(brokers=request.param, kafka=True) as made:
        yield made


async def make(cluster: LocalCluster, name: str, **configs: str) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        named = {setting.replace("_", "."): value for setting, value in configs.items()}
        await admin.create_topic(name, partitions=PARTITIONS, configs=named)


def deliver(cluster: LocalCluster, topic: str, count: int, **settings: object) -> None:
    """Has confluent-kafka deliver so many records; raises the first error."""
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap, "linger.ms": 5, **settings})
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for number in range(count):
        producer.produce(
            topic, b"v%d" % number, b"k%d" % (number % 7), headers=[("h", b"x"), ("n", None)], on_delivery=told
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed, failed[0]


def consume(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    """Returns the values of a topic as confluent-kafka reads them, which asks again where there is no leader yet."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka_bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(values) < count:
        messages = consumer.consume(count - len(values), max(0.0, deadline_s - time.monotonic()))
        assert messages, f"{len(values)} of {count} records came"
        for message in messages:
            error = message.error()
            assert error is None or error.code() == KafkaError.LEADER_NOT_AVAILABLE, error
            values += [] if error else [message.value() or b""]
    consumer.close()
    return values


@pytest.mark.usefixtures("kafka_python_sockets")
@pytest.mark.parametrize(("protocol", "order"), [("isr", ""), ("paxos", "total"), ("paxos", "key"), ("paxos", "none")])
async def test_what_one_client_writes_all_the_others_read(cluster: LocalCluster, protocol: str, order: str) -> None:
    topic = f"all-{protocol}-{order}"
    await make(cluster, topic, commit_protocol=protocol, **({"commit_order": order} if order else {}))
    await asyncio.to_thread(deliver, cluster, topic, 50, **{"enable.idempotence": True, "compression.type": "gzip"})
    await asyncio.to_thread(deliver, cluster, topic, 50, acks="1")
    bootstrap = cluster.kafka_bootstrap.split(",")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as aio:
        await asyncio.gather(*[aio.send_and_wait(topic, b"aio%d" % number) for number in range(20)])
    await asyncio.to_thread(deliver_by_kafka_python, bootstrap, topic)

    expected = sorted([b"v%d" % number for number in range(50)] * 2 + [b"aio%d" % n for n in range(20)] + [b"py"] * 5)
    assert sorted(await asyncio.to_thread(consume, cluster, topic, len(expected))) == expected
    assert sorted(await asyncio.to_thread(consume_by_kafka_python, bootstrap, topic, len(expected))) == expected
    assert sorted(await consume_by_aiokafka(bootstrap, topic, len(expected))) == expected
    assert sorted(await consume_over_http(cluster, topic, len(expected))) == expected


async def consume_over_http(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    async with TidelogConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([OwnPartition(topic, partition) for partition in range(PARTITIONS)])
        async with asyncio.timeout(WAIT_S):
            return [(await consumer.getone()).value or b"" for _ in range(count)]


def deliver_by_kafka_python(bootstrap: list[str], topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for sent in [producer.send(topic, b"py") for _ in range(5)]:
        sent.get(WAIT_S)
    producer.close()


def consume_by_kafka_python(bootstrap: list[str], topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=int(WAIT_S * 1000))
    consumer.assign([PythonPartition(topic, partition) for partition in range(PARTITIONS)])
    consumer.seek_to_beginning()
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


async def consume_by_aiokafka(bootstrap: list[str], topic: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([AioPartition(topic, partition) for partition in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(WAIT_S):
            return [(await consumer.getone()).value for _ in range(count)]


async def test_a_client_finds_the_brokers_and_what_there_is(cluster: LocalCluster) -> None:
    await make(cluster, "shown")
    found = await asyncio.to_thread(
        lambda: ConfluentAdmin({"bootstrap.servers": cluster.kafka_bootstrap}).list_topics(timeout=WAIT_S)
    )
    assert found.cluster_id == cluster.cluster_id
    addresses = {f"{broker.host}:{broker.port}" for broker in found.brokers.values()}
    assert addresses == set(cluster.kafka_bootstrap.split(","))
    assert all(one.leader in cluster.node_ids for one in found.topics["shown"].partitions.values())
    async with AdminClient(cluster.bootstrap) as admin:
        shown = await admin.describe_broker(cluster.node_ids[0])
    assert b'tidelog_kafka_requests_total{call="Metadata"' in await asyncio.to_thread(metrics_of, cluster)
    assert shown.kafka_address == cluster.broker(cluster.node_ids[0]).kafka


def metrics_of(cluster: LocalCluster) -> bytes:
    with urllib.request.urlopen(f"{cluster.broker().url}/metrics") as page:
        return bytes(page.read())


async def test_a_transactional_producer_is_told_at_once(cluster: LocalCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap, "transactional.id": "mine"})
    with pytest.raises(KafkaException) as refused:
        await asyncio.to_thread(producer.init_transactions, WAIT_S)
    assert refused.value.args[0].code() in (
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
async def test_kcat(cluster: LocalCluster, tmp_path: Path) -> None:
    await make(cluster, "cat")

    def kcat(*words: str, said: bytes = b"") -> bytes:
        command = ["kcat", "-b", cluster.kafka_bootstrap, *words]
        return subprocess.run(command, input=said, capture_output=True, check=True, timeout=WAIT_S).stdout

    await asyncio.to_thread(kcat, "-P", "-t", "cat", "-K", ":", "-z", "gzip", said=b"a:one\nb:two\n")
    read = await asyncio.to_thread(kcat, "-C", "-t", "cat", "-e", "-q", "-f", "%k=%s\n")
    assert sorted(read.splitlines()) == [b"a=one", b"b=two"]
