"""`LosingProxy` stands between a client and a broker, and can lose the answers to records, whichever way those go: over
HTTP, or in frames (Kafka's protocol)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from tidelog.testing import LocalCluster

CHUNK_BYTES = 1 << 16
PRODUCE = b"\0\0"
"""The key of a Produce request, at its beginning."""


class LosingProxy:
    """Passes everything on, but cuts the connection instead of passing the answer to a produce request while
    `answers_to_lose` is positive. Metadata that comes through names the proxy as the broker.

    Only requests that go the way that `transport` names are counted, and only their answers are lost.
    """

    def __init__(self, cluster: LocalCluster, transport: str = "http") -> None:
        self.transport = transport
        self.answers_to_lose = 0
        self.answers_lost = 0
        self.produce_requests = 0
        self._http = _HttpRelay(cluster.bootstrap.removeprefix("http://"), self)
        self._relays: list[_Relay] = [self._http]
        if cluster.kafka_bootstrap:
            self._relays.append(_FrameRelay(cluster.kafka_bootstrap, self))
        self._open = AsyncExitStack()

    @property
    def bootstrap(self) -> str:
        return f"http://127.0.0.1:{self._http.port}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for relay in self._relays:
                await stack.enter_async_context(relay)
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._open.aclose()

    async def stop_frames(self) -> None:
        """Leaves nobody at the address to which frames are sent."""
        await self._relays[-1].__aexit__()

    def count(self, way: str) -> None:
        """Counts a produce request."""
        self.produce_requests += way == self.transport

    def loses(self, way: str) -> bool:
        """Returns True if the answer to a produce request is to be lost."""
        if way != self.transport or not self.answers_to_lose:
            return False
        self.answers_to_lose -= 1
        self.answers_lost += 1
        return True

    def renamed(self, answer: bytes) -> bytes:
        """Returns an answer over HTTP with this proxy's ports in place of the broker's."""
        for relay in self._relays:
            for form in (b'"port":%d', b'"kafka":"127.0.0.1:%d"'):
                answer = answer.replace(form % relay.upstream_port, form % relay.port)
        return answer


@dataclass
class _Link:
    """A connection of a client, and the one to the broker that goes with it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upstream_reader: asyncio.StreamReader
    upstream_writer: asyncio.StreamWriter
    is_produce: bool = False
    """True while the request under way over HTTP is to produce."""


class _Relay(ABC):
    """Listens in a broker's place, at a port with as many digits, so that an answer with it keeps its length."""

    def __init__(self, upstream: str, proxy: LosingProxy) -> None:
        self._host, _, port = upstream.rpartition(":")
        self.upstream_port = int(port)
        self.port = 0
        self._proxy = proxy
        # A task that waits for the broker, when its client has gone, is kept from the collector by nothing else.
        self._serving: list[tuple[asyncio.Task[None], list[asyncio.StreamWriter]]] = []
        """The tasks that serve connections, and their ends at the client and the broker."""

    async def __aenter__(self) -> Self:
        while True:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
            if len(str(self.port)) == len(str(self.upstream_port)):
                return self
            self._server.close()

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for _, ends in self._serving:
            _abort(ends)
        await asyncio.gather(*(task for task, _ in self._serving), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends = [writer]
        self._serving.append((task, ends))
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self.upstream_port)
            ends.append(upstream_writer)
            await self._pass_on(_Link(reader, writer, upstream_reader, upstream_writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            _abort(ends)

    @abstractmethod
    async def _pass_on(self, link: _Link) -> None:
        """Passes requests and answers on until one end closes, or an answer is to be lost."""


class _HttpRelay(_Relay):
    async def _pass_on(self, link: _Link) -> None:
        asks = asyncio.create_task(self._pass_requests(link))
        try:
            await self._pass_answers(link)
        finally:
            asks.cancel()
            await asyncio.gather(asks, return_exceptions=True)

    async def _pass_requests(self, link: _Link) -> None:
        while data := await link.reader.read(CHUNK_BYTES):
            if data.startswith(b"POST /topics/"):
                self._proxy.count("http")
                link.is_produce = True
            elif data.startswith((b"GET ", b"POST ")):
                link.is_produce = False
            link.upstream_writer.write(data)
            await link.upstream_writer.drain()
        link.upstream_writer.write_eof()

    async def _pass_answers(self, link: _Link) -> None:
        while data := await link.upstream_reader.read(CHUNK_BYTES):
            if link.is_produce and self._proxy.loses("http"):
                return
            link.writer.write(self._proxy.renamed(data))
            await link.writer.drain()


class _FrameRelay(_Relay):
    """A client of tidelog has one request under way on a connection."""

    async def _pass_on(self, link: _Link) -> None:
        while True:
            request = await _frame(link.reader)
            is_produce = request[4:6] == PRODUCE
            if is_produce:
                self._proxy.count("kafka")
            link.upstream_writer.write(request)
            answer = await _frame(link.upstream_reader)
            if is_produce and self._proxy.loses("kafka"):
                return
            link.writer.write(answer)
            await link.writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))


def _abort(ends: list[asyncio.StreamWriter]) -> None:
    for end in ends:
        end.transport.abort()
