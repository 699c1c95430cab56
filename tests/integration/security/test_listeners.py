"""Real brokers with a listener for operators: clients cannot take its places, and are served none of its routes."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.admin import AdminClient
from tidelog.broker.consensus.messages import DescribeQuorum, QuorumDescribed
from tidelog.testing import LocalCluster
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.certificates import ClusterCertificates
from tidelog.testing.ports import free_ports
from tidelog.transport.peer import Answer, Hello, PeerBounds, PeerNode

pytestmark = pytest.mark.process

OPS = ("/healthz", "/readyz", "/metrics")
PATIENCE_S = 30
PLACES = 4
PROBES = 32
WAITS = b"GET /topics/t/partitions/0/records?offset=0&timeout=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def asked(address: str, path: str, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    make = http.client.HTTPConnection(address, timeout=20)
    if tls is not None:
        make = http.client.HTTPSConnection(address, timeout=20, context=tls)
    try:
        make.request("GET", path)
        answer = make.getresponse()
        return answer.status, answer.read()
    finally:
        make.close()


def test_clients_get_neither_the_routes_nor_the_places_of_operators() -> None:
    settings = {"http.ops.listener": "127.0.0.1:0", "http.connections.max": str(PLACES)}
    with LocalCluster(settings=settings) as cluster, ExitStack() as held:
        client, ops = cluster.broker().url.removeprefix("http://"), cluster.broker().ops
        assert [asked(client, path)[0] for path in OPS] == [404, 404, 404]
        assert [asked(client, path)[0] for path in ("/", "/openapi.json", "/metadata")] == [200, 200, 200]
        assert asked(ops, "/topics")[0] == 404
        asyncio.run(_create(cluster))
        host, port = client.split(":")
        for _ in range(PLACES + PROBES):
            waiting = held.enter_context(socket.create_connection((host, int(port)), timeout=20))
            waiting.sendall(WAITS)
        assert asked(client, "/topics")[0] == 503
        assert [asked(ops, path)[0] for path in OPS] == [200, 200, 200]
        assert f"tidelog_http_connections {PLACES}.0" in asked(ops, "/metrics")[1].decode()


async def _create(cluster: LocalCluster) -> None:
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("t")


def test_listeners_with_tls_may_be_reached_by_anybody(tmp_path: Path) -> None:
    made = ClusterCertificates(tmp_path / "tls")
    ops = {"http.ops.listener": "0.0.0.0:0", "http.ops.security.protocol": "SSL"}
    broker = BrokerProcess(1, tmp_path, {**made.settings(1), **ops}, http="0.0.0.0:0", peer="0.0.0.0:0")
    tls = ssl.create_default_context(cafile=made.ca)
    broker.start()
    try:
        assert asked(reached(broker.ops), "/readyz", tls)[0] == 200
        assert "tidelog_insecure_listeners 0.0" in asked(reached(broker.ops), "/metrics", tls)[1].decode()
        client = reached(broker.url.removeprefix("https://"))
        assert [asked(client, path, tls)[0] for path in ("/metadata", "/metrics")] == [200, 404]
        broker.stop()
    finally:
        broker.kill()


def reached(address: str) -> str:
    """Returns an address that leads to one that is all addresses."""
    return address.replace("0.0.0.0", "127.0.0.1")


class Unasked:
    """A handler that nobody gets to."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        raise AssertionError("nobody gets to it")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        raise AssertionError("nobody gets to it")


async def test_a_broker_that_starts_outlives_a_peer_port_that_is_full(tmp_path: Path) -> None:
    bounds, hello = PeerBounds(connections_max=0), Hello(2, "life", "")
    types: list[type[msgspec.Struct]] = [DescribeQuorum, QuorumDescribed]
    full = PeerNode(TcpNetwork(), lambda: hello, types, Unasked(), SystemClock(), SystemEntropy(), bounds=bounds)
    host, port = await full.listen("127.0.0.1", 0)
    (mine,) = free_ports(1)
    voters = {"cluster.voters": f"1@127.0.0.1:{mine},2@{host}:{port}"}
    broker = BrokerProcess(1, tmp_path, voters, http="127.0.0.1:0", peer=f"127.0.0.1:{mine}")
    try:
        broker.begin()
        async with asyncio.timeout(PATIENCE_S):
            while full.statistics.refusals < 3:
                assert broker.is_running
                await asyncio.sleep(0.05)
    finally:
        broker.kill()
        await full.close()
