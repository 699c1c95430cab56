"""A world of brokers for tests: a `PeerNode` with a handler that records, on each machine of a simulated network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from tidelog.model.errors import OffsetOutOfRange
from tidelog.model.levels import SPOKEN_LEVELS, UNKNOWN_LEVEL, LevelRange
from tidelog.sim.kit.environment import SimClock, SimEntropy
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.network import SimHost, SimNetwork
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer, ClusterSecret, Hello, PeerBounds, PeerNode

T = TypeVar("T")
Messages = tuple[type[msgspec.Struct], ...]

PORT = 9192
BOUNDS = PeerBounds()


class Echo(msgspec.Struct, tag=True):
    """Answered with itself and its payload."""

    text: str


class Hold(msgspec.Struct, tag=True):
    """Answered when the handler is told to."""

    name: str


class Fail(msgspec.Struct, tag=True):
    """Answered with an error, or with a bug."""

    is_bug: bool = False


class Fetch(msgspec.Struct, tag=True):
    """Answered with so many bytes and no message."""

    size: int


MESSAGES = (Echo, Hold, Fail, Fetch)


@dataclass
class Recorder:
    """A `PeerHandler`."""

    handled: list[tuple[Hello, msgspec.Struct]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    held: dict[str, asyncio.Event] = field(default_factory=dict)

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        self.handled.append((caller, message))
        match message:
            case Echo():
                return Answer(message, (payload,))
            case Hold(name):
                try:
                    await self.held.setdefault(name, asyncio.Event()).wait()
                except asyncio.CancelledError:
                    self.cancelled.append(name)
                    raise
                return Answer(message)
            case Fetch(size):
                return Answer(None, (bytes(size),))
            case Fail(is_bug=True):
                raise ZeroDivisionError
            case _:
                raise OffsetOutOfRange("offsets 3 to 9", 3, 9)

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        assert isinstance(message, Echo)
        self.notes.append(message.text)

    @property
    def names(self) -> list[str]:
        """Of the requests to be held, in order of arrival."""
        return [message.name for _, message in self.handled if isinstance(message, Hold)]


class Broker:
    """One life of a broker."""

    def __init__(
        self,
        host: SimHost,
        hello: Hello,
        bounds: PeerBounds,
        messages: Messages,
        seed: object,
        secret: ClusterSecret | None,
    ) -> None:
        self.host = host
        self.hello = hello
        """May be changed at any time."""
        self.handler = Recorder()
        self.downs: list[tuple[int, float]] = []
        """Who was called down, and when."""
        loop = asyncio.get_running_loop()
        entropy = SimEntropy(stream(seed, f"entropy {hello.incarnation}"))
        parts = (messages, self.handler, SimClock(loop), entropy)
        self.node = PeerNode(host, lambda: self.hello, *parts, bounds=bounds, secret=secret)
        self.node.on_peer_down.append(lambda node_id: self.downs.append((node_id, loop.time())))

    @property
    def address(self) -> tuple[str, int]:
        return (self.host.address, PORT)

    def know(self, *others: Broker) -> None:
        for other in others:
            self.node.know(other.hello.node_id, other.host.address, PORT)

    async def echo(self, other: Broker, text: str = "hello", *, deadline_s: float = 1.0) -> None:
        """A request that must be answered."""
        answer = await self.node.request(
            other.hello.node_id, Echo(text), [b"<", text.encode(), b">"], deadline_s=deadline_s
        )
        assert answer.message == Echo(text)
        assert bytes(answer.body) == f"<{text}>".encode()


class World:
    """Brokers 1, 2, 3... on 10.0.0.1, 10.0.0.2, 10.0.0.3..."""

    def __init__(self, seed: object = 0) -> None:
        self.network = SimNetwork(stream(seed, "network"))
        self._seed = seed
        self._brokers: list[Broker] = []

    async def start(
        self,
        node_id: int,
        *,
        cluster_id: str = "c",
        broker_epoch: int = -1,
        incarnation: str = "",
        address: str = "",
        bounds: PeerBounds = BOUNDS,
        messages: Messages = MESSAGES,
        levels: LevelRange = SPOKEN_LEVELS,
        cluster_level: int = UNKNOWN_LEVEL,
        secret: ClusterSecret | None = None,
    ) -> Broker:
        host = self.network.host(address or f"10.0.0.{node_id}")
        life = incarnation or f"life {len(self._brokers)}"
        hello = Hello(node_id, life, cluster_id, broker_epoch, levels=levels, cluster_level=cluster_level)
        broker = Broker(host, hello, bounds, messages, self._seed, secret)
        self._brokers.append(broker)
        assert await broker.node.listen("0.0.0.0", PORT) == (host.address, PORT)
        return broker

    async def start_pair(self) -> tuple[Broker, Broker]:
        """Brokers 1 and 2, connected both ways."""
        one, two = await self.start(1), await self.start(2)
        one.know(two)
        two.know(one)
        await one.echo(two)
        await two.echo(one)
        return one, two

    async def close(self) -> None:
        for broker in self._brokers:
            with contextlib.nullcontext() if broker.host.is_alive else contextlib.suppress(TimeoutError):
                await broker.node.close()  # nobody tells a dead machine that its connections are gone


def in_world(scenario: Callable[[World], Coroutine[Any, Any, T]], seed: object = 0) -> T:
    """Runs a scenario in virtual time; no task may be left, and no callback may fail."""

    async def main() -> T:
        world = World(seed)
        try:
            return await scenario(world)
        finally:
            await world.close()

    return run(main, seed)


def now_s() -> float:
    return asyncio.get_running_loop().time()
