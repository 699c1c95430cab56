"""The HTTP listener with TLS, in this process: what a connection knows of its client."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from tests.integration.http.conftest import STOP_S, Site
from tidelog.adapters.log_lines import LogLevel
from tidelog.adapters.system import thread_busy_s
from tidelog.adapters.tls_store import TlsStore
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
