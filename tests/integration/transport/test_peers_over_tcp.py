"""Brokers that talk over real sockets, on both event loops; and what strangers get who come to the peer port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import uvloop
from structlog.testing import capture_logs

from tidelog.adapters.frame_protocol import Receiver, TcpTimeouts
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.broker.consensus.founding import NamedVoter, find_origin
from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.model.ports import Buffer, FrameConnection, FrameReceiver, Network, NetworkListener
from tidelog.transport.peer import Answer, Hello, Lane, PeerBounds, PeerBusy, PeerLost, PeerNode, PeerUnreachable
from tidelog.transport.peer.frames import Kind, MessageCodec, pack, unpack

HOST = "127.0.0.1"
PATIENCE_S = 30.0
ROOT = Path(__file__).parents[3]


class Echo(msgspec.Struct, tag=True):
    number: int


class Hold(msgspec.Struct, tag=True):
    """Answered when the test says so."""


CODEC = MessageCodec([Echo, Hold])


class Echoing:
    """A handler that answers each message with itself."""

    def __init__(self) -> None:
        self.handled: list[msgspec.Struct] = []
        self.notes: list[int] = []
        self.release = asyncio.Event()

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        self.handled.append(message)
        if isinstance(message, Hold):
            await self.release.wait()
        return Answer(message, (payload,))

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        assert isinstance(message, Echo)
        self.notes.append(message.number)


class Broker:
    def __init__(self, node_id: int, bounds: PeerBounds, network: Network) -> None:
        self.node_id = node_id
        self.handler = Echoing()
        hello = Hello(node_id, f"life of {node_id}", "c")
        self.node = PeerNode(
            network, lambda: hello, [Echo, Hold], self.handler, SystemClock(), SystemEntropy(), bounds=bounds
        )
        self.address = (HOST, 0)


class Brokers:
    def __init__(self) -> None:
        self._started: list[Broker] = []

    async def start(
        self,
        node_id: int,
        *,
        bounds: PeerBounds | None = None,
        timeouts: TcpTimeouts | None = None,
        network: Network | None = None,
        port: int = 0,
    ) -> Broker:
        tcp = TcpNetwork(http_address=lambda: "http://127.0.0.1:8082", timeouts=timeouts or TcpTimeouts())
        broker = Broker(node_id, bounds or PeerBounds(), network or tcp)
        self._started.append(broker)
        broker.address = await broker.node.listen(HOST, port)
        return broker

    async def start_pair(self) -> tuple[Broker, Broker]:
        one, two = await self.start(1), await self.start(2)
        one.node.know(2, *two.address)
        await one.node.request(2, Echo(0), deadline_s=PATIENCE_S)
        return one, two

    async def close(self) -> None:
        for broker in self._started:
            await broker.node.close()


Scenario = Callable[[Brokers], Coroutine[Any, Any, None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario; afterwards no task is left, and no callback has failed."""

    def run(scenario: Scenario) -> None:
        failures: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
            brokers = Brokers()
            try:
                await scenario(brokers)
            finally:
                await brokers.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
        assert failures == []

    return run


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def dial(broker: Broker, data: bytes) -> Stream:
    reader, writer = await asyncio.open_connection(*broker.address)
    writer.write(data)
    return reader, writer


async def hang_up(stream: Stream) -> bytes:
    """Returns what the broker says until it closes."""
    async with asyncio.timeout(PATIENCE_S):
        said = await stream[0].read()
    stream[1].close()
    with contextlib.suppress(ConnectionError):
        await stream[1].wait_closed()
    return said


# -- brokers ---------------------------------------------------------------------------------------------------------


