"""Requests between brokers: answered, refused, lost, given up; and which of these is definite."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.keeping import nothing_kept
from tests.unit.transport.peer.brokers import PORT, Echo, Fail, Fetch, Hold, World, in_world, now_s
from tidelog.model.errors import InternalError, InvalidRequest, OffsetOutOfRange, Overloaded, ShuttingDown, TooLarge
from tidelog.transport.peer import Lane, PeerBounds, PeerLost, PeerRefused, PeerUnreachable
from tidelog.transport.peer.errors import Fault
from tidelog.transport.peer.frames import Kind, MessageCodec, pack


def test_an_answer_carries_message_and_payload_and_its_handler_knows_the_caller() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, broker_epoch=7), await world.start(2)
        one.know(two)
        for lane in Lane:
            answer = await one.node.request(2, Echo("a"), [b"some", b"", b"bytes"], deadline_s=1, lane=lane)
            assert (answer.message, bytes(answer.body)) == (Echo("a"), b"somebytes")
        answer = await one.node.request(2, Fetch(3), deadline_s=1)
        assert (answer.message, answer.payload) == (None, (bytes(3),))
        answer = await one.node.request(2, Fetch(0), deadline_s=1)
        assert (answer.message, answer.payload, bytes(answer.body)) == (None, (), b"")
        assert [caller for caller, _ in two.handler.handled] == [one.hello] * 4
        assert one.node.hello_of(2) == two.hello
        assert two.node.hello_of(1) is None

    in_world(scenario)


def test_answers_find_their_requests_in_whatever_order_they_come() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        names = [f"request {number}" for number in range(500)]
        requests = [asyncio.create_task(one.node.request(2, Hold(name), deadline_s=60)) for name in names]
        await asyncio.sleep(1)
        assert two.handler.names == names
        for name in names[::-1]:
            two.handler.held[name].set()
            await asyncio.sleep(0)
        assert [(await request).message for request in requests] == [Hold(name) for name in names]

    in_world(scenario)


def test_an_error_says_at_the_caller_what_it_said_at_the_callee() -> None:
    async def scenario(world: World) -> None:
        one, _ = await world.start_pair()
        with pytest.raises(OffsetOutOfRange, match="offsets 3 to 9") as raised:
            await one.node.request(2, Fail(), deadline_s=1)
        assert (raised.value.log_start_offset, raised.value.log_end_offset) == (3, 9)
        assert raised.value.high_watermark is None

    in_world(scenario)


def test_an_error_keeps_nothing_of_its_request() -> None:
    async def scenario(world: World) -> None:
        one, _ = await world.start_pair()
        with nothing_kept():
            with suppress(OffsetOutOfRange):
                await one.node.request(2, Fail(), [bytes(1 << 20)], deadline_s=1)
            await asyncio.sleep(0)  # the event loop has let go of it, too

    in_world(scenario)


def test_a_bug_in_a_handler_is_logged_there_and_unknown_here() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        with capture_logs() as logs, pytest.raises(InternalError, match="its log says more"):
            await one.node.request(2, Fail(is_bug=True), deadline_s=1)
        assert [log["log_level"] for log in logs] == ["error"]
        await one.echo(two)

    in_world(scenario)


def test_a_message_that_the_other_version_does_not_know_is_an_error_and_harms_nothing_else() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2, messages=(Echo, Hold))
        one.know(two)
        with pytest.raises(InvalidRequest, match="Fetch"):
            await one.node.request(2, Fetch(1), deadline_s=1)
        assert one.node.notify(2, Fetch(1))
        await one.echo(two)
        assert one.node.statistics.connects == 2

    in_world(scenario)


# -- definite: nothing was sent --------------------------------------------------------------------------------------


def test_who_is_not_known_or_not_there_is_unreachable_at_once() -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        world.network.host("10.0.0.2")
        with pytest.raises(PeerUnreachable, match="the address of node 2 is not known") as raised:
            await one.node.request(2, Echo(""), deadline_s=60)
        assert raised.value.definite
        one.node.know(2, "10.0.0.2", PORT)
        with pytest.raises(PeerUnreachable, match="nobody listens at the address of node 2"):
            await one.node.request(2, Echo(""), deadline_s=60)
        assert now_s() < 0.1

    in_world(scenario)


def test_a_request_without_time_is_not_sent() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        with pytest.raises(PeerUnreachable, match="no time is left"):
            await one.node.request(2, Echo(""), deadline_s=0)
        await asyncio.sleep(1)
        assert len(two.handler.handled) == 1

    in_world(scenario)


def test_a_request_waits_for_an_attempt_that_is_under_way_but_not_beyond_its_deadline() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        world.network.link("10.0.0.2", "10.0.0.1").cut()
        one.know(two)
        with pytest.raises(PeerUnreachable, match="could not be reached in time"):
            await one.node.request(2, Echo(""), deadline_s=0.5)
        assert now_s() == pytest.approx(0.5)
        waiting = asyncio.create_task(one.echo(two, deadline_s=2))
        await asyncio.sleep(0.5)
        world.network.heal()
        await waiting
        assert len(two.handler.handled) == 1

    in_world(scenario)


def test_a_peer_that_takes_the_connection_and_says_nothing_is_unreachable() -> None:
    class Silent:
        def frame_received(self, frame: memoryview) -> None:
            pass

        def connection_lost(self, error: Exception | None) -> None:
            pass

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await world.network.host("10.0.0.2").listen("", PORT, lambda connection: Silent())
        one.node.know(2, "10.0.0.2", PORT)
        with pytest.raises(PeerUnreachable, match="does not answer"):
            await one.node.request(2, Echo(""), deadline_s=60)
        await asyncio.sleep(60)
        assert len(one.host.connections) <= len(Lane), "no more than the attempts under way"

    in_world(scenario)


def test_bounds_of_the_caller_refuse_before_anything_is_sent() -> None:
    async def scenario(world: World) -> None:
        bounds = PeerBounds(requests_max=2, frame_bytes_max=1 << 20, queued_bytes_max=1 << 20)
        one, two = await world.start(1, bounds=bounds), await world.start(2)
        one.know(two)
        with pytest.raises(TooLarge, match="1048617 bytes"):
            await one.node.request(2, Echo(""), [bytes(1 << 20)], deadline_s=1)
        requests = [asyncio.create_task(one.node.request(2, Hold(name), deadline_s=60)) for name in ("a", "b", "c")]
        with pytest.raises(Overloaded, match="2 requests to node 2"):
            await requests[2]
        await asyncio.sleep(0.1)
        for event in two.handler.held.values():
            event.set()
        await asyncio.gather(*requests[:2])
        assert two.handler.names == ["a", "b"]

    in_world(scenario)


def test_bytes_that_a_slow_peer_does_not_take_are_bounded() -> None:
    async def scenario(world: World) -> None:
        bounds = PeerBounds(queued_bytes_max=1 << 20, notify_bytes_max=1 << 19)
        one, two = await world.start(1, bounds=bounds), await world.start(2)
        one.know(two)
        await one.echo(two)
        world.network.link("10.0.0.1", "10.0.0.2").clog()
        sent = [one.node.notify(2, Echo(str(number)), [bytes(1 << 17)]) for number in range(10)]
        assert sent == [True] * 6 + [False] * 4, "256 KiB are taken by the system"
        assert one.node.statistics.notifications_dropped == 4
        requests = [
            asyncio.create_task(one.node.request(2, Echo(str(number)), [bytes(1 << 18)], deadline_s=9))
            for number in range(5)
        ]
        with pytest.raises(Overloaded, match="bytes wait to be sent to node 2"):
            await requests[4]
        world.network.heal()
        await asyncio.gather(*requests[:2])
        assert two.handler.notes == [str(number) for number in range(6)]

    in_world(scenario)


def test_bounds_of_the_callee_are_told_and_definite() -> None:
    async def scenario(world: World) -> None:
        bounds = PeerBounds(requests_max=3, queued_bytes_max=1000, frame_bytes_max=5000)
        one, two = await world.start(1), await world.start(2, bounds=bounds)
        one.know(two)
        requests = [
            asyncio.create_task(one.node.request(2, Hold(name), [bytes(size)], deadline_s=60))
            for name, size in (("a", 600), ("b", 600), ("c", 0), ("d", 0), ("e", 0))
        ]
        await asyncio.sleep(1)
        assert two.handler.names == ["a", "c", "d"]
        for request in (requests[1], requests[4]):
            with pytest.raises(Overloaded) as raised:
                await request
            assert raised.value.definite
        for event in two.handler.held.values():
            event.set()
        await asyncio.gather(requests[0], requests[2], requests[3])
        await one.node.request(2, Hold("a"), [bytes(4000)], deadline_s=1)  # alone, it may be as large as a frame
        with pytest.raises(TooLarge, match="the answer"):
            await one.node.request(2, Fetch(5000), deadline_s=1)

    in_world(scenario)


# -- unknown: it was sent --------------------------------------------------------------------------------------------


def test_a_connection_that_dies_under_a_request_leaves_its_outcome_unknown() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        request = asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=60))
        await asyncio.sleep(0.1)
        world.network.reset("10.0.0.1", "10.0.0.2")
        with pytest.raises(
            PeerLost, match=r"node 2 at 10\.0\.0\.2:9192 was lost \(the connection was reset\)"
        ) as raised:
            await request
        assert not raised.value.definite
        await one.echo(two)
        assert two.handler.cancelled == ["x"]

    in_world(scenario)


def test_a_request_that_is_not_answered_in_time_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        with pytest.raises(TimeoutError, match="no answer of node 2"):
            await one.node.request(2, Hold("x"), deadline_s=0.5)
        await asyncio.sleep(0.1)
        assert two.handler.cancelled == ["x"]
        assert one.node.statistics.given_up == 1
        await one.echo(two)

    in_world(scenario)


def test_the_callee_gives_up_by_itself_when_the_time_is_over() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        request = asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=0.5))
        await asyncio.sleep(0.1)
        world.network.cut("10.0.0.1", "10.0.0.2")
        with pytest.raises(TimeoutError):
            await request
        await asyncio.sleep(0.1)
        assert two.handler.cancelled == ["x"]

    in_world(scenario)


def test_a_cancelled_request_is_cancelled_at_the_peer_as_well() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        requests = [asyncio.create_task(one.node.request(2, Hold(name), deadline_s=60)) for name in ("x", "y")]
        await asyncio.sleep(0.1)
        requests[0].cancel()
        await asyncio.sleep(0.1)
        assert two.handler.cancelled == ["x"]
        two.handler.held["y"].set()
        assert (await requests[1]).message == Hold("y")

    in_world(scenario)


def test_an_answer_that_crosses_its_cancellation_is_dropped() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        request = asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=60))
        await asyncio.sleep(0.1)
        world.network.link("10.0.0.2", "10.0.0.1").clog()
        two.handler.held["x"].set()
        await asyncio.sleep(0.1)
        request.cancel()
        await asyncio.sleep(0.1)
        world.network.heal()
        await one.echo(two)
        assert one.node.statistics.late_answers == 1

    in_world(scenario)


def test_what_arrives_twice_is_executed_twice_and_no_answer_goes_astray() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        link = world.network.link("10.0.0.1", "10.0.0.2")
        link.replay_rate = 0.5
        for number in range(200):
            await one.echo(two, str(number))
            one.node.notify(2, Echo(str(number)))
            if number % 50 == 49:
                world.network.reset("10.0.0.1", "10.0.0.2")
                await asyncio.sleep(0.1)
        link.replay_rate = 0
        await asyncio.sleep(10)
        replayed = world.network.statistics["replayed"]
        assert replayed > 100
        assert len(two.handler.handled) + len(two.handler.notes) == 401 + replayed - 4, (
            "four notifications were under way"
        )
        assert one.node.statistics.late_answers > 0

    in_world(scenario)


def test_requests_that_came_to_nothing_do_not_count_as_under_way() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, bounds=PeerBounds(requests_max=2)), await world.start(2)
        one.know(two)
        for _ in range(3):
            requests = [asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=0.1)) for _ in range(2)]
            await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 10)
            requests = [asyncio.create_task(one.node.request(2, Fail(), deadline_s=10)) for _ in range(2)]
            await asyncio.sleep(0)
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)
        await one.echo(two)

    in_world(scenario)


def test_a_request_may_be_cancelled_in_the_instant_in_which_its_answer_comes() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        control = next(end for end in one.host.connections if not end.is_accepted and end.received > 1)
        assert control.receiver is not None
        codec = MessageCodec([Echo])
        fault = codec.encode(Fault(50001, "what nobody waits for"))
        for correlation, is_answered_first in ((2, True), (3, False)):
            request = asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=10))
            await asyncio.sleep(0.1)
            answer = memoryview(b"".join(pack(Kind.ERROR, fault, correlation=correlation)))
            if is_answered_first:
                control.receiver.frame_received(answer)
            request.cancel()
            if not is_answered_first:
                control.receiver.frame_received(answer)
            with pytest.raises(asyncio.CancelledError):
                await request
        assert one.node.statistics.late_answers == 1
        await one.echo(two)

    in_world(scenario)


# -- notifications ---------------------------------------------------------------------------------------------------


def test_notifications_arrive_in_order_or_are_known_to_be_dropped() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        assert not one.node.notify(2, Echo("nobody is known"))
        one.know(two)
        assert not one.node.notify(2, Echo("no connection yet"))
        await one.echo(two)
        for number in range(100):
            assert one.node.notify(2, Echo(str(number)))
        await asyncio.sleep(1)
        assert two.handler.notes == [str(number) for number in range(100)]

    in_world(scenario)


# -- by address ------------------------------------------------------------------------------------------------------


def test_a_request_to_an_address_needs_no_name_and_leaves_no_connection() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1, cluster_id=""), await world.start(2)
        answer = await one.node.request_at(*two.address, Echo("may I join?"), deadline_s=1)
        assert answer.message == Echo("may I join?")
        assert two.handler.handled[0][0].cluster_id == ""
        await asyncio.sleep(0.1)
        assert not one.host.connections
        assert not two.host.connections

    in_world(scenario)


def test_a_request_to_an_address_is_definite_about_who_is_not_there() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2, cluster_id="other")
        world.network.host("10.0.0.3")
        with pytest.raises(PeerRefused, match="node 1 belongs to cluster c, and node 2 to cluster other"):
            await one.node.request_at(*two.address, Echo(""), deadline_s=1)
        with pytest.raises(PeerUnreachable, match="nobody listens"):
            await one.node.request_at("10.0.0.3", PORT, Echo(""), deadline_s=1)
        with pytest.raises(PeerUnreachable, match="does not answer"):
            await one.node.request_at("10.0.0.4", PORT, Echo(""), deadline_s=1)
        assert two.handler.handled == []

    in_world(scenario)


# -- the end ---------------------------------------------------------------------------------------------------------


def test_closing_loses_what_is_under_way_and_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start_pair()
        to_two = asyncio.create_task(one.node.request(2, Hold("x"), deadline_s=60))
        to_one = asyncio.create_task(two.node.request(1, Hold("y"), deadline_s=60))
        await asyncio.sleep(0.1)
        await one.node.close()
        await one.node.close()
        for request in (to_two, to_one):
            with pytest.raises(PeerLost):
                await request
        assert one.handler.cancelled == ["y"]
        assert not one.host.connections
        with pytest.raises(ShuttingDown):
            await one.node.request(2, Echo(""), deadline_s=1)
        with pytest.raises(ShuttingDown):
            await one.node.request_at(*two.address, Echo(""), deadline_s=1)
        with pytest.raises(PeerUnreachable, match="nobody listens"):
            await two.node.request(1, Echo(""), deadline_s=1)

    in_world(scenario)


def test_messages_need_tags() -> None:
    class Plain(msgspec.Struct):
        number: int

    async def scenario(world: World) -> None:
        with pytest.raises(TypeError, match="Plain has no tag"):
            await world.start(1, messages=(Echo, Plain))

    in_world(scenario)


def test_the_same_seed_replays_the_same_run() -> None:
    async def scenario(world: World) -> str:
        one, two = await world.start_pair()
        link = world.network.link("10.0.0.1", "10.0.0.2")
        link.break_rate = link.tail_rate = link.replay_rate = 0.05
        outcomes = []
        for number in range(200):
            try:
                await one.echo(two, str(number))
            except (PeerLost, PeerUnreachable) as error:
                outcomes.append(f"{now_s()} {error}")
        return f"{outcomes} {now_s()} {one.node.statistics} {two.node.statistics} {world.network.statistics}"

    runs = [in_world(scenario, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert "broken in the middle" in runs[0]
