"""The `Network` port: one suite, both implementations. A sentence of the port's docstrings is a test here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.adapters.tcp_network import TcpNetwork, TlsNetwork
from tidelog.adapters.tls_store import TlsStore
from tidelog.config.schema import BrokerConfig
from tidelog.model.ports import Buffer, FrameConnection, Network
from tidelog.sim.kit.network import SimNetwork
from tidelog.testing.certificates import ClusterCertificates

HOST = "127.0.0.1"
PATIENCE_S = 30.0


class End:
    """A receiver that keeps what comes."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: list[memoryview] = []
        self.losses: list[Exception | None] = []
        self.news = asyncio.Event()
        self.frames_when_lost = -1

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(frame)
        self.news.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)
        self.frames_when_lost = len(self.frames)
        self.news.set()

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def wait_frames(self, count: int) -> list[bytes]:
        await self.wait(lambda: len(self.frames) >= count)
        return [bytes(frame) for frame in self.frames]

    async def wait_lost(self) -> None:
        await self.wait(lambda: bool(self.losses))


@pytest.fixture(params=["tcp", "tls", "sim"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Network:
    if request.param == "tls":
        return TlsNetwork(TlsStore(BrokerConfig.model_validate(ClusterCertificates(tmp_path).settings(1))))
    return TcpNetwork() if request.param == "tcp" else SimNetwork(random.Random(7)).host(HOST)


class Accepting:
    """A listener's receivers, as they come."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[End] = asyncio.Queue()

    def __call__(self, connection: FrameConnection) -> End:
        end = End(connection)
        self.ends.put_nowait(end)
        return end


async def connected(network: Network) -> tuple[End, End]:
    accepting = Accepting()
    listener = await network.listen(HOST, 0, accepting)
    made: list[End] = []

    def receiver(connection: FrameConnection) -> End:
        made.append(End(connection))
        return made[0]

    connection = await network.connect(*listener.address, receiver, timeout_s=PATIENCE_S)
    assert made[0].connection is connection
    async with asyncio.timeout(PATIENCE_S):
        other = await accepting.ends.get()
    await listener.close()
    return made[0], other


async def finish(*ends: End) -> None:
    for end in ends:
        end.connection.close()
    for end in ends:
        await end.wait_lost()


SIZES = [0, 1, 3, 4, 5, 100, 65_531, 65_532, 65_533, 65_536, 65_540, 200_000, 1_000_000, 0, 7]


async def test_frames_of_any_size_arrive_whole_and_in_order_both_ways(network: Network) -> None:
    ends = await connected(network)
    frames = [random.Random(size).randbytes(size) for size in SIZES]
    for one, other in (ends, ends[::-1]):
        for frame in frames:
            one.connection.send([frame])
        assert await other.wait_frames(len(SIZES)) == frames
    await finish(*ends)


async def test_a_frame_is_the_buffers_one_after_the_other_of_whatever_kind(network: Network) -> None:
    one, other = await connected(network)
    buffers: list[Buffer] = [b"by", bytearray(b"te"), memoryview(b"-s-")[1:2], b"", memoryview(bytearray(b"!"))]
    one.connection.send(buffers)
    one.connection.send([])
    assert await other.wait_frames(2) == [b"bytes!", b""]
    await finish(one, other)


async def test_a_received_frame_belongs_to_its_receiver_who_may_change_it(network: Network) -> None:
    one, other = await connected(network)
    for size in (10, 100_000):
        one.connection.send([bytes(size)])
    await other.wait_frames(2)
    for frame in other.frames:
        frame[:4] = b"mine"
    one.connection.send([bytes(10)])
    await other.wait_frames(3)
    assert [bytes(frame[:4]) for frame in other.frames] == [b"mine", b"mine", bytes(4)]
    await finish(one, other)


async def test_what_was_sent_before_a_close_arrives_and_then_the_end(network: Network) -> None:
    one, other = await connected(network)
    for number in range(100):
        one.connection.send([bytes([number]) * 10_000])
    one.connection.close()
    one.connection.close()
    one.connection.send([b"too late"])
    assert one.losses == [], "never from inside close"
    await other.wait_lost()
    await one.wait_lost()
    assert len(other.frames) == other.frames_when_lost == 100
    assert (one.losses, other.losses) == ([None], [None])
    other.connection.send([b"nobody is there"])
    other.connection.close()
    await asyncio.sleep(0)
    assert len(other.losses) == 1


async def test_nothing_is_received_after_a_close(network: Network) -> None:
    one, other = await connected(network)
    other.connection.send([b"first"])
    await one.wait_frames(1)
    other.connection.send([b"second"])
    one.connection.close()
    await one.wait_lost()
    await other.wait_lost()
    assert [bytes(frame) for frame in one.frames] == [b"first"]


async def test_a_frame_over_the_bound_breaks_the_connection(network: Network) -> None:
    one, other = await connected(network)
    other.connection.frame_bytes_max = 1000
    one.connection.send([bytes(1000)])
    await other.wait_frames(1)
    one.connection.send([bytes(1001)])
    await other.wait_lost()
    await one.wait_lost()
    assert len(other.frames) == 1


async def test_the_bound_may_be_changed_for_frames_to_come(network: Network) -> None:
    one, other = await connected(network)
    other.connection.frame_bytes_max = 10
    one.connection.send([bytes(10)])
    await other.wait_frames(1)
    other.connection.frame_bytes_max = 1 << 20
    one.connection.send([bytes(1 << 20)])
    await other.wait_frames(2)
    await finish(one, other)


async def test_nobody_listening_is_a_refusal(network: Network) -> None:
    listener = await network.listen(HOST, 0, End)
    address = listener.address
    await listener.close()
    await listener.close()
    with pytest.raises(ConnectionRefusedError):
        await network.connect(*address, End, timeout_s=PATIENCE_S)


async def test_a_listener_that_closes_keeps_what_it_took(network: Network) -> None:
    one, other = await connected(network)  # closed by now
    one.connection.send([b"still here"])
    assert await other.wait_frames(1) == [b"still here"]
    await finish(one, other)


async def test_a_port_is_taken_once(network: Network) -> None:
    listener = await network.listen(HOST, 0, End)
    with pytest.raises(OSError, match=r"(?i)in use|taken"):
        await network.listen(*listener.address, End)
    await listener.close()


async def test_bytes_that_nobody_takes_are_counted(network: Network) -> None:
    one, other = await connected(network)
    assert one.connection.queued_bytes == 0
    for _ in range(64):
        one.connection.send([bytes(1 << 20)])
    assert one.connection.queued_bytes > 32 << 20
    await other.wait_frames(64)
    await finish(one, other)
    assert one.connection.queued_bytes == 0


async def test_both_ends_have_a_name_for_people(network: Network) -> None:
    one, other = await connected(network)
    assert one.connection.remote.startswith(f"{HOST}:")
    assert other.connection.remote.startswith(f"{HOST}:")
    await finish(one, other)
