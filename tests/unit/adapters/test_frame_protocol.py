"""How many system calls and copies frames cost, and what the protocol does with bytes that are no frames.

The transport here is a fake that counts: it stands for the event loop's, which this repository does not test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tidelog.adapters.frame_protocol import CHUNK_BYTES, FIRST_BYTES, GROWTH, FrameProtocol, TcpTimeouts
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.sim.kit.loop import run


class CountingTransport(asyncio.Transport):
    """Takes everything at once, and says what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[Buffer]] = []
        self.is_closed = self.is_aborted = False
        self.reading: list[str] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 5), "socket": self}.get(name, default)

    def setsockopt(self, *option: object) -> None:
        """It is its own socket."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.writes.append(list(list_of_data))

    def pause_reading(self) -> None:
        self.reading.append("pause")

    def resume_reading(self) -> None:
        self.reading.append("resume")

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class Frames:
    """A receiver."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self.losses = 0

    def __call__(self, connection: FrameConnection) -> Frames:
        return self

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.losses += 1


class Wire:
    """A protocol with a counting transport under it; made on a running loop."""

    def __init__(self, *, is_accepted: bool = True) -> None:
        self.receiver = Frames()
        self.transport = CountingTransport()
        address = (lambda: "http://10.0.0.1:8082") if is_accepted else None
        self.protocol = FrameProtocol(self.receiver, TcpTimeouts(), http_address=address)
        self.protocol.connection_made(self.transport)
        self.reads = 0
        self.largest_buffer = 0

    def receive(self, data: bytes) -> None:
        """As the event loop does: as much as fits, as often as needed."""
        view = memoryview(data)
        while view and not self.transport.is_closed:
            buffer = self.protocol.get_buffer(-1)
            self.largest_buffer = max(self.largest_buffer, len(buffer))
            count = min(len(buffer), len(view))
            assert count > 0
            buffer[:count] = view[:count]
            view = view[count:]
            self.reads += 1
            self.protocol.buffer_updated(count)

    def lose(self) -> None:
        self.protocol.connection_lost(None)

    @property
    def frames(self) -> list[bytes]:
        return [bytes(frame) for frame in self.receiver.frames]

    @property
    def written(self) -> bytes:
        return b"".join(bytes(buffer) for write in self.transport.writes for buffer in write)


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


# -- work ------------------------------------------------------------------------------------------------------------


def test_a_burst_of_small_messages_leaves_in_one_write() -> None:
    async def main() -> None:
        wire = Wire()
        for number in range(1000):
            wire.protocol.send([b"header", number.to_bytes(4)])
        assert wire.protocol.queued_bytes == 1000 * (4 + 10)
        await asyncio.sleep(0)
        assert len(wire.transport.writes) == 1
        assert wire.written == framed(*(b"header" + number.to_bytes(4) for number in range(1000)))
        assert wire.protocol.queued_bytes == 0
        wire.lose()

    run(main)


def test_payloads_are_written_from_where_they_are() -> None:
    async def main() -> None:
        wire = Wire()
        payload = bytearray(1 << 20)
        wire.protocol.send([b"header", payload])
        await asyncio.sleep(0)
        assert any(buffer is payload for buffer in wire.transport.writes[0])
        wire.lose()

    run(main)


def test_a_burst_of_small_messages_is_read_by_the_chunk() -> None:
    async def main() -> None:
        wire = Wire()
        frames = [number.to_bytes(60) for number in range(10_000)]
        wire.receive(framed(*frames))
        assert wire.frames == frames
        assert wire.reads <= 10_000 * 64 // CHUNK_BYTES + 2
        wire.lose()

    run(main)


def test_a_large_frame_is_received_into_its_place() -> None:
    async def main() -> None:
        wire = Wire()
        frame = bytes(range(256)) * (32 << 12)
        wire.receive(framed(b"small", frame, b"small"))
        assert wire.frames == [b"small", frame, b"small"]
        assert wire.reads == 6, "the chunk, the rest in four buffers, the chunk"
        assert wire.largest_buffer <= len(frame) // 2, "what a buffer has grown by"
        wire.lose()

    run(main)


def test_memory_grows_with_what_has_come_and_not_with_what_is_announced() -> None:
    async def main() -> None:
        wire = Wire()
        wire.protocol.frame_bytes_max = 64 << 20
        came = 0
        wire.receive((64 << 20).to_bytes(4))
        for size in (70_000, 1, 300_000, 1_000_000, 5_000_000):
            wire.receive(bytes(size))
            came += size
            assert came + len(wire.protocol.get_buffer(-1)) <= max(FIRST_BYTES, GROWTH * came)
        wire.lose()

    run(main)


