"""Who talks to whom: clusters, names, lives, versions; and how news about them is passed on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.unit.transport.peer.brokers import PORT, Echo, Hold, World, in_world
from tests.unit.transport.peer.raw import CODEC, RawPeer, hello_frame
from tidelog.model.ports import Buffer
from tidelog.transport.peer import Hello, PeerBounds, PeerBusy, PeerLost, PeerRefused
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import Kind, pack
from tidelog.transport.peer.hello import Incarnations, refusal

# -- strangers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("says_hello", [False, True])
def test_strangers_keep_no_known_broker_out(says_hello: bool) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        two.know(one)
        with capture_logs():
            for number in range(600):
                frames = [hello_frame(Hello(1000 + number, "x", "c"))] if says_hello else []
                peer = await RawPeer.connect(world, two, *frames, wait_s=0.005)
                assert peer.lost_s is None, "the newest has a place"
            one.know(two)
            await one.echo(two)
            await asyncio.sleep(0.2)
        open_lines = [line for line in two.node._common.lines if line.is_open]
        assert len(open_lines) <= PeerBounds().strangers_max + 4, "two lanes in both directions"

    in_world(scenario)


# -- clusters --------------------------------------------------------------------------------------------------------


def test_brokers_of_different_clusters_do_not_talk_and_say_so_naming_both() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, cluster_id="red"), await world.start(2, cluster_id="blue")
        one.know(two)
        two.know(one)
        with capture_logs() as logs:
            with pytest.raises(PeerRefused, match="node 1 belongs to cluster red, and node 2 to cluster blue"):
                await one.node.request(2, Echo(""), deadline_s=1)
            await asyncio.sleep(30)
        assert one.handler.handled == two.handler.handled == []
        assert len(logs) <= 4, "the same complaint is not made at each attempt"

    in_world(scenario)


@pytest.mark.parametrize(("first", "second", "older"), [(0, 1, 1), (2, 1, 2)])
def test_brokers_of_different_generations_do_not_talk_and_say_which_is_over(
    first: int, second: int, older: int
) -> None:
    mine, theirs = Hello(1, "a", "c", generation=first), Hello(2, "b", "c", generation=second)
    for why in (refusal(mine, theirs), refusal(theirs, mine)):
        assert why is not None and why.startswith(f"node {older} is of generation {min(first, second)} of the cluster")
    assert refusal(mine, Hello(2, "b", "", generation=second)) is None, "it may ask"


@pytest.mark.parametrize("other", ["", "bbbb"])
def test_brokers_that_were_recovered_apart_do_not_talk_and_say_what_to_do(other: str) -> None:
    mine, theirs = (Hello(node, "x", "c", generation=1, recovery_id=of) for node, of in ((1, "aaaa"), (2, other)))
    for why in (refusal(mine, theirs), refusal(theirs, mine)):
        assert why is not None and why.startswith(
            f"node 1 is of recovery aaaa, node 2 is of recovery {other or '(no id)'}"
        )
        assert "both are of generation 1" in why and "run `tidelog cluster recover` again" in why
    assert refusal(mine, msgspec.structs.replace(theirs, recovery_id="aaaa")) is None
    assert refusal(mine, msgspec.structs.replace(theirs, cluster_id="")) is None, "it may ask"


def test_a_hello_of_before_recoveries_had_ids_is_read() -> None:
    old = msgspec.to_builtins(Hello(1, "a", "c", generation=1))
    del old["recovery_id"]
    assert CODEC.hello(memoryview(msgspec.msgpack.encode(old))).recovery_id == ""


def test_who_is_refused_is_told_to_the_owner() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, cluster_id="red"), await world.start(2, cluster_id="blue")
        refused: list[Hello] = []
        two.node.on_refused.append(refused.append)
        one.know(two)
        await asyncio.sleep(0.1)
        assert refused and set(refused) == {one.hello}

    in_world(scenario)


def test_who_knows_no_cluster_may_talk_to_anybody_and_the_handler_sees_it() -> None:
    async def scenario(world: World) -> None:
        one, two, three = await world.start(1, cluster_id=""), await world.start(2), await world.start(3, cluster_id="")
        for broker in (one, two, three):
            broker.know(*(other for other in (one, two, three) if other is not broker))
        for caller, callee in ((one, two), (two, one), (one, three)):
            await caller.echo(callee)
        assert two.handler.handled[0][0].cluster_id == ""

    in_world(scenario)


def test_what_a_broker_learns_about_itself_reaches_others_on_the_same_connections() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, cluster_id=""), await world.start(2, cluster_id="")
        one.know(two)
        await one.echo(two)
        one.hello = msgspec.structs.replace(one.hello, cluster_id="c", broker_epoch=5)
        await one.echo(two)
        two.hello = msgspec.structs.replace(two.hello, cluster_id="c", broker_epoch=6)
        assert one.node.notify(2, Echo("for a start"))
        await asyncio.sleep(0.1)
        assert [caller.cluster_id for caller, _ in two.handler.handled] == ["", "c"]
        assert one.node.hello_of(2) == two.hello
        assert one.node.statistics.connects == 2

    in_world(scenario)


def test_an_answer_comes_behind_the_news_of_who_gives_it() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2, cluster_id="")
        one.know(two)
        request = asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=10))
        await asyncio.sleep(0.1)
        two.hello = msgspec.structs.replace(two.hello, cluster_id="c")
        two.handler.held["x"].set()
        await request
        assert one.node.hello_of(2) == two.hello

    in_world(scenario)


@pytest.mark.parametrize("who_learns_last", [1, 2])
def test_a_connection_ends_when_its_ends_turn_out_to_be_of_different_clusters(who_learns_last: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, cluster_id=""), await world.start(2, cluster_id="")
        one.know(two)
        await one.echo(two)
        learners = (two, one) if who_learns_last == 1 else (one, two)
        for learner, cluster_id in zip(learners, ("red", "blue"), strict=True):
            learner.hello = msgspec.structs.replace(learner.hello, cluster_id=cluster_id)
        with pytest.raises((PeerRefused, PeerLost), match="cluster"):
            await one.node.request(2, Echo("a secret"), deadline_s=1)
        await asyncio.sleep(1)
        with pytest.raises(PeerRefused, match=r"cluster (red|blue), and node . to cluster (red|blue)"):
            await one.node.request(2, Echo("a secret"), deadline_s=1)
        assert len(two.handler.handled) == 1

    in_world(scenario)


# -- names -----------------------------------------------------------------------------------------------------------


def test_another_node_at_the_address_of_a_peer_is_not_talked_to() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        one.node.know(3, *two.address)
        with pytest.raises(PeerRefused, match=r"node 3 was expected at 10\.0\.0\.2:9192, and node 2 is there"):
            await one.node.request(3, Echo(""), deadline_s=1)
        assert two.handler.handled == []

    in_world(scenario)


def test_two_brokers_with_one_node_id_are_told_so() -> None:
    async def scenario(world: World) -> None:
        one, twin = await world.start(1), await world.start(1, address="10.0.0.2")
        with pytest.raises(PeerRefused, match=r"both brokers are node 1; give each .* a node\.id of its own"):
            await one.node.request_at(*twin.address, Echo(""), deadline_s=1)

    in_world(scenario)


def test_nobody_changes_its_name_on_a_connection() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        raw = await RawPeer.connect(
            world, two, hello_frame(Hello(1, "a", "c")), hello_frame(Hello(3, "a", "c")), pack(Kind.NOTIFY)
        )
        assert "now says that it is node 3" in raw.refusal()

    in_world(scenario)


# -- lives -----------------------------------------------------------------------------------------------------------


def test_an_earlier_life_is_refused_when_the_metadata_names_a_later_one() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        zombie = await world.start(1, incarnation="old", broker_epoch=10)
        two.node.accept_only(1, "old", 10)
        zombie.know(two)
        await zombie.echo(two)
        request = asyncio.create_task(zombie.node.request(2, Hold("x"), deadline_s=60))
        await asyncio.sleep(0.1)
        fresh = await world.start(1, address="10.0.0.11", incarnation="new")
        fresh.know(two)
        await fresh.echo(two)  # not registered yet: how else could it be
        two.node.accept_only(1, "new", 20)
        with pytest.raises(PeerLost, match="is over"):
            await request
        assert two.handler.cancelled == ["x"]
        await asyncio.sleep(5)
        with pytest.raises(
            PeerRefused, match=r"an earlier life of node 1 .*old, epoch 10.*newest known is new, epoch 20"
        ):
            await zombie.node.request(2, Echo(""), deadline_s=1)
        await fresh.echo(two)

    in_world(scenario)


@pytest.mark.parametrize("epoch", [20, 2**40, 2**63 - 1])
def test_a_hello_puts_no_other_life_out(epoch: int) -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        two.node.accept_only(1, "real", 10)
        real = await world.start(1, incarnation="real", broker_epoch=10)
        real.know(two)
        request = asyncio.create_task(real.node.request(2, Hold("x"), deadline_s=60))
        await asyncio.sleep(0.1)
        claimant = await world.start(1, address="10.0.0.11", incarnation="another", broker_epoch=epoch)
        claimant.know(two)
        await claimant.echo(two)  # it may have registered since: the handler judges what it may ask
        await real.echo(two)
        two.node.accept_only(1, "real", 10)  # what is applied late
        await claimant.node.close()
        await real.echo(two)
        again = await world.start(1, address="10.0.0.12", incarnation="real", broker_epoch=10)
        again.know(two)
        await again.echo(two)
        assert not request.done() and two.handler.cancelled == []
        request.cancel()

    in_world(scenario)


def test_a_later_life_that_called_first_counts_once_the_metadata_tell_of_it() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        two.node.accept_only(1, "old", 10)
        zombie = await world.start(1, incarnation="old", broker_epoch=10)
        zombie.know(two)
        request = asyncio.create_task(zombie.node.request(2, Hold("x"), deadline_s=60))
        await asyncio.sleep(0.1)
        fresh = await world.start(1, address="10.0.0.11", incarnation="new", broker_epoch=20)
        fresh.know(two)
        await fresh.echo(two)
        assert not request.done(), "until the metadata tell of another life it is the one that counts"
        two.node.accept_only(1, "new", 20)
        with pytest.raises(PeerLost, match="a later life of this node is known"):
            await request
        assert two.handler.cancelled == ["x"]
        await fresh.echo(two)

    in_world(scenario)


def test_a_callee_that_is_an_earlier_life_is_not_talked_to_either() -> None:
    async def scenario(world: World) -> None:
        one, zombie = await world.start(1), await world.start(2, incarnation="old", broker_epoch=10)
        one.know(zombie)
        await one.echo(zombie)
        one.node.accept_only(2, "new", 20)
        await asyncio.sleep(1)
        with pytest.raises(PeerRefused, match="an earlier life of node 2"):
            await one.node.request(2, Echo(""), deadline_s=1)
        assert len(zombie.handler.handled) == 1

    in_world(scenario)


def test_lives_are_judged_by_what_is_known() -> None:
    lives = Incarnations()
    assert lives.hear(Hello(1, "a")) is None
    assert lives.hear(Hello(1, "b")) is None, "none of them is registered"
    lives.accept_only(1, "b", 5)
    assert lives.hear(Hello(1, "a")) is None, "it may be about to register"
    assert lives.hear(Hello(1, "b", "c", 5)) is None
    assert lives.hear(Hello(1, "a", "c", 4)) is not None
    lives.accept_only(1, "c")
    assert lives.hear(Hello(1, "b")) is not None, "registered no more"
    lives.accept_only(1, "b")
    assert lives.is_stale(Hello(1, "b")), "what is over does not come back"
    assert not lives.is_stale(Hello(2, "b"))
    assert lives.hear(Hello(1, "d", "c", 9)) is None
    assert not lives.is_stale(Hello(1, "c", "c", 8)), "nobody is put out by what another life says"
    lives.accept_only(1, "d", 9)
    assert lives.is_stale(Hello(1, "c", "c", 8))


# -- versions, garbage, slowness -------------------------------------------------------------------------------------


def test_another_version_is_refused_and_told() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        raw = await RawPeer.connect(world, two, [b"\x02" + bytes(100)])
        assert raw.refusal() == "a frame of version 2 of the peer protocol came; this broker speaks 1"
        raw = await RawPeer.connect(world, two, hello_frame(Hello(1, "a", "c", protocol_version=2)))
        assert "node 1 speaks version 2 of the peer messages, and node 2 version 1" in raw.refusal()

    in_world(scenario)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ([b""], "a frame of 0 bytes is too short"),
        ([b"\x01\x01"], "a frame of 2 bytes is too short"),
        (pack(Kind.REQUEST, CODEC.encode(Echo(""))), "the first frame is no hello, but of kind REQUEST"),
        (pack(Kind.HELLO, b"\xc1"), "a header cannot be understood"),
        (pack(Kind.HELLO, CODEC.encode(Hello(1, "x" * 5000))), None),
    ],
)
def test_what_is_no_hello_is_refused(frame: list[Buffer], reason: str | None) -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        raw = await RawPeer.connect(world, two, frame)
        assert raw.lost_s is not None
        if reason is not None:
            assert reason in raw.refusal()
        assert not two.host.connections

    in_world(scenario)


@pytest.mark.parametrize("kind", [Kind.ANSWER, Kind.ERROR])
def test_answers_to_nobody_end_a_connection(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        raw = await RawPeer.connect(world, two, hello_frame(Hello(1, "a", "c")), pack(kind, correlation=1))
        assert f"a frame of kind {kind.name} asks for nothing" in raw.refusal()

    in_world(scenario)


def test_a_request_id_that_is_in_use_ends_a_connection() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        request = pack(Kind.REQUEST, CODEC.encode(Hold("x")), correlation=1, timeout_ms=1000)
        raw = await RawPeer.connect(world, two, hello_frame(Hello(1, "a", "c")), request, request)
        assert "request 1 is under way already" in raw.refusal()

    in_world(scenario)


def test_who_says_nothing_is_not_waited_for() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, bounds=PeerBounds(handshake_s_max=3))
        raw = await RawPeer.connect(world, two)
        await asyncio.sleep(10)
        assert "no hello came within 3 s" in raw.refusal()
        assert raw.lost_s == pytest.approx(3, abs=0.1)

    in_world(scenario)


def test_connections_are_bounded() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2, bounds=PeerBounds(connections_max=2))
        raws = [await RawPeer.connect(world, two, hello_frame(Hello(1, "a", "c"))) for _ in range(3)]
        assert [raw.lost_s is None for raw in raws] == [True, True, False]
        assert "2 peer connections already" in raws[2].refusal()
        raws[0].connection.close()
        await asyncio.sleep(0.1)
        assert (await RawPeer.connect(world, two, hello_frame(Hello(1, "a", "c")))).lost_s is None

    in_world(scenario)


def test_who_finds_no_place_is_told_to_come_again() -> None:
    async def scenario(world: World) -> None:
        full, one = await world.start(2, bounds=PeerBounds(connections_max=0)), await world.start(1)
        with capture_logs(), pytest.raises(PeerBusy, match="has 0 peer connections already"):
            await one.node.request_at("10.0.0.2", PORT, Echo(""), deadline_s=1)
        one.know(full)
        with capture_logs(), pytest.raises(PeerBusy):
            await one.node.request(2, Echo(""), deadline_s=1)

    in_world(scenario)


def test_a_broker_of_before_is_refused_as_it_was() -> None:
    assert type(Fault(PeerRefused.code, "no").to_refusal()) is PeerRefused
    assert type(Fault(PeerBusy.code, "not now").to_refusal()) is PeerBusy


def test_a_stranger_does_not_fill_the_log() -> None:
    async def scenario(world: World) -> None:
        two = await world.start(2)
        with capture_logs() as logs:
            for size in range(100):
                await RawPeer.connect(world, two, [b"\x01" + bytes(size // 5)], wait_s=0.01)
            assert len(logs) == 8
            await asyncio.sleep(60)
            await RawPeer.connect(world, two, [b"\x01"])
        assert len(logs) == 9, "it is spoken of again"
        assert two.node.statistics.refusals == 101

    in_world(scenario)


def test_a_port_of_its_own() -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        with pytest.raises(OSError, match=f"port {PORT} of 10.0.0.1 is taken"):
            await one.host.listen("", PORT, RawPeer)

    in_world(scenario)
