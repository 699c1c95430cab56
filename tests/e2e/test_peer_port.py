"""Strangers at the port where brokers talk to each other: whatever they send, the broker and its cluster live on."""

from __future__ import annotations

import http.client
import random
import socket
import struct
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.e2e.asking import Asked, served, until
from tidelog.testing import LocalCluster
from tidelog.testing.commands import HOST
from tidelog.transport.peer.frames import Kind, pack

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

GARBAGE = random.Random(1).randbytes(100_000)
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as cluster:
        yield cluster


def peer_port(cluster: LocalCluster, node_id: int) -> int:
    command = cluster.broker(node_id).command
    return int(command[command.index("--peer") + 1].rpartition(":")[2])


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


STRANGERS: dict[str, bytes] = {
    "nothing": b"",
    "garbage": GARBAGE,
    "an endless frame": struct.pack("!I", 0xFFFF_FFFF) + GARBAGE,
    "a frame that never ends": struct.pack("!I", 1000) + b"x" * 10,
    "an empty frame": frame(b""),
    "many empty frames": frame(b"") * 10_000,
    "a frame of garbage": frame(GARBAGE[:500]),
    "another version": frame(bytes([255, 1]) + bytes(26)),
    "a request before a hello": frame(bytes([1, 3]) + bytes(26)),
    "a hello that is no UTF-8": frame(b"".join(pack(Kind.HELLO, b"\x82\xa7node_id\x03\xabincarnation\xa4lif\xdf"))),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + GARBAGE[:500],
}


def show_out(stranger: socket.socket, sent: bytes) -> None:
    """Sends it, and waits until the broker has ended the connection, in whichever way."""
    try:
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(65_536):
            pass
    except TimeoutError:
        raise
    except OSError:
        pass


def goes_on(cluster: LocalCluster, node_id: int) -> None:
    """The broker is the same process, and part of a cluster that decides."""
    asked = Asked(cluster, node_id)
    topic = f"topic-{len(asked.topics):03}"
    assert served(lambda: asked.create(topic, partitions=3)).status == 201
    until(lambda: asked.brokers == {1: True, 2: True, 3: True})
    for partition in range(3):
        asked.append(topic, partition, "a")


@pytest.mark.parametrize("sent", STRANGERS.values(), ids=STRANGERS.keys())
def test_who_does_not_speak_the_protocol_is_shown_out(cluster: LocalCluster, sent: bytes) -> None:
    pids = [cluster.broker(node_id).pid for node_id in cluster.node_ids]
    for node_id in cluster.node_ids:
        with socket.create_connection((HOST, peer_port(cluster, node_id)), TIMEOUT_S) as stranger:
            show_out(stranger, sent)
    goes_on(cluster, 2)
    assert [cluster.broker(node_id).pid for node_id in cluster.node_ids] == pids
    assert not any("Traceback" in cluster.broker(node_id).output for node_id in cluster.node_ids)


def test_an_http_client_is_told_where_to_go(cluster: LocalCluster) -> None:
    client = http.client.HTTPConnection(HOST, peer_port(cluster, 1), timeout=TIMEOUT_S)
    client.request("GET", "/topics")
    answer = client.getresponse()
    assert answer.status == 400
    assert urlsplit(cluster.broker(1).url).netloc in answer.read().decode()
    client.close()
    goes_on(cluster, 1)


@pytest.mark.slow
def test_a_crowd_of_silent_strangers_keeps_no_broker_out(cluster: LocalCluster) -> None:
    """They hold all the connections that there are to be had; brokers that know each other need no new ones."""
    crowd = [socket.create_connection((HOST, peer_port(cluster, 1)), TIMEOUT_S) for _ in range(600)]
    try:
        goes_on(cluster, 2)
    finally:
        for stranger in crowd:
            stranger.close()
    cluster.restart(3)
    until(lambda: Asked(cluster, 1).brokers == {1: True, 2: True, 3: True})
    lines = cluster.broker(1).output.splitlines()
    assert len(lines) < 200, "strangers do not fill the log"