# -- whatever the pieces ---------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(
        st.sampled_from([0, 1, 5, 1000, CHUNK_BYTES - 5, CHUNK_BYTES - 4, CHUNK_BYTES - 3, 200_000]), max_size=6
    ),
    cuts=st.lists(st.integers(1, 70_000), max_size=40),
)
def test_frames_are_the_same_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    async def main() -> None:
        wire = Wire()
        frames = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
        stream = framed(*frames)
        for cut in cuts:
            wire.receive(stream[:cut])
            stream = stream[cut:]
        wire.receive(stream)
        assert wire.frames == frames
        wire.lose()

    run(main)


@given(data=st.binary(max_size=300))
def test_garbage_ends_a_connection_or_waits_for_more_but_harms_nobody(data: bytes) -> None:
    async def main() -> None:
        wire = Wire()
        wire.protocol.frame_bytes_max = 100
        wire.receive(data)
        assert wire.largest_buffer <= CHUNK_BYTES
        assert all(len(frame) <= 100 for frame in wire.frames)
        wire.lose()
        assert wire.receiver.losses == 1

    run(main)


# -- what is not a frame -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI"]
)
def test_http_is_answered_with_directions(method: str) -> None:
    async def main() -> None:
        wire = Wire()
        wire.protocol.frame_bytes_max = 4096
        wire.receive(f"{method} /topics HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = wire.written.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"peer port" in body
        assert b"http://10.0.0.1:8082" in body
        assert wire.transport.is_closed
        assert wire.frames == []
        wire.lose()

    run(main)


def test_only_the_first_bytes_of_who_dialled_can_be_http() -> None:
    async def main() -> None:
        for wire, greeting in ((Wire(), framed(b"hello")), (Wire(is_accepted=False), b"")):
            wire.protocol.frame_bytes_max = 4096
            wire.receive(greeting + b"GET / HTTP/1.1\r\n\r\n")
            assert wire.transport.writes == []
            assert wire.transport.is_closed
            wire.lose()

    run(main)


def test_an_announced_length_is_judged_before_memory_is_taken() -> None:
    async def main() -> None:
        wire = Wire()
        wire.protocol.frame_bytes_max = 1 << 20
        with capture_logs() as logs:
            wire.receive(b"\xff\xff\xff\xffxxxx")
        assert "4294967295 bytes is announced" in logs[0]["reason"]
        assert wire.largest_buffer == CHUNK_BYTES
        assert wire.transport.is_closed
        wire.lose()

    run(main)


@pytest.mark.parametrize("beginning", [b"\x00", b"\x00\x00\x00\x05abc", (1 << 20).to_bytes(4) + bytes(1000)])
def test_an_incomplete_frame_has_a_deadline(beginning: bytes) -> None:
    async def main() -> None:
        wire = Wire()
        wire.receive(beginning)
        await asyncio.sleep(9)
        assert not wire.transport.is_closed
        with capture_logs() as logs:
            await asyncio.sleep(3)
        assert logs[0]["reason"] == "a frame did not arrive in time"
        assert wire.transport.is_closed
        wire.lose()

    run(main)


def test_a_trickle_does_not_extend_the_deadline_but_progress_from_frame_to_frame_does() -> None:
    async def main() -> None:
        trickle, stream = Wire(), Wire()
        frame = framed(bytes(100))
        for second in range(60):
            trickle.receive(b"\x00\x00\x10\x00"[second : second + 1] or b"x")
            stream.receive(frame[50:] + frame[:50] if second else frame[:50])
            await asyncio.sleep(1)
        assert trickle.transport.is_closed
        assert not stream.transport.is_closed
        assert len(stream.frames) == 59
        for wire in (trickle, stream):
            wire.lose()

    run(main)


def test_a_large_frame_has_time_for_its_size() -> None:
    async def main() -> None:
        wire = Wire()
        wire.receive((60 << 20).to_bytes(4))
        for _ in range(60):
            await asyncio.sleep(1)
            wire.receive(bytes(1 << 20))
        assert len(wire.frames) == 1
        await asyncio.sleep(100)
        assert not wire.transport.is_closed, "silence between frames is fine"
        wire.lose()

    run(main)


# -- the other side does not take it -----------------------------------------------------------------------------------


def test_who_takes_no_answers_is_not_listened_to() -> None:
    async def main() -> None:
        accepted, dialled = Wire(), Wire(is_accepted=False)
        for wire in (accepted, dialled):
            wire.protocol.pause_writing()
            wire.protocol.resume_writing()
            wire.lose()
        assert accepted.transport.reading == ["pause", "resume"]
        assert dialled.transport.reading == [], (
            "answers to its own requests must come in, or two could wait for each other"
        )

    run(main)


def test_a_close_sends_what_waits_but_not_for_ever() -> None:
    async def main() -> None:
        wire = Wire()
        wire.protocol.send([b"last words"])
        wire.protocol.close()
        assert wire.written == framed(b"last words")
        assert wire.transport.is_closed
        await asyncio.sleep(5)
        assert wire.transport.is_aborted
        wire.lose()
        assert wire.receiver.losses == 1

    run(main)
