"""A simulated connection: two ends, and a pipe in each direction, in which frames are under way.

Items of a pipe arrive in order, one per turn of the event loop: frames, and at last the notice that the other end has
closed (`FIN`, behind all frames) or that the connection is broken (`RST`, which discards the frames before it). An item
passes when its delay is over and nothing stops it: a cut, a clog, a paused machine. So every condition can begin and
end at any time.

A receiver's code runs in the context in which its machine connected or listened, so that every task that it starts
belongs to that machine.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidelog.model.ports import Buffer, FrameReceiver
from tidelog.sim.kit.network_link import Link

SOCKET_BYTES = 256 << 10
"""Bytes that the sender's system buffers; more than that counts as queued in the sender's process."""


class Host(Protocol):
    """Host that an end of a connection belongs to: one start of a machine."""

    address: str
    is_alive: bool
    is_paused: bool
    connections: dict[SimConnection, None]


class Network(Protocol):
    """Network that a connection is part of."""

    rng: random.Random
    statistics: Counter[str]

    def is_up(self, address: str) -> bool:
        """Returns True if the machine has power."""

    def is_paused(self, address: str) -> bool:
        """Returns True if the machine is paused: nothing reaches or leaves it for now."""

    def note(self, end: SimConnection, frame: bytes) -> None:
        """Is called with each frame that is about to arrive at this end."""


class Item(NamedTuple):
    """A frame, or a notice of the connection's end, under way in a pipe."""

    due_s: float
    size: int
    arrive: Callable[[], None]


class Pipe:
    """Direction of a connection, with the frames under way in it."""

    def __init__(self, network: Network, link: Link) -> None:
        self.link = link
        self.on_lost_patience: Callable[[], None] | None = None
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._unheard_since_s = math.inf
        """Time since when the first item waits for a cut to heal, or for a machine to be switched on."""
        self.bytes = 0
        """Bytes under way."""
        self.is_clogged = False
        """True while nothing arrives by this connection, as if its first frame were lost again and again."""
        link.pipes[self] = None

    def put(self, arrive: Callable[[], None], size: int = 0) -> None:
        """Sends an item; it arrives after all that were sent before. `arrive` is called then."""
        due_s = self._loop.time() + self.link.draw_delay_s(self._network.rng)
        self._items.append(Item(due_s, size, arrive))
        self.bytes += size
        if len(self._items) == 1:
            self.wake()

    def drop(self) -> int:
        """Discards the items under way; returns their number."""
        count = len(self._items)
        self._items.clear()
        self.bytes = 0
        return count

    def close(self) -> None:
        """Discards the items under way, and detaches the pipe from its link."""
        self.drop()
        self.link.pipes.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Checks again whether the first item may pass, in a later turn of the loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._items:
            self._timer = self._loop.call_at(max(self._items[0].due_s, self._loop.time()), self._turn)

    def _turn(self) -> None:
        self._timer = None
        if not self._items:
            return
        if self._is_blocked():
            self._wait()
            return
        self._unheard_since_s = math.inf
        item = self._items.popleft()
        self.bytes -= item.size
        self.wake()
        item.arrive()

    def _is_blocked(self) -> bool:
        link = self.link
        is_paused = self._network.is_paused(link.source) or self._network.is_paused(link.target)
        return link.is_cut or link.is_clogged or self.is_clogged or is_paused or not self._network.is_up(link.target)

    def _wait(self) -> None:
        """Waits for the event that unblocks the pipe; a cut that lasts longer than `patience_s` ends the connection."""
        is_lost = self.link.is_cut or not self._network.is_up(self.link.target)
        if not is_lost or self.on_lost_patience is None:
            self._unheard_since_s = math.inf
            return
        self._unheard_since_s = min(self._unheard_since_s, self._loop.time())
        over_s = self._unheard_since_s + self.link.patience_s
        if self._loop.time() >= over_s:
            self._network.statistics["timed out in a cut"] += 1
            self.on_lost_patience()
        else:
            self._timer = self._loop.call_at(over_s, self._turn)


