"""Brokers that speak different feature levels: what they say to each other, and when they do not talk."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.transport.peer.brokers import PORT, Echo, World, in_world
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.levels import Additions, LevelRange
from tidelog.model.ports import FrameConnection
from tidelog.transport.peer import PeerRefused
from tidelog.transport.peer.frames import Kind, MessageCodec, pack, unpack
from tidelog.transport.peer.hello import Hello, is_left_behind, refusal

FIRST, BOTH = LevelRange(1, 1), LevelRange(1, 2)


class Letter(msgspec.Struct, frozen=True, tag=True):
    text: str
    seal: str = ""


class Telegram(msgspec.Struct, frozen=True, tag=True):
    words: int


CODEC = MessageCodec([Letter, Telegram], Additions({Telegram: 2}, {Letter: {"seal": 2}}, {}))


@pytest.mark.parametrize(
    ("mine", "theirs", "level"),
    [((1, 2), (1, 1), 1), ((1, 2), (2, 3), 2), ((2, 4), (1, 3), 3), ((1, 1), (2, 3), None), ((3, 4), (1, 2), None)],
)
def test_the_highest_common_level(mine: tuple[int, int], theirs: tuple[int, int], level: int | None) -> None:
    assert LevelRange(*mine).common(LevelRange(*theirs)) == LevelRange(*theirs).common(LevelRange(*mine)) == level


def said(node: int, levels: tuple[int, int], cluster_level: int = 0) -> Hello:
    return Hello(node, f"life of {node}", "c", levels=LevelRange(*levels), cluster_level=cluster_level)


@pytest.mark.parametrize(
    ("newer", "older", "words"),
    [
        (
            (1, 2, 2),
            (1, 1, 0),
            "node 2 speaks feature level 1, and the cluster is at level 2; start node 2 with",
        ),
        (
            (1, 2, 2),
            (1, 1, 1),
            "node 2 speaks feature level 1, and the cluster is at level 2; start node 2 with",
        ),
        ((2, 3, 0), (1, 2, 1), "node 1 speaks feature levels 2 to 3, and the cluster is at level 1; start node 1 with"),
        ((3, 4, 0), (1, 2, 0), "node 2 speaks feature levels 1 to 2, and node 1 feature levels 3 to 4: they have none"),
    ],
)
def test_who_does_not_speak_the_level_is_refused(
    newer: tuple[int, int, int], older: tuple[int, int, int], words: str
) -> None:
    one, two = said(1, newer[:2], newer[2]), said(2, older[:2], older[2])
    for why in (refusal(one, two), refusal(two, one)):
        assert why is not None and why.startswith(words)


@pytest.mark.parametrize("levels", [(1, 1), (1, 2), (1, 3)])
def test_who_speaks_the_level_is_not(levels: tuple[int, int]) -> None:
    assert refusal(said(1, (1, 2), 1), said(2, levels)) is None


def test_an_encoder_leaves_out_what_a_level_lacks_or_refuses() -> None:
    letter = Letter("hello", "red")
    assert msgspec.msgpack.decode(CODEC.encode(letter, 1)) == {"type": "Letter", "text": "hello"}
    assert CODEC.message(memoryview(CODEC.encode(letter, 1))) == Letter("hello")
    assert CODEC.message(memoryview(CODEC.encode(letter, 2))) == letter
    assert CODEC.message(memoryview(CODEC.encode(Telegram(3), 2))) == Telegram(3)
    with pytest.raises(UnsupportedLevel, match="Telegram needs feature level 2"):
        CODEC.encode(Telegram(3), 1)


def test_the_hello_of_a_broker_of_the_first_level_is_as_before_levels() -> None:
    assert not {"levels", "cluster_level"} & msgspec.msgpack.decode(CODEC.encode_hello(said(1, (1, 1), 1))).keys()


class DeafPeer:
    """A broker that greets, and answers nothing."""

    def __init__(self, connection: FrameConnection, hello: Hello) -> None:
        self.kinds: list[Kind] = []
        connection.send(pack(Kind.HELLO, CODEC.encode_hello(hello)))

    def frame_received(self, frame: memoryview) -> None:
        self.kinds.append(unpack(frame).kind)

    def connection_lost(self, error: Exception | None) -> None:
        pass


@pytest.mark.parametrize("levels", [(1, 1), (1, 2)])
def test_a_broker_that_knows_no_pings_is_sent_none(levels: tuple[int, int]) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        deaf: list[DeafPeer] = []

        def accept(connection: FrameConnection) -> DeafPeer:
            deaf.append(DeafPeer(connection, said(2, levels)))
            return deaf[-1]

        await world.network.host("10.0.0.2").listen("0.0.0.0", PORT, accept)
        one.node.know(2, "10.0.0.2", PORT)
        with pytest.raises(TimeoutError):
            await one.node.request(2, Echo("never"), deadline_s=5)
        assert (Kind.PING in [kind for peer in deaf for kind in peer.kinds]) == (levels == (1, 2))
        assert one.node.connected == [2]

    in_world(scenario)


def test_a_broker_that_learns_of_a_level_it_does_not_speak_is_cut_off_with_a_word() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, cluster_level=1), await world.start(2, levels=FIRST, cluster_level=1)
        one.know(two)
        await one.echo(two)
        one.hello = msgspec.structs.replace(one.hello, cluster_level=2)
        with pytest.raises(PeerRefused, match="node 2 speaks feature level 1, and the cluster is at level 2"):
            await one.node.request(2, Echo(""), deadline_s=1)
        await asyncio.sleep(5)
        with pytest.raises(PeerRefused, match="start node 2 with a version of tidelog that speaks level 2"):
            await one.node.request(2, Echo(""), deadline_s=1)

    in_world(scenario)


@pytest.mark.parametrize(("cluster_id", "cluster_level", "is_so"), [("c", 2, True), ("c", 1, False), ("d", 2, False)])
def test_a_broker_notices_that_it_was_left_behind(cluster_id: str, cluster_level: int, *, is_so: bool) -> None:
    theirs = msgspec.structs.replace(said(2, (1, 2), cluster_level), cluster_id=cluster_id)
    assert is_left_behind(said(1, (1, 1)), theirs) == is_so
    assert not is_left_behind(said(1, (1, 2)), theirs)
