"""A client that closes leaves no connection behind, at a broker that hangs as at one that is only just being asked."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import Iterator

import pytest

from tests.integration.doors import doors_of
from tidelog.adapters.broker_frames import dial
from tidelog.transport.errors import ClientClosed

PATIENCE_S = 30.0
BROKER = "http://broker"


class Nobody:
    """A receiver that expects nothing."""

    def __init__(self, connection: object) -> None:
        self.connection = connection

    def frame_received(self, frame: memoryview) -> None:
        raise AssertionError(bytes(frame))

    def connection_lost(self, error: Exception | None) -> None:
        pass


@pytest.fixture
def hung() -> Iterator[socket.socket]:
    """A listener whose process takes connections, and reads nothing from them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_bytes_that_a_hung_broker_does_not_take_hold_no_socket_beyond_the_loop(hung: socket.socket) -> None:
    async def main() -> None:
        host, port = hung.getsockname()
        connection = await dial(host, port, Nobody, None)
        connection.send([b"x" * (64 << 20)])
        while connection.queued_bytes == 64 << 20:
            await asyncio.sleep(0)
        assert connection.queued_bytes
        connection.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()


async def test_a_connection_that_is_being_opened_is_cut_when_the_client_closes(hung: socket.socket) -> None:
    doors = doors_of()
    doors.learn({BROKER: "{}:{}".format(*hung.getsockname())})
    async with asyncio.timeout(PATIENCE_S):
        taking = asyncio.create_task(doors.take(BROKER, PATIENCE_S))
        hung.setblocking(False)
        loop = asyncio.get_running_loop()
        broker, _ = await loop.sock_accept(hung)
        with broker:
            assert await loop.sock_recv(broker, 1 << 16)  # it asks for the versions
            doors.close()
            with pytest.raises(ClientClosed):
                await taking
            assert await loop.sock_recv(broker, 1 << 16) == b""
    assert doors.is_open(BROKER)  # nothing speaks against this broker


async def test_a_connection_that_is_made_after_the_client_has_closed_is_not_kept(hung: socket.socket) -> None:
    may_connect = asyncio.Event()
    made = []

    async def dial_late(*address: object) -> object:
        await may_connect.wait()
        made.append(await dial(*address))  # type: ignore[arg-type]  # whatever `Doors` has given
        return made[0]

    doors = doors_of(dial=dial_late)  # type: ignore[arg-type]  # a dial
    doors.learn({BROKER: "{}:{}".format(*hung.getsockname())})
    async with asyncio.timeout(PATIENCE_S):
        taking = asyncio.create_task(doors.take(BROKER, PATIENCE_S))
        await asyncio.sleep(0)
        doors.close()
        may_connect.set()
        hung.setblocking(False)
        broker, _ = await asyncio.get_running_loop().sock_accept(hung)
        broker.close()  # without an answer
        with pytest.raises(ClientClosed):
            await taking
    assert doors.is_open(BROKER)