class SimConnection:
    """`FrameConnection` of the machine at one end of a simulated connection. Frames are not encrypted."""

    own_name: str | None = None
    peer_name: str | None = None
    certificates: tuple[bytes, bytes] = (b"", b"")

    def __init__(
        self,
        network: Network,
        host: Host,
        out: Pipe,
        back: Pipe,
        remote: str,
        context: contextvars.Context,
        *,
        is_accepted: bool,
    ) -> None:
        self.frame_bytes_max = (1 << 32) - 1
        self.host = host
        self.remote = remote
        self.is_accepted = is_accepted
        """True if the other end opened the connection."""
        self.receiver: FrameReceiver | None = None
        self.far_end: SimConnection | None = None
        """Other end of the connection, once there is one."""
        self.received = 0
        """Number of frames that arrived."""
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._context = context
        self.out = out
        self.back = back
        self.is_open = True
        """False after `close`: nothing is sent or received any more."""
        self._is_broken = False
        """True if the connection is broken on its way, and this end has not heard of it."""
        self.is_lost = False
        """True if the receiver was told of the connection's end, or never will be."""
        host.connections[self] = None
        out.on_lost_patience = self._lose_patience

    def open(self, make_receiver: Callable[[SimConnection], FrameReceiver]) -> None:
        """Makes the receiver, in its machine's context."""
        self.receiver = self._context.run(make_receiver, self)

    # -- the port ----------------------------------------------------------------------------------------------------

    @property
    def queued_bytes(self) -> int:
        return max(0, self.out.bytes - SOCKET_BYTES)

    def send(self, buffers: Sequence[Buffer]) -> None:
        if self._is_broken or not (self.is_open and self.host.is_alive):
            return
        frame = bytearray(b"".join(buffers))
        link = self.out.link
        if link.break_rate and self._network.rng.random() < link.break_rate:
            self._network.statistics["broken in the middle of a frame"] += 1
            self._break()
            return
        if link.loses is not None and link.loses(bytes(frame)):
            self._network.statistics["lost on the way"] += 1
            return
        self.out.put(lambda: self._arrive(frame), len(frame))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.out.put(self._finish)
            self._loop.call_soon(self.lose, None)

    # -- what arrives at the other end -------------------------------------------------------------------------------

    def _arrive(self, frame: bytearray) -> None:
        far_end = self.far_end
        if far_end is None or not far_end.host.is_alive:
            self.lose(ConnectionResetError("the other machine knows nothing of this connection"))
        elif far_end.is_open:
            if len(frame) > far_end.frame_bytes_max:
                self._network.statistics["frame over the bound"] += 1
                far_end.close()
            else:
                self._network.note(far_end, bytes(frame))
                far_end.take(frame)

    def take(self, frame: bytearray) -> None:
        """Gives a frame to the receiver, in its machine's context."""
        assert self.receiver is not None
        self.received += 1
        self._network.statistics["frames"] += 1
        self._context.run(self.receiver.frame_received, memoryview(frame))

    def _finish(self) -> None:
        if self.far_end is not None:
            self.far_end.lose(None)

    def _break(self) -> None:
        """Breaks the connection in the middle of a frame: frames sent before arrive, then nothing does."""
        self._is_broken = True
        if self.far_end is not None:
            self.out.put(self.far_end.hear_reset)
        self.back.put(self.hear_reset)

    def reset(self) -> None:
        """Breaks the connection for both ends, as soon as they can hear of it; what is under way is lost."""
        for end in (self, self.far_end):
            if end is not None:
                self._network.statistics["frames lost in a reset"] += end.back.drop()
                end.back.put(end.hear_reset)

    def hear_reset(self) -> None:
        """Ends the connection at this end, whose system learns that it is broken."""
        self.lose(ConnectionResetError("the connection was reset"))

    def _lose_patience(self) -> None:
        """Ends the connection at this end after too long a cut; the other end hears of it when the way is free
        again."""
        far_end = self.far_end
        self.out.drop()
        if far_end is not None:
            self.out.put(far_end.hear_reset)
        self.out.on_lost_patience = None
        self.lose(TimeoutError("nothing that was sent is acknowledged"))

    def die(self, *, tells_peer: bool, in_order: bool) -> None:
        """Ends the connection because the process or machine of this end is dead: its receiver never runs again. The
        other end hears of it only if `tells_peer`: behind the frames under way if `in_order`, else by a reset that
        discards them."""
        self.is_open, self.is_lost = False, True
        self.out.on_lost_patience = None
        if tells_peer and in_order:
            self.out.put(self._finish)
        elif tells_peer and self.far_end is not None:
            self.out.drop()
            self.out.put(self.far_end.hear_reset)
        self._tidy()

    def lose(self, error: OSError | None) -> None:
        """Tells the receiver that the connection is over, unless it knows."""
        self.is_open = False
        if self.is_lost:
            return
        self.is_lost = True
        self.host.connections.pop(self, None)
        self._tidy()
        if self.receiver is not None and self.host.is_alive:
            self._context.run(self.receiver.connection_lost, error)

    def _tidy(self) -> None:
        if self.far_end is not None and self.is_lost and self.far_end.is_lost:
            self.out.close()
            self.back.close()

    def is_from(self, caller: Host) -> bool:
        """Returns True if this end accepted the connection and `caller` opened it."""
        return self.is_accepted and self.far_end is not None and self.far_end.host is caller
