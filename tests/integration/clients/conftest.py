"""A running broker for all client tests, fresh topics on it, and a proxy that loses answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, ConsumerRecord, TopicPartition
from tidelog.testing import LocalCluster

NewTopic = Callable[..., Awaitable[str]]


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Shared: leave it running, and use topics of your own."""
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def breakable() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def own_cluster(breakable: LocalCluster) -> LocalCluster:
    """To be killed, paused and restarted, and left in any state."""
    if breakable.broker().is_running:
        breakable.resume()
    else:
        breakable.restart()
    return breakable


@pytest.fixture
async def own_topic(own_cluster: LocalCluster, topic_names: Iterator[str]) -> str:
    """A topic of one partition on the cluster that may be broken."""
    name = next(topic_names)
    async with AdminClient(own_cluster.bootstrap) as admin:
        await admin.create_topic(name, partitions=1)
    return name


@pytest.fixture
async def admin(cluster: LocalCluster) -> AsyncIterator[AdminClient]:
    async with AdminClient(cluster.bootstrap) as admin:
        yield admin


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def new_topic(admin: AdminClient, topic_names: Iterator[str]) -> NewTopic:
    """Creates a topic and returns its name."""

    async def create(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = next(topic_names)
        await admin.create_topic(name, partitions=partitions, configs=configs)
        return name

    return create


@pytest.fixture
async def topic(new_topic: NewTopic) -> str:
    """A topic of one partition."""
    return await new_topic()


async def read_all(bootstrap: str, *partitions: TopicPartition) -> list[ConsumerRecord]:
    """Everything in these partitions, one after the other, in order."""
    records: list[ConsumerRecord] = []
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        for partition in partitions:
            end = (await consumer.end_offsets([partition]))[partition]
            consumer.assign([partition])
            while await consumer.position(partition) < end:
                for found in (await consumer.getmany(timeout_ms=5000)).values():
                    records += found
    return records


@pytest.fixture
def read() -> Callable[..., Awaitable[list[ConsumerRecord]]]:
    return read_all


class LosingProxy:
    """Between a client and the broker: passes everything on, but cuts the connection instead of passing the answer to
    a produce request while `answers_to_lose` is positive. Metadata that comes through names the proxy as the broker.
    """

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.removeprefix("http://").rpartition(":")
        self._host, self._port = host, int(port)
        self._server: asyncio.Server | None = None
        self._connections: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []
        self.answers_to_lose = 0
        self.answers_lost = 0
        self.produce_requests = 0

    @property
    def bootstrap(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> LosingProxy:
        while True:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            if len(str(self.port)) == len(str(self._port)):  # so that an answer keeps its length
                return self
            self._server.close()

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for _, upstream in self._connections:
            upstream.transport.abort()
        await asyncio.gather(*(task for task, _ in self._connections), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        except ConnectionError:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.append((task, upstream_writer))
        asks = asyncio.create_task(self._pass_requests(reader, upstream_writer))
        try:
            await self._pass_answers(upstream_reader, writer)
        except ConnectionError:
            pass
        finally:
            asks.cancel()
            await asyncio.gather(asks, return_exceptions=True)
            upstream_writer.transport.abort()
            writer.transport.abort()

    async def _pass_requests(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if data.startswith(b"POST /topics/"):
                self.produce_requests += 1
                self._is_produce = True
            elif data.startswith((b"GET ", b"POST ")):
                self._is_produce = False
            upstream.write(data)
            await upstream.drain()
        upstream.write_eof()

    async def _pass_answers(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await upstream.read(1 << 16):
            if self._is_produce and self.answers_to_lose:
                self.answers_to_lose -= 1
                self.answers_lost += 1
                return
            writer.write(data.replace(b'"port":%d' % self._port, b'"port":%d' % self.port))
            await writer.drain()

    _is_produce = False


@pytest.fixture
async def proxy(cluster: LocalCluster) -> AsyncIterator[LosingProxy]:
    async with LosingProxy(cluster.bootstrap) as proxy:
        yield proxy
