"""The HTTP listener with TLS, in this process: what a connection knows of its client."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from tests.integration.http.conftest import STOP_S, Site
from tests.integration.http.wire import TIMEOUT_S, Wire, ask
from tidelog.adapters.log_lines import LogLevel
from tidelog.adapters.system import thread_busy_s
from tidelog.adapters.tls_store import TlsStore
from tidelog.broker.auditing import Auditing
from tidelog.broker.http.connection import Connection
from tidelog.broker.http.server import HttpServer, http_listener, start_http
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import Endpoint
from tidelog.testing.certificates import ClusterCertificates


@pytest.fixture
def made(tmp_path: Path) -> ClusterCertificates:
    return ClusterCertificates(tmp_path / "tls")


@pytest.fixture
async def encrypted(site: Site, made: ClusterCertificates) -> AsyncIterator[HttpServer]:
    """A second listener of the site's broker, which asks for certificates."""
    settings = {**made.settings(1), "ssl.client.auth": "requested"}
    listener = replace(http_listener(site.broker.face.cluster.config), bind=Endpoint("127.0.0.1", 0))
    store = TlsStore(BrokerConfig.model_validate(settings))
    server = await start_http(
        site.broker.face, listener, "localhost", thread_busy_s, LogLevel("info"), store, is_encrypted=True
    )
    yield server
    await server.stop(STOP_S)


async def seen_by(server: HttpServer, context: ssl.SSLContext) -> Connection:
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{server.address[1]}/metrics"
        async with session.get(url, ssl=context) as answer:
            assert answer.status == 200
            assert "tidelog_tls_certificate_expiry_timestamp_seconds" in await answer.text()
            (connection,) = server._server.connections
            return cast("Connection", connection)


async def test_a_connection_knows_the_certificate_that_its_client_showed(
    encrypted: HttpServer, made: ClusterCertificates
) -> None:
    context = ssl.create_default_context(cafile=made.ca)
    context.load_cert_chain(made.client("alice"))
    certificate = (await seen_by(encrypted, context)).certificate
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "alice"),),)


async def test_a_client_without_a_certificate_has_none(encrypted: HttpServer, made: ClusterCertificates) -> None:
    assert (await seen_by(encrypted, ssl.create_default_context(cafile=made.ca))).certificate is None


async def test_a_handshake_that_fails_is_on_record(site: Site, made: ClusterCertificates, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {**made.settings(1), "ssl.client.auth": "required", "audit.log.file": str(path)}
    config = BrokerConfig.model_validate(settings)
    store, auditing = TlsStore(config), Auditing(config)
    listener = replace(http_listener(config), bind=Endpoint("127.0.0.1", 0))
    face = auditing.open(site.broker, store)
    server = await start_http(face, listener, "localhost", thread_busy_s, LogLevel("info"), store, is_encrypted=True)
    with pytest.raises(aiohttp.ClientError):
        await seen_by(server, ssl.create_default_context(cafile=made.ca))
    assert (await ask(server.address, "GET", "/topics")).status == 400
    await site.until(lambda: len(store.refused) == 2)
    for _ in range(20):
        await ask(server.address, "GET", "/topics")
    await server.stop(STOP_S)
    await auditing.close()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert {(line["event"], line["address"], line["listener"], line["status"]) for line in lines} == {
        ("denied", "127.0.0.1", "http", 0)
    }
    reasons = Counter(line["reason"] for line in lines)
    assert reasons["TLS: handshake: peer did not return a certificate"] == 1
    assert 1 <= reasons["TLS: plain text: it speaks no TLS"] < 20, "a line a second"


async def test_plain_text_is_told_so_and_gets_no_further(encrypted: HttpServer) -> None:
    """F102."""
    async with await Wire.open(encrypted.address) as wire:
        reply = await wire.request("POST", "/topics/t", b'{"records": [{"value": 1}]}')
        assert (reply.status, b"https" in reply.body) == (400, True)
        assert await wire.is_closed()


async def test_tls_at_a_plain_port_fails_and_is_read_as_no_request(site: Site, made: ClusterCertificates) -> None:
    """F102."""
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(*site.address, ssl=ssl.create_default_context(cafile=made.ca))
    assert site.values() == []


@pytest.mark.parametrize("version", [1, 2, 3], ids=["TLS 1.0", "TLS 1.1", "TLS 1.2"])
async def test_older_versions_of_tls_are_refused(encrypted: HttpServer, version: int) -> None:
    """F102: 1.2 is for who asks for it in the settings."""
    body = bytes([3, version]) + bytes(32) + b"\x00" + b"\x00\x04\xc0\x2b\x00\x2f" + b"\x01\x00"
    hello = b"\x01" + len(body).to_bytes(3, "big") + body
    async with await Wire.open(encrypted.address) as wire:
        wire.write(b"\x16\x03\x01" + len(hello).to_bytes(2, "big") + hello)
        async with asyncio.timeout(TIMEOUT_S):
            answer = await wire.reader.read()
    alert, protocol_version = 21, 70
    assert (answer[0], answer[-1]) == (alert, protocol_version)
