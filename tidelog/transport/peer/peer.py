"""`Peer`: another broker, with a connection per lane, and the detection whether it is down or silent.

A broker is *down* when all its connections were lost and its host then refused an attempt to connect: the process is
gone. A timed-out attempt does not count, since the network may be cut while the broker runs. So a killed process is
detected within one attempt, and an election need not wait for a timeout.

A broker is *silent* when responses are overdue and it does not answer pings (`transport/presence.py`): the process
hangs, or the network is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tidelog.transport.peer.bounds import Lane
from tidelog.transport.peer.common import Common
from tidelog.transport.peer.connector import Connector, Dialler
from tidelog.transport.peer.errors import PeerLost, PeerUnreachable
from tidelog.transport.peer.frames import PING_LEVEL
from tidelog.transport.presence import Presence


class Peer:
    """Another broker, and the tasks that keep the connections to it open."""

    def __init__(
        self,
        dialler: Dialler,
        common: Common,
        node_id: int,
        address: tuple[str, int],
        on_down: Callable[[int], None],
        on_silent: Callable[[int], None],
    ) -> None:
        self.node_id = node_id
        self.address = address
        quiet_s = common.bounds.quiet_s
        self.presence = Presence(
            f"node {node_id}",
            self._is_there,
            quiet_s=quiet_s,
            slow_s_max=quiet_s,
            on_silent=partial(on_silent, node_id),
        )
        self._on_down = on_down
        self._was_up = False
        """True if there was a connection since the peer was last reported as down."""
        self._down_since_s: float | None = None
        """Loop time of the report that the peer is down; None once there is a connection again."""
        self.is_in_doubt = False
        """True from the loss of all connections until an attempt to connect has shown whether the peer is down."""
        self._complaint: type[PeerUnreachable] | None = None
        self._logger = common.logger
        self._loop = asyncio.get_running_loop()
        lanes = range(Lane.DATA + common.bounds.data_lanes)
        self.lanes = {lane: Connector(dialler, common, node_id, *address, self) for lane in lanes}
        self.tasks = [
            self._loop.create_task(connector.run(), name=f"peer {node_id} lane {lane}")
            for lane, connector in self.lanes.items()
        ]
        for task in self.tasks:
            task.add_done_callback(_check)

    def connected(self) -> None:
        """Called when the connection of one lane (`Lane.CONTROL` or `Lane.DATA`) to the peer is open."""
        if not self._was_up or self._complaint:
            self._logger.info("a peer is connected", peer=self.node_id)
        self._complaint = None
        self._was_up = True
        self._down_since_s, self.is_in_doubt = None, False
        self.hurry()

    def hurry(self) -> None:
        """Ends the backoff waits of the lanes, since the peer is known to be reachable."""
        for connector in self.lanes.values():
            connector.hurry()

    @property
    def is_connected(self) -> bool:
        """True if the connection of any lane is open."""
        return any(lane.end for lane in self.lanes.values())

    @property
    def down_s(self) -> float | None:
        """Seconds since the peer was found to be down; None if it is not."""
        return None if self._down_since_s is None else self._loop.time() - self._down_since_s

    def lost(self) -> None:
        """Called when the connection of one lane has ended."""
        self.is_in_doubt = not self.is_connected

    def failed(self, why: PeerUnreachable, *, is_refused: bool) -> None:
        """Called when an attempt to connect one lane failed. If `is_refused` and no lane is connected, the peer is
        down."""
        self.is_in_doubt = False
        if type(why) is not self._complaint:  # once, not at each attempt, nor for each way to fail
            self._logger.warning("a peer cannot be reached", peer=self.node_id, reason=why.message)
            self._complaint = type(why)
        if is_refused and self._was_up and not self.is_connected:
            self._was_up, self._down_since_s = False, self._loop.time()
            self._loop.call_soon(self._on_down, self.node_id)  # what it raises is not the connectors' affair

    async def _is_there(self, seconds: float) -> bool:
        end = self.lanes[Lane.CONTROL].end
        if end is None:
            return False
        if end.level < PING_LEVEL:
            return True  # it cannot be asked, so nothing is concluded: its answers have their deadlines
        try:
            await end.ping(seconds)
        except (PeerLost, PeerUnreachable, TimeoutError):
            return False
        return True

    def stop(self) -> None:
        """Cancels the `tasks`, which the caller awaits, and closes the connections."""
        self.tasks += self.presence.close()
        for task in self.tasks:
            task.cancel()
        for connector in self.lanes.values():
            connector.stop()


def _check(task: asyncio.Task[None]) -> None:
    """Passes the exception of a connector's task, unless it was cancelled, to the loop's exception handler."""
    if not task.cancelled():
        task.result()
