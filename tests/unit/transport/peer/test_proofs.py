"""Brokers that have a secret talk to nobody who does not know it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from tests.unit.transport.peer.brokers import PORT, Broker, Echo, World, in_world, now_s
from tests.unit.transport.peer.raw import CODEC, RawPeer, hello_frame
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.peer import ClusterSecret, Hello, PeerBounds, PeerRefused
from tidelog.transport.peer.frames import Kind, pack, unpack
from tidelog.transport.peer.proof import Challenge, Role

SECRET = ClusterSecret(b"what only the brokers of this cluster know")
OTHER = ClusterSecret(b"what only the brokers of that cluster know")
ME = Hello(1, "a", "c", 2**40)
NOTE = pack(Kind.NOTIFY, CODEC.encode(Echo("listen to me")))
CHALLENGE = CODEC.encode(Challenge(1, b"n" * 32))


def proved_hello(secret: ClusterSecret, said: Sequence[bytes], hello: Hello, role: Role = Role.CALLER) -> list[Buffer]:
    header = CODEC.encode_hello(hello)
    return pack(Kind.HELLO, header, [secret.proof(role, [*said, header])])


async def challenged(world: World, broker: Broker) -> tuple[RawPeer, list[bytes]]:
    """Returns somebody whose challenge was answered with another, and what was said."""
    raw = await RawPeer.connect(world, broker, pack(Kind.CHALLENGE, CHALLENGE))
    ((kind, theirs),) = raw.frames
    assert kind is Kind.CHALLENGE
    return raw, [CHALLENGE, theirs]


async def show(raw: RawPeer, *frames: Sequence[Buffer]) -> None:
    for frame in frames:
        raw.connection.send(frame)
    await asyncio.sleep(0.1)


def assert_untouched(broker: Broker) -> None:
    """The broker has heard nobody: no message, no life of a node, no greeting."""
    assert broker.handler.handled == [] and broker.handler.notes == []
    assert broker.node.statistics.accepts == 0
    assert not broker.node._common.incarnations.is_stale(Hello(ME.node_id, "another life", "c", 5))


class Listener:
    """A stranger at 10.0.0.2 answers the frames of one connection with others, or with the same."""

    def __init__(self, *answers: list[Buffer], is_mirror: bool = False) -> None:
        self.came: list[Kind] = []
        self.refusal = ""
        self._answers = list(answers)
        self._is_mirror = is_mirror

    async def listen(self, world: World) -> None:
        await world.network.host("10.0.0.2").listen("0.0.0.0", PORT, self._accept)

    def _accept(self, connection: FrameConnection) -> Listener:
        self._connection = connection
        return self

    def frame_received(self, frame: memoryview) -> None:
        parts = unpack(frame)
        self.came.append(parts.kind)
        if parts.kind is Kind.REFUSAL:
            self.refusal = CODEC.fault(parts.header).message
        elif self._is_mirror:
            self._connection.send([bytes(frame)])
        elif self._answers:
            self._connection.send(self._answers.pop(0))

    def connection_lost(self, error: Exception | None) -> None:
        pass


# -- with the same secret ----------------------------------------------------------------------------------------------


def test_brokers_with_one_secret_talk_and_hear_each_others_news() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, secret=SECRET), await world.start(2, secret=SECRET, cluster_id="")
        one.know(two)
        two.know(one)
        await one.echo(two)
        await two.echo(one)
        two.hello = Hello(2, two.hello.incarnation, "c", 7)
        await one.echo(two)
        assert one.node.hello_of(2) == two.hello
        assert one.node.statistics.unproved == one.node.statistics.refusals == 0
        assert one.node.statistics.connects == one.node.statistics.accepts == 2

    in_world(scenario)


def test_a_proof_by_hand_is_taken_and_answered_with_another() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, said = await challenged(world, two)
        await show(raw, proved_hello(SECRET, said, ME), NOTE)
        assert two.handler.notes == ["listen to me"]
        kind, theirs = raw.frames[-1]
        assert kind is Kind.HELLO and CODEC.hello(memoryview(theirs)) == two.hello
        said += [CODEC.encode_hello(ME), theirs]
        assert raw.payloads[-1] == SECRET.proof(Role.ANSWERER, said)

    in_world(scenario)


def test_an_answerer_tells_a_stranger_nothing_but_its_number() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET, cluster_id="hidden")
        raw, said = await challenged(world, two)
        assert CODEC.challenge(memoryview(said[1])).node_id == 2
        await show(raw, proved_hello(OTHER, said, ME))
        assert not any(b"hidden" in header for _, header in raw.frames)

    in_world(scenario)


def test_nonces_are_drawn_for_each_connection() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        nonces = {CODEC.challenge(memoryview((await challenged(world, two))[1][1])).nonce for _ in range(20)}
        assert len(nonces) == 20

    in_world(scenario)


# -- without it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("callers", "answerers", "words"),
    [
        (SECRET, OTHER, "node 2 has another cluster secret than the broker that calls it; cluster.secret.file"),
        (SECRET, None, "node 2 has no cluster secret, and the broker that calls it has one; cluster.secret.file"),
        (None, SECRET, "node 2 has a cluster secret, and the broker that calls it has none; cluster.secret.file"),
    ],
)
def test_brokers_whose_secrets_differ_do_not_talk_and_say_which_lacks_it(
    callers: ClusterSecret | None, answerers: ClusterSecret | None, words: str
) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, secret=callers), await world.start(2, secret=answerers)
        one.know(two)
        with capture_logs() as logs:
            with pytest.raises(PeerRefused, match=words):
                await one.node.request(2, Echo("a secret"), deadline_s=1)
            await asyncio.sleep(30)
        assert two.handler.handled == []
        assert two.node.statistics.accepts == one.node.statistics.connects == 0
        assert one.node.statistics.refusals == 0
        assert two.node.statistics.unproved == two.node.statistics.refusals > 2
        assert [entry["event"] for entry in logs if words in entry["reason"]] == [
            "a peer connection is refused",
            "a peer cannot be reached",
        ], "not at each attempt"

    in_world(scenario)


@pytest.mark.parametrize("proof", [b"", b"x", bytes(32), bytes(31), b"\xff" * 1000])
def test_a_hello_without_the_right_proof_is_refused_and_forgotten(proof: bytes) -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, _ = await challenged(world, two)
        await show(raw, pack(Kind.HELLO, CODEC.encode_hello(ME), [proof]), NOTE)
        assert "node 2 has another cluster secret" in raw.refusal()
        assert_untouched(two)

    in_world(scenario)


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    async def scenario(world: World) -> None:
        one, mirror = await world.start(1, secret=SECRET), Listener(is_mirror=True)
        await mirror.listen(world)
        with pytest.raises(PeerRefused, match="node 1 has another cluster secret than the broker that it calls"):
            await one.node.request_at("10.0.0.2", PORT, Echo("a secret"), deadline_s=1)
        await asyncio.sleep(0.1)
        assert mirror.came == [Kind.CHALLENGE, Kind.HELLO, Kind.REFUSAL]

    in_world(scenario)


def test_a_proof_of_one_role_is_none_of_the_other() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, said = await challenged(world, two)
        await show(raw, proved_hello(SECRET, said, ME, Role.ANSWERER))
        assert "another cluster secret" in raw.refusal()
        assert_untouched(two)

    in_world(scenario)


def test_a_proof_of_an_earlier_connection_is_worth_nothing() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, said = await challenged(world, two)
        seen = proved_hello(SECRET, said, Hello(1, "a", "c"))
        await show(raw, seen)
        assert two.node.statistics.accepts == 1
        raw, _ = await challenged(world, two)
        await show(raw, seen, NOTE)
        assert "another cluster secret" in raw.refusal()
        assert two.handler.notes == []

    in_world(scenario)


def test_a_proof_is_of_the_hello_that_it_comes_with() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, said = await challenged(world, two)
        proof = SECRET.proof(Role.CALLER, [*said, CODEC.encode_hello(Hello(1, "a", "c"))])
        await show(raw, pack(Kind.HELLO, CODEC.encode_hello(ME), [proof]))
        assert "another cluster secret" in raw.refusal()
        assert_untouched(two)

    in_world(scenario)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([hello_frame(ME), NOTE], "node 2 has a cluster secret, and the broker that calls it has none"),
        ([proved_hello(SECRET, [CHALLENGE, CHALLENGE], ME)], "and the broker that calls it has none"),
        ([NOTE], "the first frame is no hello, but of kind NOTIFY"),
        ([pack(Kind.PING, correlation=1)], "the first frame is no hello, but of kind PING"),
        ([pack(Kind.CHALLENGE, CHALLENGE), NOTE], "the first frame is no hello, but of kind NOTIFY"),
        ([pack(Kind.CHALLENGE, CHALLENGE)] * 2, "a challenge comes at the beginning of a connection, and once"),
        ([pack(Kind.CHALLENGE, CODEC.encode(Challenge(1, b"short")))], "a header cannot be understood"),
        ([pack(Kind.CHALLENGE)], "a header cannot be understood"),
    ],
)
def test_what_comes_out_of_turn_is_refused(frames: list[list[Buffer]], words: str) -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw = await RawPeer.connect(world, two, *frames)
        assert words in raw.refusal()
        assert_untouched(two)

    in_world(scenario)


def test_a_large_frame_before_the_proof_breaks_the_connection() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, said = await challenged(world, two)
        header = CODEC.encode_hello(ME)
        await show(raw, pack(Kind.HELLO, header, [SECRET.proof(Role.CALLER, [*said, header]) + bytes(4096)]))
        assert raw.lost_s is not None
        assert_untouched(two)

    in_world(scenario)


@pytest.mark.parametrize("is_challenged", [False, True])
def test_who_proves_nothing_is_not_waited_for(is_challenged: bool) -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET, bounds=PeerBounds(handshake_s_max=3))
        raw = await RawPeer.connect(world, two, *[pack(Kind.CHALLENGE, CHALLENGE)] * is_challenged)
        await asyncio.sleep(10)
        assert "no hello came within 3 s" in raw.refusal()
        assert raw.lost_s == pytest.approx(3, abs=0.1)

    in_world(scenario)


def test_nobody_changes_its_name_after_its_proof() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, secret=SECRET)
        raw, said = await challenged(world, two)
        await show(raw, proved_hello(SECRET, said, Hello(1, "a", "c")), hello_frame(Hello(3, "a", "c")), NOTE)
        assert "now says that it is node 3" in raw.refusal()
        assert two.handler.notes == []

    in_world(scenario)


def test_strangers_take_no_places_of_brokers() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, secret=SECRET), await world.start(2, secret=SECRET)
        two.know(one)
        with capture_logs():
            for _ in range(600):
                await RawPeer.connect(world, two, pack(Kind.CHALLENGE, CHALLENGE), wait_s=0.005)
            one.know(two)
            await one.echo(two)

    in_world(scenario)


# -- whom a caller believes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "came", "words"),
    [
        ([hello_frame(Hello(2, "x", "c"))], [Kind.CHALLENGE, Kind.REFUSAL], "the broker that it calls has none"),
        (
            [pack(Kind.CHALLENGE, CODEC.encode(Challenge(2, b"m" * 32))), hello_frame(Hello(2, "x", "c"))],
            [Kind.CHALLENGE, Kind.HELLO, Kind.REFUSAL],
            "node 1 has another cluster secret than the broker that it calls",
        ),
        (
            [pack(Kind.CHALLENGE, CODEC.encode(Challenge(3, b"m" * 32)))],
            [Kind.CHALLENGE, Kind.REFUSAL],
            "node 2 was expected at 10.0.0.2:9192, and node 3 is there",
        ),
    ],
)
def test_a_caller_asks_nothing_of_whoever_has_not_proved_itself(
    answers: list[list[Buffer]], came: list[Kind], words: str
) -> None:
    async def scenario(world: World) -> None:
        one, listener = await world.start(1, secret=SECRET), Listener(*answers)
        await listener.listen(world)
        with pytest.raises(PeerRefused, match=words):
            await one.node._dialler.dial("10.0.0.2", PORT, 2)
        await asyncio.sleep(0.1)
        assert listener.came == came
        assert words in listener.refusal

    in_world(scenario)


def test_a_caller_does_not_wait_for_ever_for_a_proof() -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1, secret=SECRET)
        listener = Listener(pack(Kind.CHALLENGE, CODEC.encode(Challenge(2, b"m" * 32))))
        await listener.listen(world)
        begin_s = now_s()
        with pytest.raises(TimeoutError):
            await one.node._dialler.dial("10.0.0.2", PORT, 2)
        assert now_s() - begin_s == pytest.approx(3, abs=0.1)
        assert listener.came == [Kind.CHALLENGE, Kind.HELLO]

    in_world(scenario)


def test_no_words_of_a_secret_are_shown() -> None:
    assert "know" not in f"{SECRET!r} {SECRET}"
    assert not hasattr(SECRET, "__dict__")
