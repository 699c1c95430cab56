"""Relays before the ports where brokers talk to each other: what replicas of Paxos partitions say is delivered late,
again or never, as a rule decides. All other frames pass, but for answers that are to be lost (`unanswered`).

A broker listens at 127.0.0.1, and the cluster knows it as 127.0.0.2, with the same port: there its relay listens. A
frame that is held back travels on though its sender has died, as one does that is in the network.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.testing import LocalCluster
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.commands import HOST, voters_setting
from tidelog.testing.ports import free_ports
from tidelog.transport.peer.frames import Kind, unpack
from tidelog.transport.peer.hello import Hello

START_TIMEOUT_S: Final = 90.0
KNOWN_AS: Final = "127.0.0.2"
_LENGTH: Final = struct.Struct("!I")
_FRAMES: Final = msgspec.msgpack.Decoder(PartitionFrame)
_HELLOS: Final = msgspec.msgpack.Decoder(Hello)


class Fate(Enum):
    """The fate of a message."""

    PASS = "pass"
    HOLD = "hold"
    """It is delivered by `Relays.release`."""
    REPEAT = "repeat"
    """It passes, and is delivered once more by `Relays.release`."""
    DROP = "drop"


class Said(NamedTuple):
    """A message of a replica to another, by the node ids of their brokers."""

    sender: int
    receiver: int
    frame: PaxosFrame
    payload: bytes


Rule = Callable[[Said], Fate]


class Wire:
    """A connection of a broker to another, through a relay."""

    def __init__(self, receiver: int, caller: socket.socket, callee: socket.socket) -> None:
        self.sender = 0
        self.receiver = receiver
        self.is_open = True
        self.said = 0
        """The number of messages of replicas that came."""
        self._caller = caller
        self._callee = callee
        self._lock = threading.Lock()

    def forward(self, data: bytes) -> bool:
        """Sends whole frames on. Returns whether they could be sent."""
        try:
            with self._lock:
                self._callee.sendall(data)
        except OSError:
            self.close()
        return self.is_open

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Nothing of what the caller says passes meanwhile."""
        with self._lock:
            yield

    def frames_in(self) -> bytes | None:
        """Returns the next frame of the caller, with its length before it; None at the end."""
        try:
            length = _read(self._caller, _LENGTH.size)
            return length + _read(self._caller, _LENGTH.unpack(length)[0])
        except OSError:
            return None

    def answer(self, is_lost: Callable[[], bool]) -> None:
        """Sends on what the callee says, until one of both has ended; what `is_lost` is not sent."""
        with contextlib.suppress(OSError):
            while data := self._callee.recv(1 << 16):
                with contextlib.suppress(OSError):  # whoever called may be dead
                    if not is_lost():
                        self._caller.sendall(data)
        self.close()

    def close(self) -> None:
        self.is_open = False
        for end in (self._caller, self._callee):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _read(connection: socket.socket, size: int) -> bytes:
    """Raises `OSError` if the connection ends before."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection has ended")
        data += piece
    return data


class Relays:
    """Relays, a broker each, in threads of this process."""

    def __init__(self, peers: Mapping[int, int]) -> None:
        """`peers` are the ports of the brokers, by node id."""
        self.said: list[Said] = []
        """All that was said, whatever has become of it."""
        self.rule: Rule = lambda _: Fate.PASS
        self.unanswered: set[tuple[int, int]] = set()
        """The broker that calls and the one that is called: its answers are lost. It does not answer on the same
        connection any more."""
        self._held: list[tuple[Wire, Said, bytes]] = []
        self._wires: list[Wire] = []
        self._lock = threading.Lock()
        self._listeners = []
        for node_id, port in peers.items():
            listener = socket.create_server((KNOWN_AS, port))
            self._listeners.append(listener)
            threading.Thread(target=self._listen, args=(listener, node_id, port), daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        for listener in self._listeners:
            listener.close()
        for wire in [*self._wires]:
            wire.close()

    # -- what a test does --------------------------------------------------------------------------------------------

    @property
    def held(self) -> list[Said]:
        """Returns what waits."""
        with self._lock:
            return [said for _, said, _ in self._held]

    def release(self) -> list[Said]:
        """Delivers what was held back or is to be repeated: on its own connection, or on a later one of the same two
        brokers if the receiver has ended that. Returns what was delivered."""
        with self._lock:
            held, self._held = self._held, []
        return [said for wire, said, data in held if self._deliver(wire, said, data)]

    def _deliver(self, wire: Wire, said: Said, data: bytes) -> bool:
        if wire.is_open and wire.forward(data):
            return True
        ends = (said.sender, said.receiver)
        later = [one for one in self._wires if one.is_open and (one.sender, one.receiver) == ends]
        return any(one.forward(data) for one in reversed(later))

    # -- what goes through -------------------------------------------------------------------------------------------

    def _listen(self, listener: socket.socket, node_id: int, port: int) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                caller, _ = listener.accept()
                threading.Thread(target=self._carry, args=(caller, node_id, port), daemon=True).start()

    def _carry(self, caller: socket.socket, node_id: int, port: int) -> None:
        try:
            callee = socket.create_connection((HOST, port))
        except OSError:
            caller.close()
            return
        wire = Wire(node_id, caller, callee)
        with self._lock:
            self._wires.append(wire)
        threading.Thread(
            target=wire.answer, args=[lambda: (wire.sender, wire.receiver) in self.unanswered], daemon=True
        ).start()
        while (data := wire.frames_in()) is not None:
            if self._fate(wire, data) in (Fate.PASS, Fate.REPEAT):
                wire.forward(data)
        with self._lock:
            is_awaited = any(one is wire for one, _, _ in self._held)
        if not is_awaited:
            wire.close()

    def _fate(self, wire: Wire, data: bytes) -> Fate:
        frame = unpack(memoryview(data)[_LENGTH.size :])
        if frame.kind is Kind.HELLO:
            wire.sender = _HELLOS.decode(frame.header).node_id
        if frame.kind is not Kind.NOTIFY:
            return Fate.PASS
        try:
            message = _FRAMES.decode(frame.header)
        except msgspec.ValidationError:
            return Fate.PASS  # another kind of message
        said = Said(wire.sender, wire.receiver, message.frame, bytes(frame.payload))
        with self._lock:
            wire.said += 1
            self.said.append(said)
            fate = self.rule(said)
            if fate in (Fate.HOLD, Fate.REPEAT):
                self._held.append((wire, said, data))
        return fate


class RelayedCluster(LocalCluster):
    """Brokers that reach each other through relays."""

    def __init__(self, brokers: int, *, settings: Mapping[str, str], data_dir: Path) -> None:
        super().__init__(brokers, data_dir=data_dir, start_timeout_s=START_TIMEOUT_S)
        ports = free_ports(2 * brokers)
        self._peers = dict(enumerate(ports[brokers:], start=1))
        voters = voters_setting([f"{KNOWN_AS}:{port}" for port in self._peers.values()])
        self._brokers = {
            node_id: BrokerProcess(
                node_id,
                data_dir / f"broker-{node_id}",
                {"cluster.voters": voters, **settings},
                http=f"{HOST}:{ports[node_id - 1]}",
                peer=f"{HOST}:{port}",
            )
            for node_id, port in self._peers.items()
        }

    def start(self) -> None:
        self.relays = Relays(self._peers)
        super().start()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.relays.close()
