"""The `Network` port for simulated machines: one `SimNetwork` for all, a `SimHost` for each start of a machine.

It works on any event loop, through timers alone: on the loop with the virtual clock, where delays cost nothing, and on
an ordinary one. Everything random is drawn from the one stream that it is given, in the order of events, so a run is a
function of its seed. Faults are caused by the caller: `link(a, b)` has the conditions of each direction
(`tidelog.sim.kit.network_link`), a `SimHost` can be killed, lose its power, be paused, and `reset` breaks connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable

from tidelog.model.ports import FrameConnection, FrameReceiver, NetworkListener
from tidelog.sim.kit.network_link import Link
from tidelog.sim.kit.network_pipe import Host, Pipe, SimConnection
from tidelog.sim.kit.network_replay import replay_of

FIRST_PORT = 32768

Receiver = Callable[[FrameConnection], FrameReceiver]


class SimNetwork:
    """All simulated machines' hosts, and the links between them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.statistics: Counter[str] = Counter()
        """Counts of events and of injected faults."""
        self.overhearers: list[Callable[[SimConnection, bytes], None]] = []
        """Functions that are called with each frame, and with the end of the connection where it is about to arrive."""
        self._hosts: dict[str, SimHost] = {}
        """Newest host of each machine, by address."""
        self._links: dict[tuple[str, str], Link] = {}
        self._replays = 0

    def host(self, address: str) -> SimHost:
        """Returns the machine's host, or a new one if the last was killed."""
        host = self._hosts.get(address)
        if host is None or not host.is_alive:
            host = self._hosts[address] = SimHost(self, address)
            self.wake(address)  # for whoever still sends to an earlier life
        return host

    def is_up(self, address: str) -> bool:
        """Returns True if the machine has power: then it refuses connections when no process listens."""
        host = self._hosts.get(address)
        return host is not None and not host.is_gone

    def is_paused(self, address: str) -> bool:
        """Returns True if the machine is paused: nothing reaches or leaves it for now."""
        host = self._hosts.get(address)
        return host is not None and host.is_alive and host.is_paused

    def link(self, source: str, target: str) -> Link:
        """Returns the link from one machine to another; the same object each time."""
        return self._links.setdefault((source, target), Link(source, target, self.statistics))

    def links(self) -> list[Link]:
        """Returns every link that was ever used or asked for, in that order."""
        return list(self._links.values())

    def cut(self, machine: str, peer: str) -> None:
        """Cuts both directions between two machines."""
        self.link(machine, peer).cut()
        self.link(peer, machine).cut()

    def heal(self) -> None:
        """Ends all cuts and clogs."""
        for link in self.links():
            link.heal()

    def reset(self, machine: str, peer: str, *, is_single: bool = False) -> None:
        """Breaks all connections between two machines, or only the oldest; frames under way are lost."""
        host = self._hosts.get(machine)
        for end in list(host.connections) if host is not None else ():
            if end.far_end is not None and end.far_end.host.address == peer:
                self.statistics["reset"] += 1
                end.reset()
                if is_single:
                    return

    def accept(self, address: str, port: int, link: Link) -> SimListener | None:
        """Returns the listener at an address and port; None if the connection is refused."""
        host = self._hosts.get(address)
        listener = host.listeners.get(port) if host is not None and host.is_alive else None
        return None if link.refuses else listener

    def wake(self, address: str) -> None:
        """Checks again which frames from or to a machine may pass."""
        for link in self.links():
            if address in (link.source, link.target):
                for pipe in list(link.pipes):
                    pipe.wake()

    # -- frames that arrive once more ----------------------------------------------------------------------------------

    def note(self, end: SimConnection, frame: bytes) -> None:
        """Shows a frame that is about to arrive to `overhearers`, and perhaps schedules a repetition of it."""
        assert end.far_end is not None
        for overhear in list(self.overhearers):
            overhear(end, frame)
        link = end.far_end.out.link
        if not link.replay_rate or self.rng.random() >= link.replay_rate:
            return
        self._replays += 1
        replayed = replay_of(frame, self._replays)
        if replayed is not None:
            later_s = self.rng.expovariate(1 / link.replay_s_mean)
            asyncio.get_running_loop().call_later(later_s, self._replay, end.far_end.host, end.host, replayed)

    def _replay(self, caller: Host, callee: Host, frame: bytes) -> None:
        """Repeats a frame on any connection between the same two hosts that has carried a frame before."""
        if not callee.is_alive or callee.is_paused:
            return
        ends = [end for end in callee.connections if end.is_open and end.received and end.is_from(caller)]
        if ends:
            self.statistics["replayed"] += 1
            self.rng.choice(ends).take(bytearray(frame))


