"""The network as one simulated process sees it: its timers run on virtual time, and what it delivers reaches the
process as callbacks of that process.

So a paused process receives nothing until it is resumed, a buried one never, and deliveries stay in order with its
other callbacks. A machine's clock does not bend the delays of the network.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tidelog.model.ports import Buffer, FrameConnection, FrameReceiver, NetworkListener
from tidelog.sim.kit.network import SimHost
from tidelog.sim.kit.process import Process, context_of, outside

T = TypeVar("T")
Receiver = Callable[[FrameConnection], FrameReceiver]


class ProcessNetwork:
    """`Network` port of one process, on its machine's host."""

    def __init__(self, process: Process, host: SimHost) -> None:
        self._host = host
        self._context = context_of(process)
        self._attempts: dict[asyncio.Task[FrameConnection], None] = {}

    async def connect(self, host: str, port: int, receiver: Receiver, *, timeout_s: float) -> FrameConnection:
        """Connects to an address, and calls `receiver` in this process. Raises `OSError` or `TimeoutError`."""
        ends: list[_End] = []
        attempt = _in_the_world(self._host.connect(host, port, self._hearing(receiver, ends), timeout_s=timeout_s))
        self._attempts[attempt] = None
        attempt.add_done_callback(self._attempted, context=contextvars.Context())
        await attempt
        return ends[-1]

    def _attempted(self, attempt: asyncio.Task[FrameConnection]) -> None:
        self._attempts.pop(attempt, None)
        if not attempt.cancelled():
            attempt.exception()  # who asked may be gone

    async def listen(self, host: str, port: int, receiver: Receiver) -> NetworkListener:
        """Listens on a port of the machine; each receiver runs in this process. Raises `OSError`."""
        return await _in_the_world(self._host.listen(host, port, self._hearing(receiver, [])))

    def abandon(self) -> None:
        """Cancels the attempts to connect of a process that is dead."""
        for attempt in list(self._attempts):
            attempt.cancel()

    def _hearing(self, receiver: Receiver, ends: list[_End]) -> Receiver:
        def accept(connection: FrameConnection) -> FrameReceiver:
            end = _End(connection, self._context)
            ends.append(end)
            end.open(receiver)
            return end

        return accept


def _in_the_world(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())


class _End:
    """An end of a connection: for the process its `FrameConnection`, for the network its `FrameReceiver`."""

    def __init__(self, connection: FrameConnection, context: contextvars.Context) -> None:
        self.remote = connection.remote
        self.own_name = connection.own_name
        self.peer_name = connection.peer_name
        self.certificates = connection.certificates
        self._connection = connection
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._receiver: FrameReceiver

    def open(self, make_receiver: Receiver) -> None:
        self._loop.call_soon(self._open, make_receiver, context=self._context)

    def _open(self, make_receiver: Receiver) -> None:
        self._receiver = make_receiver(self)

    # -- what the process does ---------------------------------------------------------------------------------------

    @property
    def frame_bytes_max(self) -> int:
        return self._connection.frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, value: int) -> None:
        self._connection.frame_bytes_max = value

    @property
    def queued_bytes(self) -> int:
        return self._connection.queued_bytes

    def send(self, buffers: Sequence[Buffer]) -> None:
        outside(self._connection.send, buffers)

    def close(self) -> None:
        outside(self._connection.close)

    # -- what the network does ---------------------------------------------------------------------------------------

    def frame_received(self, frame: memoryview) -> None:
        self._loop.call_soon(self._hear, frame, context=self._context)

    def _hear(self, frame: memoryview) -> None:
        self._receiver.frame_received(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.call_soon(self._lose, error, context=self._context)

    def _lose(self, error: Exception | None) -> None:
        self._receiver.connection_lost(error)