def test_a_thousand_requests_at_once_each_get_their_answer(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.start_pair()
        answers = await asyncio.gather(
            *(one.node.request(2, Echo(number), [b"%d" % number], deadline_s=PATIENCE_S) for number in range(1000))
        )
        for number, answer in enumerate(answers):
            assert (answer.message, bytes(answer.body)) == (Echo(number), b"%d" % number)
        assert len(two.handler.handled) == 1001

    play(scenario)


def test_a_large_payload_comes_back_untouched(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, _ = await brokers.start_pair()
        payload = SystemEntropy().token_hex(1 << 10).encode() * (16 << 10)
        assert len(payload) == 32 << 20
        halves = [memoryview(payload)[: 10 << 20], memoryview(payload)[10 << 20 :]]
        answer = await one.node.request(2, Echo(1), halves, deadline_s=PATIENCE_S, lane=Lane.DATA)
        assert answer.body == payload

    play(scenario)


def test_who_gives_up_a_connection_while_it_is_made_hears_of_its_end(play: Callable[[Scenario], None]) -> None:
    """It is told once, although uvloop tells nobody; what it sends or closes afterwards is dropped."""

    class GivesUp:
        def __init__(self, connection: FrameConnection) -> None:
            dialling[0].cancel()
            connection.send([b"hello"])
            made.append(connection)

        def frame_received(self, frame: memoryview) -> None: ...

        def connection_lost(self, error: Exception | None) -> None:
            ends.append(error)

    made: list[FrameConnection] = []
    ends: list[Exception | None] = []
    dialling: list[asyncio.Task[FrameConnection]] = []

    async def scenario(brokers: Brokers) -> None:
        broker = await brokers.start(1)
        dialling.append(asyncio.create_task(TcpNetwork().connect(*broker.address, GivesUp, timeout_s=PATIENCE_S)))
        with pytest.raises(asyncio.CancelledError):
            await dialling[0]
        made[0].send([b"more"])
        made[0].close()
        await until(lambda: ends)
        await broker.node.close()  # which takes some turns of the loop: time for a second report
        assert ends == [None]

    play(scenario)


def test_a_node_closes_at_the_moment_in_which_it_is_connected(play: Callable[[Scenario], None]) -> None:
    """Closing cancels the connectors when connections are made, and before the connectors hear of that."""

    class ClosesOnceConnected:
        async def connect(self, host: str, port: int, receiver: Receiver, *, timeout_s: float) -> FrameConnection:
            def received(connection: FrameConnection) -> FrameReceiver:
                closing.append(asyncio.ensure_future(one.node.close()))
                return receiver(connection)

            return await TcpNetwork().connect(host, port, received, timeout_s=timeout_s)

        async def listen(self, host: str, port: int, receiver: Receiver) -> NetworkListener:
            return await TcpNetwork().listen(host, port, receiver)

    closing: list[asyncio.Future[None]] = []
    one: Broker

    async def scenario(brokers: Brokers) -> None:
        nonlocal one
        two = await brokers.start(2)
        one = await brokers.start(1, network=ClosesOnceConnected())
        one.node.know(2, *two.address)
        await until(lambda: closing)
        await asyncio.gather(*closing)

    play(scenario)


def test_small_urgent_messages_do_not_wait_for_large_ones(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, _ = await brokers.start_pair()
        payload = bytes(16 << 20)
        large = [
            asyncio.create_task(one.node.request(2, Echo(n), [payload], deadline_s=PATIENCE_S, lane=Lane.DATA))
            for n in range(4)
        ]
        await asyncio.sleep(0)
        await one.node.request(2, Echo(0), deadline_s=PATIENCE_S, lane=Lane.CONTROL)
        assert not large[-1].done()
        await asyncio.gather(*large)

    play(scenario)


def test_notifications_arrive_in_order(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.start_pair()
        for number in range(1000):
            assert one.node.notify(2, Echo(number))
        await until(lambda: len(two.handler.notes) == 1000)
        assert two.handler.notes == list(range(1000))

    play(scenario)


def test_a_peer_that_goes_away_is_down_and_is_found_when_it_comes_back(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.start_pair()
        downs: list[int] = []
        one.node.on_peer_down.append(downs.append)
        request = asyncio.create_task(one.node.request(2, Hold(), deadline_s=PATIENCE_S))
        await until(lambda: len(two.handler.handled) == 2)
        await two.node.close()
        with pytest.raises(PeerLost):
            await request
        await until(lambda: downs)
        with pytest.raises(PeerUnreachable, match="nobody listens"):
            await one.node.request(2, Echo(1), deadline_s=PATIENCE_S)
        again = await brokers.start(2, port=two.address[1])
        await until(lambda: one.node.hello_of(2))
        await one.node.request(2, Echo(2), deadline_s=PATIENCE_S)
        assert again.handler.handled == [Echo(2)]
        assert downs == [2]

    play(scenario)


@pytest.mark.process
def test_a_broker_that_founds_waits_for_a_place_at_a_port_that_is_full(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        full = await brokers.start(2, bounds=PeerBounds(connections_max=len(Lane)))
        one, holder = await brokers.start(1), await brokers.start(3)
        holder.node.know(2, *full.address)
        await holder.node.request(2, Echo(0), deadline_s=PATIENCE_S)
        await until(lambda: full.node.statistics.accepts == len(Lane))
        named = [NamedVoter(1, one.address), NamedVoter(2, full.address)]
        refusals: list[BaseException] = []

        async def ask(address: tuple[str, int]) -> QuorumDescribed:
            try:
                await one.node.request_at(*address, Echo(1), deadline_s=PATIENCE_S)
            except PeerBusy as error:
                refusals.append(error)
                raise
            return QuorumDescribed(2, "disk 2", "", 0, (), b"", -1, tuple(map(str, named)))

        founding = asyncio.ensure_future(find_origin(named[0], "disk 1", named, (), ask, SystemEntropy()))
        await until(lambda: len(refusals) > 1)
        assert not founding.done()
        holder.node.forget(2)
        assert (await founding).voters.ids == (1, 2)

    play(scenario)


def test_a_killed_process_is_down(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1)
        program = (sys.executable, "-m", "tests.integration.transport.child")
        process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                port = int(await process.stdout.readline())
            downs: list[int] = []
            one.node.on_peer_down.append(downs.append)
            one.node.know(2, HOST, port)
            request = asyncio.create_task(one.node.request(2, Hold(), deadline_s=PATIENCE_S))
            await until(lambda: one.node.statistics.requests)
        finally:
            process.kill()
            await process.wait()
        with pytest.raises(PeerLost):
            await request
        await until(lambda: downs == [2])

    play(scenario)


def test_a_cancelled_request_ends_at_the_peer(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one, two = await brokers.start_pair()
        request = asyncio.create_task(one.node.request(2, Hold(), deadline_s=PATIENCE_S))
        await until(lambda: len(two.handler.handled) == 2)
        request.cancel()
        await one.node.request(2, Echo(1), deadline_s=PATIENCE_S)
        two.handler.release.set()
        await one.node.request(2, Echo(2), deadline_s=PATIENCE_S)
        assert two.node.statistics.served == 3
        assert one.node.statistics.late_answers == 0

    play(scenario)


def test_a_host_with_several_addresses_refuses_if_all_of_them_do(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1)
        await one.node.close()
        with pytest.raises(ConnectionRefusedError):
            await TcpNetwork().connect("localhost", one.address[1], unexpected, timeout_s=PATIENCE_S)

    def unexpected(connection: FrameConnection) -> FrameReceiver:
        raise AssertionError(connection.remote)

    play(scenario)


# -- strangers -------------------------------------------------------------------------------------------------------


def test_an_http_client_is_told_where_to_go(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1)
        url = f"http://{HOST}:{one.address[1]}/topics"
        async with aiohttp.ClientSession() as session:
            for call in (session.get(url), session.post(url, data=b"x" * 10_000)):
                async with call as response:
                    assert response.status == 400
                    assert "HTTP clients go to http://127.0.0.1:8082" in await response.text()
        await asyncio.sleep(0)

    play(scenario)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "it speaks TLS, and this port plain text"),
        (b"\xff" * 100, "a frame of 4294967295 bytes is announced"),
        (struct.pack("!I", 4097), "a frame of 4097 bytes is announced"),
        (struct.pack("!I", 20) + bytes(20), "a frame of version 0 of the peer protocol came"),
        (struct.pack("!I", 20) + b"\x01" * 20, "a frame of 20 bytes is too short"),
        (struct.pack("!I", 40) + b"\x01" * 40, "does not fit into a frame"),
        (struct.pack("!I", 24) + b"\x01" + bytes(23), "checksum"),
    ],
)
def test_garbage_is_refused_and_logged(play: Callable[[Scenario], None], data: bytes, reason: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1)
        with capture_logs() as logs:
            said = await hang_up(await dial(one, data))
        assert [reason in log["reason"] for log in logs] == [True]
        if said:
            parts = unpack(memoryview(said)[4:])
            assert parts.kind is Kind.REFUSAL
            assert reason in CODEC.fault(parts.header).message

    play(scenario)


def framed(*frames: list[Buffer]) -> bytes:
    bodies = [b"".join(map(bytes, frame)) for frame in frames]
    return b"".join(struct.pack("!I", len(body)) + body for body in bodies)


HELLO = pack(Kind.HELLO, CODEC.encode(Hello(7, "x", "c")))


def test_who_is_slow_with_a_hello_is_not_waited_for(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1, bounds=PeerBounds(handshake_s_max=0.05))
        for data in (b"", b"\x00\x00", framed(HELLO)[:-1]):
            said = unpack(memoryview(await hang_up(await dial(one, data)))[4:])
            assert said.kind is Kind.REFUSAL
            assert "no hello came within 0.05 s" in CODEC.fault(said.header).message

    play(scenario)


def test_who_stops_in_the_middle_of_a_frame_is_not_waited_for(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1, timeouts=TcpTimeouts(frame_s_max=0.05))
        with capture_logs() as logs:
            await hang_up(await dial(one, framed(HELLO, HELLO)[:-1]))
        assert [log["reason"] for log in logs] == ["a frame did not arrive in time"]

    play(scenario)


def test_a_node_closes_although_another_takes_nothing_any_more(play: Callable[[Scenario], None]) -> None:
    """More is sent than the systems of both keep: the connection is broken off."""

    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1)
        request = pack(Kind.REQUEST, CODEC.encode(Echo(1)), [bytes(32 << 20)], correlation=1, timeout_ms=60_000)
        _, writer = await dial(one, framed(HELLO, request))
        await until(lambda: one.handler.handled)
        await one.node.close()
        writer.transport.abort()

    play(scenario)


@pytest.mark.parametrize("how", ["half-closed", "reset"])
def test_a_caller_that_disappears_takes_its_requests_along(play: Callable[[Scenario], None], how: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        one = await brokers.start(1)
        request = pack(Kind.REQUEST, CODEC.encode(Hold()), correlation=1, timeout_ms=60_000)
        reader, writer = await dial(one, framed(HELLO, request))
        await until(lambda: one.handler.handled)
        if how == "half-closed":
            writer.write_eof()
        else:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        said = await hang_up((reader, writer)) if how == "half-closed" else b""
        if said:
            assert unpack(memoryview(said)[4:]).kind is Kind.HELLO
        two = await brokers.start(3)
        two.node.know(1, *one.address)
        await two.node.request(1, Echo(1), deadline_s=PATIENCE_S)
        assert one.node.statistics.served == 1, "the request that was held is gone"

    play(scenario)