class SimListener:
    """`NetworkListener` on a simulated host."""

    def __init__(self, host: SimHost, port: int, receiver: Receiver) -> None:
        self.host = host
        self.receiver = receiver
        self.context = contextvars.copy_context()
        self._port = port

    @property
    def address(self) -> tuple[str, int]:
        return (self.host.address, self._port)

    async def close(self) -> None:
        self.host.listeners.pop(self._port, None)


class SimHost:
    """`Network` port of one start of a machine. After `kill` none of its callbacks runs, and it can never send
    again."""

    def __init__(self, network: SimNetwork, address: str) -> None:
        self.address = address
        self.is_alive = True
        self.is_gone = False
        """True if it has no power: it does not even refuse connections."""
        self.is_paused = False
        self.listeners: dict[int, SimListener] = {}
        self.connections: dict[SimConnection, None] = {}
        self._network = network
        self._next_port = FIRST_PORT

    # -- the port ----------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, receiver: Receiver) -> NetworkListener:
        """Listens on the machine's own address, whatever `host` says. Raises `OSError` if the port is taken."""
        self._check_alive()
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        if port in self.listeners:
            raise OSError(f"port {port} of {self.address} is taken")
        listener = self.listeners[port] = SimListener(self, port, receiver)
        return listener

    async def connect(self, host: str, port: int, receiver: Receiver, *, timeout_s: float) -> FrameConnection:
        self._check_alive()
        attempt = Attempt(self._network, self, host, port, receiver)
        try:
            async with asyncio.timeout(timeout_s):
                return await attempt.outcome
        except BaseException:
            attempt.abandon()
            raise

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise OSError("this machine is off")

    # -- what a nemesis does -----------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Ends the process: the system closes its connections, and refuses new ones. Frames already sent may arrive."""
        if self.is_alive:
            self._network.statistics["killed"] += 1
            self._die()

    def cut_power(self) -> None:
        """Ends the machine: its peers are not told, and connections to it are not refused, until its next start."""
        if self.is_alive:
            self._network.statistics["lost its power"] += 1
            self.is_gone = True
            self._die()
            self._network.wake(self.address)

    def _die(self) -> None:
        self.is_alive = False
        self.listeners.clear()
        ends, self.connections = list(self.connections), {}
        for end in ends:
            end.die(tells_peer=not self.is_gone, in_order=self._network.rng.random() < 0.5)

    def pause(self) -> None:
        """Keeps everything from reaching or leaving the machine until `resume`; its connections stay."""
        self._network.statistics["paused"] += 1
        self.is_paused = True

    def resume(self) -> None:
        """Ends the pause: waiting frames arrive now."""
        self.is_paused = False
        self._network.wake(self.address)


class Attempt:
    """Attempt to connect: a request one way, an answer the other way."""

    def __init__(self, network: SimNetwork, caller: SimHost, address: str, port: int, receiver: Receiver) -> None:
        self.outcome: asyncio.Future[SimConnection] = asyncio.get_running_loop().create_future()
        self._network = network
        self._caller = caller
        self._address = (address, port)
        self._receiver = receiver
        self._context = contextvars.copy_context()
        self._out = Pipe(network, network.link(caller.address, address))
        self._back = Pipe(network, network.link(address, caller.address))
        self._accepted_end: SimConnection | None = None
        self._out.put(self._knock)

    def _knock(self) -> None:
        address, port = self._address
        listener = self._network.accept(address, port, self._out.link)
        if listener is None:
            self._network.statistics["refused"] += 1
            self._back.put(self._refused)
            return
        end = self._accepted_end = SimConnection(
            self._network,
            listener.host,
            self._back,
            self._out,
            f"{self._caller.address}:0",
            listener.context.copy(),
            is_accepted=True,
        )
        self._back.put(self._accepted)
        end.open(listener.receiver)

    def _refused(self) -> None:
        self._out.close()
        self._back.close()
        if not self.outcome.done():
            self.outcome.set_exception(ConnectionRefusedError("nobody listens there"))

    def _accepted(self) -> None:
        end = self._accepted_end
        assert end is not None
        if self.outcome.done() or not self._caller.is_alive:
            self._out.put(end.hear_reset)
            return
        address, port = self._address
        mine = SimConnection(
            self._network, self._caller, self._out, self._back, f"{address}:{port}", self._context, is_accepted=False
        )
        mine.far_end, end.far_end = end, mine
        mine.open(self._receiver)
        self.outcome.set_result(mine)

    def abandon(self) -> None:
        """Gives the attempt up; a connection that was made all the same is closed."""
        if not self.outcome.done():
            self.outcome.cancel()
        elif not self.outcome.cancelled() and self.outcome.exception() is None:
            self.outcome.result().close()
