"""Networks of their own: what is cut is lost in one direction, on open connections too, and nothing is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import until
from tidelog.testing import NetworkUnavailable, PrivateNetwork, private_network

REASON = private_network.unavailable()
pytestmark = [
    pytest.mark.process,
    pytest.mark.e2e,
    pytest.mark.skipif(bool(REASON), reason=f"no private networks here: {REASON}"),
]

PORT = 7000


class Node:
    """Sends datagrams from one node of a network: what a cut swallows is not sent again."""

    def __init__(self, network: PrivateNetwork, node: int) -> None:
        program = (
            "import socket, sys\n"
            "s = socket.socket(type=socket.SOCK_DGRAM)\n"
            f"s.bind(({network.host(node)!r}, {PORT}))\n"
            "for line in sys.stdin:\n"
            f"    s.sendto(line.split()[1].encode(), (line.split()[0], {PORT}))\n"
            "    print('sent', flush=True)\n"
        )
        words = [*network.words(node), sys.executable, "-c", program]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, host: str, word: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(host, word, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "sent\n"

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def network() -> Iterator[PrivateNetwork]:
    with PrivateNetwork(2) as network:
        yield network


@pytest.fixture
def ear(network: PrivateNetwork) -> Iterator[socket.socket]:
    """The test's own."""
    with socket.socket(type=socket.SOCK_DGRAM) as ear:
        ear.bind((network.host(private_network.CLIENTS), PORT))
        ear.settimeout(10)
        yield ear


def test_a_cut_swallows_one_direction_and_can_be_healed(network: PrivateNetwork, ear: socket.socket) -> None:
    here, there = network.host(0), network.host(1)
    node = Node(network, 1)
    try:
        node.say(here, "before")
        assert ear.recvfrom(99) == (b"before", (there, PORT))
        network.cut(1, 0)
        assert network.cuts == {(1, 0)}
        node.say(here, "lost")
        network.heal()
        assert not network.cuts
        node.say(here, "after")
        assert ear.recv(99) == b"after", "what was cut is gone, not late"
    finally:
        node.close()


def test_the_other_direction_of_a_cut_goes_on(network: PrivateNetwork, ear: socket.socket) -> None:
    network.cut(0, 1)
    node = Node(network, 1)
    try:
        node.say(network.host(0), "heard")
        assert ear.recv(99) == b"heard"
    finally:
        node.close()


def test_cuts_by_name(network: PrivateNetwork) -> None:
    network.mute(1)
    assert network.cuts == {(1, 0), (1, 2)}
    network.heal()
    network.deafen(1)
    assert network.cuts == {(0, 1), (2, 1)}
    network.heal()
    network.isolate(2)
    assert network.cuts == {(2, 0), (0, 2), (2, 1), (1, 2)}
    network.heal()
    network.split([1], [2])
    assert network.cuts == {(1, 2), (2, 1)}


def test_threads_come_along_and_the_machines_own_network_is_back_afterwards() -> None:
    def interfaces() -> list[str]:
        return [name for _, name in socket.if_nameindex()]

    before = os.readlink("/proc/thread-self/ns/net")
    found: list[list[str]] = []
    with PrivateNetwork(1):
        thread = threading.Thread(target=lambda: found.append(interfaces()))
        thread.start()
        thread.join()
        assert sorted(interfaces()) == sorted(found[0]) == ["eth0", "lo", "port1"]
    assert os.readlink("/proc/thread-self/ns/net") == before


MAKER = """
from tidelog.testing import PrivateNetwork
with PrivateNetwork(1) as network:
    print(network.words(1)[1], flush=True)
    input()
"""


def test_the_namespaces_end_with_whoever_made_them() -> None:
    words = [sys.executable, "-c", MAKER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        keeper = int(maker.stdout.readline().split("/")[2])
        assert is_running(keeper)
        maker.kill()
    until(lambda: not is_running(keeper))


def is_running(pid: int) -> bool:
    """False for a zombie, too: nobody may be there to bury it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_too_many_nodes() -> None:
    with pytest.raises(ValueError, match="1 to 99 are possible"):
        PrivateNetwork(100)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NetworkUnavailable, match="unshare is not installed"):
        PrivateNetwork(1)
    assert "unshare is not installed" in private_network.unavailable()
