"""A client's connection can be held, asks before a large frame, and tells who has come astray."""

from __future__ import annotations

from tests.unit.adapters.test_frame_protocol import CountingTransport, framed
from tidelog.adapters.client_frames import ClientFrames
from tidelog.adapters.frame_protocol import CHUNK_BYTES, PortWords, TcpTimeouts
from tidelog.model.ports import ClientConnection
from tidelog.sim.kit.loop import run

WORDS = PortWords("This is a port.", "it speaks HTTP", "it speaks TLS")


class Receiver:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.announced: list[int] = []
        self.has_room = True
        self.holds_after = 100
        self.told: list[str] = []
        self.connection: ClientConnection

    def __call__(self, connection: ClientConnection) -> Receiver:
        self.connection = connection
        return self

    def may_begin(self, length: int, begun: bytes) -> bool:
        self.announced.append(length)
        if not self.has_room:
            self.connection.hold()
        return self.has_room

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        if len(self.frames) == self.holds_after:
            self.connection.hold()

    def unclogged(self) -> None:
        self.told.append("unclogged")

    def broken_off(self, why: str) -> None:
        self.told.append(why)

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append("lost")


class Wire:
    """A client's connection over a counting transport; made on a running loop."""

    def __init__(self) -> None:
        self.receiver, self.transport = Receiver(), CountingTransport()
        self.protocol = ClientFrames(self.receiver, TcpTimeouts(), WORDS, lambda: "there", 1 << 24)
        self.protocol.connection_made(self.transport)

    def receive(self, data: bytes) -> int:
        """Gives what is taken; how much that was."""
        position = 0
        while position < len(data) and self.transport.reading[-1:] != ["pause"]:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            position += count
            self.protocol.buffer_updated(count)
        return position


def test_a_connection_that_is_held_delivers_nothing_more_and_is_not_read() -> None:
    async def main() -> None:
        wire = Wire()
        wire.receiver.holds_after = 2
        wire.receive(framed(b"one", b"two", b"three", b"four"))
        assert wire.receiver.frames == [b"one", b"two"]
        assert wire.transport.reading == ["pause"]
        wire.protocol.go_on()
        assert wire.receiver.frames == [b"one", b"two", b"three", b"four"]
        assert wire.transport.reading == ["pause", "resume"]
        wire.protocol.connection_lost(None)

    run(main)


def test_a_large_frame_is_announced_before_it_is_read_and_again_after_a_hold() -> None:
    async def main() -> None:
        wire = Wire()
        wire.receiver.has_room = False
        large = framed(b"x" * 3 * CHUNK_BYTES)
        taken = wire.receive(large)
        assert taken <= CHUNK_BYTES and wire.receiver.announced == [3 * CHUNK_BYTES]
        wire.receiver.has_room = True
        wire.protocol.go_on()
        wire.receive(large[taken:])
        assert [len(frame) for frame in wire.receiver.frames] == [3 * CHUNK_BYTES]
        assert wire.receiver.announced == [3 * CHUNK_BYTES] * 2
        wire.protocol.connection_lost(None)

    run(main)


def test_a_client_that_takes_nothing_is_not_read_even_if_it_may_go_on() -> None:
    async def main() -> None:
        wire = Wire()
        wire.protocol.pause_writing()
        wire.protocol.hold()
        wire.protocol.go_on()
        assert wire.transport.reading[-1] == "pause" and wire.protocol.is_clogged
        wire.protocol.resume_writing()
        assert wire.transport.reading[-1] == "resume" and wire.receiver.told == ["unclogged"]
        wire.protocol.connection_lost(None)

    run(main)


def test_who_comes_to_the_wrong_port_is_told_in_the_words_of_this_one() -> None:
    async def main() -> None:
        for first, why in ((b"GET / HTTP/1.1\r\n", "it speaks HTTP"), (b"\x16\x03\x01\x02\x00", "it speaks TLS")):
            wire = Wire()
            wire.receive(first)
            assert wire.receiver.told == [why] and wire.transport.is_closed
            written = b"".join(bytes(buffer) for write in wire.transport.writes for buffer in write)
            assert (b"This is a port. HTTP clients go to there." in written) == (why == "it speaks HTTP")
            wire.protocol.connection_lost(None)

    run(main)
