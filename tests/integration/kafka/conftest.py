"""A real broker with its listener for Kafka's clients, in this process, and a client that speaks by `kio`'s codecs."""

from __future__ import annotations

import asyncio
import gc
import io
import random
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Self

import pytest
import structlog
from kio.serial import entity_reader, entity_writer

from tests.integration.http.conftest import PATIENT, ROOT, listen
from tidelog.adapters.client_network import ClientNetwork
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.assembly import KAFKA_WORDS
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.http.server import HttpServer
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.server import KafkaServer, kafka_listener
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.config.schema import BrokerConfig
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import HTTP, KAFKA
from tidelog.model.ids import PartitionId
from tidelog.model.ports import LogLevel
from tidelog.model.records import Record
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.sim.kit.network import SimNetwork

STOP_S = 5.0
TIMEOUT_S = 10.0
NOW_MS = SystemClock().wall_ms()


def batch(*values: bytes, producer_id: int = -1, epoch: int = 0, sequence: int = 0, at_ms: int = NOW_MS) -> bytes:
    """A record batch as a producer makes it."""
    records = [Record(at_ms, None, value) for value in values]
    if producer_id < 0:
        return bytes(encode_batch(records))
    return bytes(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def values_of(data: bytes) -> list[bytes | None]:
    return [record.value for found in iter_batches(data) for record in decode_batch(found)]


def message(key: Key, version: int, kind: str) -> Any:
    """The module of `kio` that has a message."""
    return import_module(f"kio.schema.{key.name.lower()}.v{version}.{kind}")


def made(cls: Any, tree: Mapping[str, Any]) -> Any:
    """An object of `kio`'s out of plain values, of which those that this version does not have are left out."""
    given: dict[str, Any] = {}
    for field in fields(cls):
        if field.name not in tree:
            continue
        value = tree[field.name]
        nested = _nested(field.type)
        if nested is not None and isinstance(value, list):
            value = tuple(made(nested, entry) for entry in value)
        elif field.metadata.get("kafka_type", "").startswith("timedelta"):
            value = timedelta(milliseconds=value)
        given[field.name] = value
    return cls(**given)


def _nested(kind: Any) -> Any:
    if hasattr(kind, "__dataclass_fields__"):
        return kind
    return next(filter(None, map(_nested, getattr(kind, "__args__", ()))), None)


def request_frame(key: Key, version: int, tree: Mapping[str, Any], correlation_id: int = 7) -> bytes:
    """A whole request, as `kio` writes it."""
    module = message(key, version, "request")
    cls = getattr(module, f"{key.label}Request")
    header = cls.__header_schema__
    out = io.BytesIO()
    entity_writer(header)(
        out,
        made(
            header,
            {
                "request_api_key": key,
                "request_api_version": version,
                "correlation_id": correlation_id,
                "client_id": "tests",
            },
        ),
    )
    entity_writer(cls)(out, made(cls, tree))
    return out.getvalue()


def read_answer(key: Key, version: int, frame: bytes) -> Any:
    """The body of an answer, as `kio` reads it; all of the frame has to be it."""
    cls = getattr(message(key, version, "response"), f"{key.label}Response")
    position = 4 + (version >= APIS[key].flexible_from and key is not Key.API_VERSIONS)
    body, size = entity_reader(cls)(frame, position)
    assert position + size == len(frame), "something is left behind the answer"
    return body


def codes(answer: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(answer, tuple):
        for entry in answer:
            yield from codes(entry)
    elif is_dataclass(answer):
        for each in fields(answer):
            value = getattr(answer, each.name)
            if each.name == "error_code":
                yield int(value)
            else:
                yield from codes(value)


class Client:
    """Speaks on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: tuple[str, int], **options: Any) -> Self:
        return cls(*await asyncio.open_connection(*address, **options))

    def send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4) + frame)

    async def receive(self) -> bytes:
        """The next frame; empty at the end."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                size = int.from_bytes(await self.reader.readexactly(4))
                return await self.reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""

    async def ask(self, key: Key, version: int, **tree: Any) -> Any:
        self.send(request_frame(key, version, tree))
        frame = await self.receive()
        assert frame, "the connection was closed"
        assert int.from_bytes(frame[:4]) == 7
        return read_answer(key, version, frame)

    async def produce(self, *entries: tuple[Any, int, bytes], version: int = 9, acks: int = -1) -> Any:
        """The answer's partitions, in order; entries name topic (by its id from version 13 on), partition and data."""
        topics = [
            {"name": topic, "topic_id": topic, "partition_data": [{"index": partition, "records": records}]}
            for topic, partition, records in entries
        ]
        tree = {"transactional_id": None, "acks": acks, "timeout": 5_000, "topic_data": topics}
        answer = await self.ask(Key.PRODUCE, version, **tree)
        return [partition for topic in answer.responses for partition in topic.partition_responses]

    async def fetch(self, *entries: tuple[Any, int, int], version: int = 12, **terms: Any) -> Any:
        """The answer's partitions, in order; entries name topic, partition and offset."""
        answer = await self.fetch_whole(*entries, version=version, **terms)
        return [partition for topic in answer.responses for partition in topic.partitions]

    async def fetch_whole(self, *entries: tuple[Any, int, int], version: int = 12, **terms: Any) -> Any:
        return await self.ask(Key.FETCH, version, **fetch_tree(*entries, **terms))

    async def close(self) -> None:
        self.writer.close()


def fetch_tree(*entries: tuple[Any, int, int], **terms: Any) -> dict[str, Any]:
    bytes_max = terms.pop("partition_bytes", 1 << 20)
    epoch = terms.pop("epoch", -1)
    topics = [
        {
            "topic": topic,
            "topic_id": topic,
            "partitions": [
                {
                    "partition": partition,
                    "fetch_offset": offset,
                    "partition_max_bytes": bytes_max,
                    "current_leader_epoch": epoch,
                    "log_start_offset": -1,
                }
            ],
        }
        for topic, partition, offset in entries
    ]
    tree = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "isolation_level": 0,
        "topics": topics,
    }
    return {**tree, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "", **terms}


class KafkaSite:
    """A broker of its own with both listeners, and topic `t`."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.config = BrokerConfig.model_validate(
            {**PATIENT, "kafka.listener": "127.0.0.1:0", "http.listener": "127.0.0.1:0", **settings}
        )
        self.clock, self.entropy = SystemClock(), SystemEntropy()
        network = SimNetwork(random.Random(1)).host("127.0.0.1")
        runner = SimRunner(random.Random(0), mean_s=0.00001)
        self.broker = Broker(self.config, SimDisk(), self.clock, self.entropy, runner, network)
        self.http: HttpServer
        self.log_level: LogLevel
        self.server: KafkaServer
        self.clients: list[Client] = []

    async def start(self, make_network: Callable[[], ClientNetwork] | None = None) -> None:
        self.http = await listen(self.broker.face)
        self.log_level, brake = self.http.context.log_level, self.http.context.admission.shedding.brake
        listener = kafka_listener(self.config)
        assert listener is not None
        self.server = KafkaServer(self.broker.face, listener, "localhost", brake, self.log_level)
        network = make_network() if make_network else ClientNetwork(KAFKA_WORDS, lambda: "127.0.0.1:8082")
        await self.server.open(network)
        await self.broker.start({HTTP: self.http.advertised, KAFKA: self.server.advertised})
        await self.server.serve()

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()
        await self.server.stop(STOP_S)
        await self.http.stop(STOP_S)
        await self.broker.stop()

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> None:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        await self.broker.admin.by(ROOT).create_topic(NewTopic(name, partitions, configs=overrides))

    async def client(self, **options: Any) -> Client:
        made = await Client.open(self.server.address, **options)
        self.clients.append(made)
        return made

    def led(self, topic: str = "t", partition: int = 0) -> LedPartition:
        return self.broker.partitions[PartitionId(self.broker.topic(topic).topic_id, partition)]


@asynccontextmanager
async def started(settings: Mapping[str, object] | None = None, partitions: int = 2) -> AsyncIterator[KafkaSite]:
    site = KafkaSite(settings or {})
    await site.start()
    try:
        await site.topic("t", partitions)
        yield site
    finally:
        await site.stop()


@pytest.fixture
async def site() -> AsyncIterator[KafkaSite]:
    async with started() as made:
        yield made


@pytest.fixture
def kafka_python_sockets() -> Iterator[None]:
    """Allows sockets that kafka-python leaves to the garbage collector: those of connections that it was opening when
    it was closed. They are collected here, so that no other test is blamed for them."""
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)  # as long as the test lasts
    yield
    gc.collect()


@pytest.fixture
def log_as_before() -> Iterator[None]:
    """Puts the level of this process's log back at the end."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
