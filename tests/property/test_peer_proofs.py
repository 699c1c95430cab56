"""Whatever somebody sends who does not know the secret: no broker listens to them, and none asks them anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.unit.transport.peer.brokers import BOUNDS, PORT, Echo, Hold, World, in_world
from tests.unit.transport.peer.raw import CODEC, RawPeer
from tidelog.model.errors import TidelogError
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.peer import ClusterSecret, Hello
from tidelog.transport.peer.frames import Kind, pack, unpack
from tidelog.transport.peer.proof import Challenge, Role

SECRET = ClusterSecret(b"what only the brokers of this cluster know")
GUESS = ClusterSecret(b"password")
MINE = CODEC.encode(Challenge(1, b"n" * 32))
HELLO = CODEC.encode_hello(Hello(1, "a", "c", 2**40))
THEIRS = CODEC.encode_hello(Hello(2, "b", "c", 7))
MESSAGES = tuple(CODEC.encode(message) for message in (Echo("listen to me"), Hold("x")))


class Heard(NamedTuple):
    kind: Kind
    header: bytes
    payload: bytes


Move = Callable[[list[Heard]], list[Buffer]]
"""A stranger says this after what it has heard on its connection."""


def plain(kind: Kind, header: bytes, payload: bytes = b"") -> Move:
    return lambda heard: pack(kind, header, [payload], correlation=1, timeout_ms=1000)


def guessed(role: Role, header: bytes) -> Move:
    """A greeting in good order, with a proof by another secret."""

    def made(heard: list[Heard]) -> list[Buffer]:
        said = [MINE, *(one.header for one in heard if one.kind in (Kind.CHALLENGE, Kind.HELLO))]
        return pack(Kind.HELLO, header, [GUESS.proof(role, [*said, header])])

    return made


def reflected(heard: list[Heard]) -> list[Buffer]:
    """The last frame that it heard."""
    return pack(heard[-1].kind, heard[-1].header, [heard[-1].payload]) if heard else []


def overheard() -> list[Move]:
    """How brokers that know the secret have greeted each other on another connection."""
    said = [MINE, CODEC.encode(Challenge(2, b"m" * 32))]
    moves = [plain(Kind.CHALLENGE, challenge) for challenge in said]
    for role, header in ((Role.CALLER, HELLO), (Role.ANSWERER, THEIRS)):
        said.append(header)
        moves.append(plain(Kind.HELLO, header, SECRET.proof(role, said)))
    return moves


MOVES = st.one_of(
    st.sampled_from(overheard()),
    st.just(reflected),
    st.builds(guessed, st.sampled_from(list(Role)), st.sampled_from([HELLO, THEIRS])),
    st.builds(plain, st.just(Kind.HELLO), st.sampled_from([HELLO, THEIRS]), st.binary(max_size=40)),
    st.builds(plain, st.sampled_from(list(Kind)), st.sampled_from([b"", *MESSAGES, HELLO, MINE])),
    st.builds(lambda content: lambda heard: [content], st.binary(max_size=60)),
)
CONVERSATIONS = st.builds(
    lambda begins_well, moves: [plain(Kind.CHALLENGE, MINE)] * begins_well + moves,
    st.booleans(),
    st.lists(MOVES, min_size=1, max_size=6),
)


@settings(max_examples=200)
@given(moves=CONVERSATIONS)
def test_no_broker_listens_to_a_caller_without_the_secret(moves: list[Move]) -> None:
    async def scenario(world: World) -> None:
        broker = await world.start(2, secret=SECRET)
        raw = await RawPeer.connect(world, broker, wait_s=0.01)
        for move in moves:
            heard = zip(raw.frames, raw.payloads, strict=True)
            raw.connection.send(move([Heard(*frame, payload) for frame, payload in heard]))
            await asyncio.sleep(0.01)
            assert all(line.connection.frame_bytes_max == BOUNDS.hello_bytes_max for line in broker.node._common.lines)
        assert broker.handler.handled == [] and broker.handler.notes == []
        assert broker.node.statistics.accepts == 0
        assert not broker.node._common.incarnations.is_stale(Hello(1, "another life", "c", 5))
        assert {kind for kind, _ in raw.frames} <= {Kind.CHALLENGE, Kind.REFUSAL}

    with capture_logs():
        in_world(scenario)


class Listener:
    """A stranger at an address that a broker dials."""

    def __init__(self, moves: list[Move], connection: FrameConnection) -> None:
        self.heard: list[Heard] = []
        self._moves = moves
        self._connection = connection

    def frame_received(self, frame: memoryview) -> None:
        parts = unpack(frame)
        self.heard.append(Heard(parts.kind, bytes(parts.header), bytes(parts.payload)))
        moves, self._moves = self._moves[:2], self._moves[2:]
        for move in moves:
            self._connection.send(move(self.heard))

    def connection_lost(self, error: Exception | None) -> None:
        pass


@settings(max_examples=200)
@given(moves=CONVERSATIONS)
def test_no_broker_asks_anything_of_whoever_answers_without_the_secret(moves: list[Move]) -> None:
    async def scenario(world: World) -> None:
        broker = await world.start(1, secret=SECRET)
        made: list[Listener] = []

        def accept(connection: FrameConnection) -> Listener:
            made.append(Listener(moves, connection))
            return made[-1]

        await world.network.host("10.0.0.2").listen("0.0.0.0", PORT, accept)
        with contextlib.suppress(TidelogError, TimeoutError):
            await broker.node.request_at("10.0.0.2", PORT, Echo("a secret"), deadline_s=5)
            raise AssertionError("a stranger was asked, and answered")
        await asyncio.sleep(0.1)
        assert {one.kind for one in made[0].heard} <= {Kind.CHALLENGE, Kind.HELLO, Kind.REFUSAL}
        assert broker.node.statistics.connects == broker.node.statistics.requests == 0

    with capture_logs():
        in_world(scenario)
