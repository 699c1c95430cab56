"""A consumer by key at three brokers, while followers do not get some writes of the leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.clients.by_key.conftest import Handler, running
from tests.integration.http.conftest import listen
from tests.integration.replication.three_brokers import NODES, ThreeBrokers
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.http.server import HttpServer
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.broker.paxos.service import PaxosService
from tidelog.consumer import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.consumer.intervals import decode_processed
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import split_batches
from tidelog.model.cluster import HTTP
from tidelog.model.errors import TidelogError

T0 = TopicPartition("t", 0)
CONFIG = {"commit.protocol": "paxos", "commit.order": "key"}
STOP_S = 5.0
WAIT_S = 20.0


class Hole:
    """Loses writes to followers with this text in a value, while it is open."""

    def __init__(self, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = True
        take = PaxosService.take_frame

        def lossy(service: PaxosService, node_id: int, message: PartitionFrame, payload: memoryview) -> None:
            if not (self.is_open and text in bytes(payload)):
                take(service, node_id, message, payload)

        monkeypatch.setattr(PaxosService, "take_frame", lossy)


class Listening(ThreeBrokers):
    """Three brokers that take requests of clients."""

    def __init__(self) -> None:
        super().__init__({"offsets.topic.num.partitions": 1})
        self.servers: dict[int, HttpServer] = {}

    async def _start(self, node: int, one: Broker) -> None:  # type: ignore[override]  # it is called by the instance
        server = self.servers[node] = await listen(one.face)
        await one.start({HTTP: server.advertised})

    async def stop(self, *nodes: int) -> None:
        for node in nodes:
            await self.servers.pop(node).stop(STOP_S)
        await super().stop(*nodes)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{server.address[1]}" for server in self.servers.values()]


@asynccontextmanager
async def listening() -> AsyncIterator[Listening]:
    """Three brokers with the partition `t-0` in order by key, led by broker 1."""
    cluster = Listening()
    try:
        await cluster.start(*NODES)
        await cluster.brokers[1].admin.create_topic(NewTopic("t", assignments={0: NODES}, configs=CONFIG))
        yield cluster
    finally:
        await cluster.stop(*cluster.brokers)


def consumer(cluster: Listening, **options: Any) -> Consumer:
    given: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "order": "key",
        "fetch_max_wait_ms": 20_000,
    }
    return Consumer("t", bootstrap_servers=cluster.urls, **given | options)


async def send(cluster: Listening, value: int, key: bytes, text: bytes = b"") -> asyncio.Task[ProduceReceipt]:
    """Sends a record in a batch of its own, and a while later another one can be sent."""
    data = encode_batch([(0, key, b"%d" % value, [("text", text)])])
    partition = next(iter(cluster.brokers.values())).partition("t", 0)
    deadline_s = asyncio.get_running_loop().time() + WAIT_S
    batches = split_batches(data, batch_bytes_max=len(data))
    sent = asyncio.create_task(partition.produce(batches, acks=-1, deadline_s=deadline_s))
    await asyncio.sleep(0.05)
    return sent


async def test_records_of_other_keys_come_past_a_hole_and_none_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    hole = Hole(b"lost on its way", monkeypatch)
    async with listening() as cluster:
        handler = Handler()
        async with running(consumer(cluster), handler):
            await (await send(cluster, 0, b"a"))
            await handler.until_finished(1)
            stuck = await send(cluster, 1, b"a", b"lost on its way")
            await (await send(cluster, 2, b"b"))
            behind = await send(cluster, 3, b"a")
            await (await send(cluster, 4, b"c"))
            await handler.until_finished(3)
            assert handler.started == [0, 2, 4]
        again = Handler()
        async with running(consumer(cluster), again):
            await (await send(cluster, 5, b"d"))
            await again.until_finished(1)
            assert not stuck.done() and not behind.done()
            hole.is_open = False
            await again.until_finished(3)
            await (await send(cluster, 6, b"a"))
            await again.until_finished(4)
        assert again.started == [5, 1, 3, 6]
        async with Consumer(bootstrap_servers=cluster.urls, group_id="g") as reader:
            committed = await reader.committed(T0, metadata=True)
        assert isinstance(committed, OffsetAndMetadata)
        processed = decode_processed(*committed)
        assert (processed.low, processed.intervals) == (7, [])


async def test_another_leader_has_all_that_was_read_past_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    Hole(b"lost on its way", monkeypatch)
    async with listening() as cluster:
        handler = Handler()
        async with running(consumer(cluster, fetch_max_wait_ms=500), handler):
            await (await send(cluster, 0, b"a"))
            stuck = await send(cluster, 1, b"a", b"lost on its way")
            await (await send(cluster, 2, b"b"))
            await handler.until(lambda: handler.finished == [0, 2])
            await cluster.stop(1)
            await (await send(cluster, 3, b"b"))
            await handler.until(lambda: handler.finished == [0, 2, 3])
            with pytest.raises(TidelogError):
                await stuck
        assert handler.started == [0, 2, 3]
