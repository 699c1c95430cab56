"""Keeps one connection to a peer open: connects, exchanges hellos, waits for the connection's end, and reconnects.

The first attempt after a loss starts at once. It also tells a dead peer from a broken connection: a host that refuses
the connection has lost its broker. After a failed attempt the connector waits, exponentially longer each time and with
jitter. If a new connection is lost soon, an immediate attempt follows only now and then; otherwise two brokers that
reject each other would reconnect in a loop. The wait ends early when the peer connects on its own or on the other lane.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.model.ports import FrameConnection, Network
from tidelog.transport.backoff import Backoff
from tidelog.transport.peer.calling import CallingEnd
from tidelog.transport.peer.common import Common
from tidelog.transport.peer.errors import PeerUnreachable


class Dialler:
    """Opens connections on which requests may be sent."""

    def __init__(self, network: Network, common: Common) -> None:
        self._network = network
        self._common = common

    async def dial(self, host: str, port: int, peer_id: int | None, timeout_s: float | None = None) -> CallingEnd:
        """Opens a connection and exchanges hellos. Raises `OSError`, `TimeoutError` or `PeerUnreachable`."""
        bounds = self._common.bounds
        ends: list[CallingEnd] = []

        def receiver(connection: FrameConnection) -> CallingEnd:
            ends.append(CallingEnd(connection, self._common, peer_id))
            return ends[-1]

        try:
            async with asyncio.timeout(timeout_s):
                await self._network.connect(host, port, receiver, timeout_s=bounds.connect_s_max)
                end = ends[-1]
                async with asyncio.timeout(bounds.handshake_s_max):
                    await end.wait_greeted()
        except BaseException:
            self._common.statistics.failed_connects += 1
            for end in ends:
                end.close()
            raise
        self._common.statistics.connects += 1
        return end


class Watcher(Protocol):
    """A listener for the state of a connection."""

    def connected(self) -> None:
        """Called when the connection is open."""

    def lost(self) -> None:
        """Called when the connection has ended."""

    def failed(self, why: PeerUnreachable, *, is_refused: bool) -> None:
        """Called when an attempt to connect failed; `is_refused` if the host answered that nothing listens on
        the port."""


class Connector:
    """Keeps the connection of one lane to one peer open; `run` is its task."""

    def __init__(self, dialler: Dialler, common: Common, peer_id: int, host: str, port: int, watcher: Watcher) -> None:
        self._dialler = dialler
        self._peer_id = peer_id
        self._address = (host, port)
        self._watcher = watcher
        self._backoff_s_max = common.bounds.backoff_s_max
        self._backoff = Backoff(common.entropy, initial_s=common.bounds.backoff_s_min, max_s=self._backoff_s_max)
        self._probe_after_s = 0.0
        """The time after which the loss of a connection is again followed by an immediate attempt."""
        self._end: CallingEnd | None = None
        self._settled = asyncio.Event()
        """Set unless an attempt to connect is in progress; callers that need the connection wait for it."""
        self._is_resting = False
        self._hurry = asyncio.Event()
        self._why: PeerUnreachable = PeerUnreachable(f"node {peer_id} at {host}:{port} was not dialled yet")

    @property
    def end(self) -> CallingEnd | None:
        """The connection to the peer; None while it is not open."""
        end = self._end
        return end if end is not None and end.is_open else None

    async def wait_connected(self, deadline_s: float) -> CallingEnd:
        """Returns the open connection, after an attempt in progress has ended. Raises `PeerUnreachable` with the
        reason."""
        try:
            async with asyncio.timeout_at(deadline_s):
                if self._end is not None:  # closed, and `run` hears of it first: the attempt that follows counts
                    await self._end.wait_lost()
                    await asyncio.sleep(0)
                await self._settled.wait()
        except TimeoutError:
            raise PeerUnreachable(f"{self._name()} could not be reached in time") from None
        if (end := self.end) is not None:
            return end
        raise type(self._why)(self._why.message)

    async def run(self) -> None:
        """Connects and reconnects until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._settled.clear()
            end = await self._attempt()
            self._settled.set()
            if end is not None:
                self._end = end
                self._watcher.connected()
                since_s = loop.time()
                await end.wait_lost()
                self._end = None
                self._why = self._end_of(end)
                self._watcher.lost()
                if loop.time() - since_s >= self._backoff_s_max:
                    self._backoff.reset()
                if loop.time() >= self._probe_after_s:
                    self._probe_after_s = loop.time() + self._backoff_s_max
                    continue
            await self._rest(self._backoff.next_s())

    async def _rest(self, backoff_s: float) -> None:
        self._is_resting = True
        self._hurry.clear()
        try:
            async with asyncio.timeout(backoff_s):
                await self._hurry.wait()
        except TimeoutError:
            pass
        finally:
            self._is_resting = False

    def hurry(self) -> None:
        """Ends the backoff wait, since the peer is known to be reachable."""
        if self._is_resting:
            self._settled.clear()
            self._hurry.set()

    async def _attempt(self) -> CallingEnd | None:
        try:
            return await self._dialler.dial(*self._address, self._peer_id)
        except ConnectionRefusedError:
            self._failed(PeerUnreachable(f"nobody listens at the address of {self._name()}"), is_refused=True)
        except TimeoutError:
            self._failed(PeerUnreachable(f"{self._name()} does not answer"))
        except PeerUnreachable as error:
            self._failed(error)
        except OSError as error:
            self._failed(PeerUnreachable(f"{self._name()} cannot be reached: {error}"))
        return None

    def _failed(self, error: PeerUnreachable, *, is_refused: bool = False) -> None:
        self._why = error
        self._watcher.failed(error, is_refused=is_refused)

    def stop(self) -> None:
        """Closes the connection and fails its waiters. Called after the task of `run` was cancelled."""
        self._why = PeerUnreachable(f"{self._name()} is not a peer any more")
        if self._end is not None:
            self._end.close()
            self._end = None
        self._settled.set()

    @staticmethod
    def _end_of(end: CallingEnd) -> PeerUnreachable:
        return type(end.error)(end.error.message) if end.error else PeerUnreachable("the connection was lost")

    def _name(self) -> str:
        host, port = self._address
        return f"node {self._peer_id} ({host}:{port})"
