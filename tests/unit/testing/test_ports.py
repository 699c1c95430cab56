"""Ports for brokers that must know each other's before they start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tidelog.testing import ports
from tidelog.testing.commands import HOST, start_command, voters_setting
from tidelog.testing.ports import PORTS, HeldPorts, free_ports, is_free


def test_ports_are_different_and_free_and_not_those_that_systems_hand_out() -> None:
    found = free_ports(6)
    assert len(set(found)) == 6
    assert all(port in PORTS and is_free(port) for port in found)


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as taken:
        assert not is_free(taken.getsockname()[1])


def test_a_held_port_is_found_by_no_search_and_can_be_listened_on_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldPorts()
    (port,) = held.take(1)
    monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
    for _ in range(2):
        with pytest.raises(OSError, match="no 1 free ports"):
            free_ports(1)
        with socket.create_server((HOST, port)) as broker, socket.create_connection((HOST, port)) as client:
            accepted, _ = broker.accept()
            client.close()
            accepted.close()
    with pytest.raises(OSError, match="no 1 free ports"):
        HeldPorts().take(1)
    held.release()
    assert free_ports(1) == [port]


def test_there_may_be_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    monkeypatch.setattr(ports, "PORTS", range(first, first + 1))
    assert free_ports(1) == [first]
    with pytest.raises(OSError, match="no 2 free ports"):
        free_ports(2)
    with pytest.raises(OSError, match="no 1 free ports"):
        free_ports(1, excluded=[first])
    assert second in PORTS


def test_the_command_of_a_broker() -> None:
    words = start_command(2, Path("/d"), "127.0.0.1:8083", peer="127.0.0.1:9193", settings={"a.b": "c d"})
    assert words[1:] == [
        "-m", "tidelog", "start", "--data-dir", "/d", "--node-id", "2", "--http", "127.0.0.1:8083",
        "--peer", "127.0.0.1:9193", "--set", "a.b=c d",
    ]  # fmt: skip
    assert voters_setting(["127.0.0.1:9192", "127.0.0.1:9193"]) == "1@127.0.0.1:9192,2@127.0.0.1:9193"
