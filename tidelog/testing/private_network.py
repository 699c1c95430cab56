"""A network for brokers of one machine, of which any link can be cut in either direction.

Each broker gets a network namespace of its own, with one address; so does the test. A bridge joins them, as a switch
joins hosts:

    test (node 0)   broker 1    broker 2
     10.77.0.100    10.77.0.1   10.77.0.2
          |             |           |
          +----------bridge---------+

`cut(1, 2)` makes packets from 1 to 2 vanish, and only those: in the namespace of 1 the neighbour 2 is given a hardware
address that nobody has. Nothing is refused or reset; as with a broken cable, each side has to find out by itself. This
applies to open and to new connections. It needs neither a packet filter nor any kernel module but veth and bridge.

The namespaces have no names, and exist only as long as child processes that end when their standard input is closed. So
nothing is left behind after any exit, even by SIGKILL; the machine's own network is never touched. This needs root.

    with PrivateNetwork(3) as network, LocalCluster(3, network=network) as cluster:
        network.cut(1, 2)

Inside the `with` the calling thread, and threads that it starts from then on, are in the test's namespace: only there
the brokers can be reached, and nothing but the brokers.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, Self

CLIENTS: Final = 0
"""Node that stands for the test itself with all its clients."""
NODES_MAX: Final = 99
HTTP_PORT: Final = 8082
PEER_PORT: Final = 9192
KAFKA_PORT: Final = 9092
NOWHERE: Final = "02:00:00:00:00:ff"
"""Hardware address (locally administered) that no node has."""
TOOLS: Final = ("unshare", "nsenter", "ip")
_CLONE_NEWNET: Final = 0x40000000
_OWN_NAMESPACE: Final = Path("/proc/thread-self/ns/net")


class NetworkUnavailable(RuntimeError):
    """This machine or user cannot have private networks; the message says why."""


class PrivateNetwork:
    """A network of the nodes 1 to `nodes`, and the test itself as node 0. Raises `NetworkUnavailable`."""

    def __init__(self, nodes: int) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"a network of {nodes} nodes; 1 to {NODES_MAX} are possible")
        self.nodes = range(nodes + 1)
        self._cuts: set[tuple[int, int]] = set()
        self._came_from: int | None = None
        self._namespaces: list[_Namespace] = []
        try:
            for node in self.nodes:
                self._namespaces.append(_Namespace())
                self._connect(node)
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise NetworkUnavailable(_reason(error)) from error

    def _connect(self, node: int) -> None:
        """Connects a node to the bridge, which is in the test's namespace and has the test's address."""
        own, hub = self._namespaces[node], self._namespaces[CLIENTS]
        own.run("ip link set lo up")
        if node == CLIENTS:
            own.run("ip link add eth0 type bridge")
        else:
            hub.run(f"ip link add port{node} type veth peer name eth0 netns {own.pid}")
            hub.run(f"ip link set port{node} master eth0 up")
        own.run(f"ip address add {self.host(node)}/24 dev eth0")
        own.run("ip link set eth0 up")

    # -- nodes -------------------------------------------------------------------------------------------------------

    @staticmethod
    def host(node: int) -> str:
        """Returns the IP address of a node."""
        return f"10.77.0.{node or NODES_MAX + 1}"

    def words(self, node: int) -> list[str]:
        """Returns the words before a command to run it on a node. The process id stays the same."""
        return self._namespaces[node].words

    # -- cutting -----------------------------------------------------------------------------------------------------

    @property
    def cuts(self) -> Collection[tuple[int, int]]:
        """Links that are cut now, as pairs of sender and receiver."""
        return frozenset(self._cuts)

    def cut(self, sender: int, receiver: int) -> None:
        """Cuts the link from `sender` to `receiver`: all packets are lost from now on; the other direction stays as it
        is.
        """
        assert sender != receiver
        self._namespaces[sender].run(f"ip neighbour replace {self.host(receiver)} lladdr {NOWHERE} dev eth0")
        self._cuts.add((sender, receiver))

    def split(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Cuts the links between each of `some` and each of `others`, in both directions."""
        for node, peer in itertools.product(some, tuple(others)):
            self.cut(node, peer)
            self.cut(peer, node)

    def isolate(self, node: int) -> None:
        """Cuts all links of a node, also to clients, in both directions."""
        self.split([node], self._others(node))

    def mute(self, node: int) -> None:
        """Cuts all links from a node; the node still receives."""
        for peer in self._others(node):
            self.cut(node, peer)

    def deafen(self, node: int) -> None:
        """Cuts all links to a node; the node still sends."""
        for peer in self._others(node):
            self.cut(peer, node)

    def heal(self) -> None:
        """Ends all cuts."""
        for sender, receiver in sorted(self._cuts):
            self._namespaces[sender].run(f"ip neighbour delete {self.host(receiver)} dev eth0")
        self._cuts.clear()

    def _others(self, node: int) -> list[int]:
        return [peer for peer in self.nodes if peer != node]

    # -- being there -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        assert self._came_from is None
        self._came_from = os.open(_OWN_NAMESPACE, os.O_RDONLY)
        _move_thread(self._namespaces[CLIENTS].file)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._came_from is not None
        _move_thread(self._came_from)
        os.close(self._came_from)
        self._came_from = None
        self.close()

    def close(self) -> None:
        """Removes the namespaces, by ending the processes that keep them alive."""
        while self._namespaces:
            self._namespaces.pop().close()


class _Namespace:
    """A network namespace, kept alive by a child process, which ends when this process closes the child's standard
    input or dies."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo there && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pid = self._keeper.pid
        self.words = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]
        self.file = -1
        assert self._keeper.stdout is not None and self._keeper.stderr is not None
        if not self._keeper.stdout.readline():
            said = self._keeper.stderr.read()
            self.close()
            raise subprocess.CalledProcessError(1, "unshare", stderr=said)
        self.file = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)

    def run(self, command: str) -> None:
        subprocess.run([*self.words, *command.split()], check=True, capture_output=True)

    def close(self) -> None:
        if self.file != -1:
            os.close(self.file)
        self._keeper.communicate()


def unavailable() -> str:
    """Returns why private networks are not available here; empty if they are."""
    try:
        PrivateNetwork(1).close()
    except NetworkUnavailable as error:
        return str(error)
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{error.cmd} failed: {(error.stderr or b'').decode(errors='replace').strip()}"
    if isinstance(error, FileNotFoundError):
        return f"{error.filename} is not installed; the commands {', '.join(TOOLS)} are needed"
    return str(error)


def _move_thread(namespace: int) -> None:
    """Moves the calling thread into the namespace, as `os.setns` does from Python 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
