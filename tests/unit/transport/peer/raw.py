"""The other end of a broker's connections by hand, frame by frame, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.unit.transport.peer.brokers import Broker, Echo, World, now_s
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.peer import Hello
from tidelog.transport.peer.frames import Kind, MessageCodec, pack, unpack

CODEC = MessageCodec([Echo])


class RawPeer:
    """The other end of a connection, by hand."""

    def __init__(self, connection: FrameConnection) -> None:
        self.connection = connection
        self.frames: list[tuple[Kind, bytes]] = []
        self.payloads: list[bytes] = []
        self.lost_s: float | None = None

    @classmethod
    async def connect(cls, world: World, broker: Broker, *frames: Sequence[Buffer], wait_s: float = 0.1) -> RawPeer:
        made: list[RawPeer] = []

        def receiver(connection: FrameConnection) -> RawPeer:
            made.append(cls(connection))
            return made[0]

        await world.network.host("10.0.0.9").connect(*broker.address, receiver, timeout_s=1)
        for frame in frames:
            made[0].connection.send(frame)
        await asyncio.sleep(wait_s)
        return made[0]

    def frame_received(self, frame: memoryview) -> None:
        parts = unpack(frame)
        self.frames.append((parts.kind, bytes(parts.header)))
        self.payloads.append(bytes(parts.payload))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost_s = now_s()

    def refusal(self) -> str:
        kind, header = self.frames[-1]
        assert kind is Kind.REFUSAL
        assert self.lost_s is not None
        return CODEC.fault(memoryview(header)).message


def hello_frame(hello: Hello) -> list[Buffer]:
    return pack(Kind.HELLO, CODEC.encode_hello(hello))
