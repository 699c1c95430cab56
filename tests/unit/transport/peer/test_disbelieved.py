"""Answers that are not believed are none: whoever asked is told so, and the connection goes on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.transport.peer.brokers import Echo, Fetch, Hold, World, in_world
from tests.unit.transport.peer.raw import RawPeer
from tidelog.model.errors import ForeignSender, ImplausibleNumber, OffsetOutOfRange
from tidelog.transport.peer import Answer, Hello, PeerLost
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import BadFrame, Kind, pack
from tidelog.transport.peer.statistics import NUMBER, SENDER, UNREADABLE


@pytest.mark.parametrize(
    ("error", "reason"), [(ImplausibleNumber, NUMBER), (ForeignSender, SENDER), (BadFrame, UNREADABLE)]
)
def test_what_the_check_refuses_is_no_answer_and_of_unknown_outcome(error: type[Exception], reason: str) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()

        def check(answerer: Hello, asked: msgspec.Struct, answer: Answer) -> None:
            assert (answerer, answer.message) == (two.hello, asked)
            if asked == Echo("a lie"):
                raise error("it cannot be")

        one.node._common.check_answer = check
        with pytest.raises(PeerLost, match=r"what node 2 .* answered is not believed \(it cannot be\)") as raised:
            await one.node.request(2, Echo("a lie"), deadline_s=1)
        assert not raised.value.definite
        assert one.node.statistics.refused == {NUMBER: 0, SENDER: 0, UNREADABLE: 0, "unregistered": 0, reason: 1}
        await one.echo(two)
        assert one.node.statistics.connects == 2

    in_world(scenario)


def test_an_answer_that_cannot_be_read_is_none_and_ends_no_other() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, messages=(Echo, Fetch)), await world.start(2)
        one.know(two)
        two.handler.held["unknown here"] = event = asyncio.Event()
        event.set()
        with pytest.raises(PeerLost, match="is not believed"):
            await one.node.request(2, Hold("unknown here"), deadline_s=1)
        assert one.node.statistics.refused[UNREADABLE] == 1
        await one.echo(two)

    in_world(scenario)


@pytest.mark.parametrize(
    "header",
    [b"\x82\xa7node_id\x01\xabincarnation\xa1\xff", b"\x81\xa1x" * 1_300],
    ids=["no text", "a thousand maps in each other"],
)
@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.CHALLENGE, Kind.REFUSAL])
def test_bytes_that_no_decoder_gets_through_are_refused_as_others(kind: Kind, header: bytes) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        raw = await RawPeer.connect(world, one, pack(kind, header))
        assert "a header cannot be understood" in raw.refusal()
        assert one.node.statistics.refusals == 1

    in_world(scenario)


def test_an_error_on_its_way_gives_no_other_attributes_than_the_error_has() -> None:
    told = {"code": 20_000, "message": 7, "definite": 1, "log_start_offset": 3, "log_end_offset": 9, "new": 1}
    error = Fault(OffsetOutOfRange.code, "offsets", told).to_error()
    assert isinstance(error, OffsetOutOfRange)
    assert (error.code, error.message, error.log_start_offset) == (OffsetOutOfRange.code, "offsets", 3)
    assert not hasattr(error, "new") and type(error.definite) is bool
    assert Fault.of(error).to_error().log_end_offset == 9  # type: ignore[attr-defined]  # it is the same error
