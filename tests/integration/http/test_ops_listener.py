"""The listener of operators has routes and places of its own: clients get neither."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import aiohttp
import pytest

from tests.integration.http.conftest import STOP_S, Site, simulated
from tests.integration.http.test_guard import bearer
from tests.integration.http.wire import Wire, ask
from tidelog.adapters.tls_store import TlsStore
from tidelog.broker.http.routes import CLIENT, OPS
from tidelog.broker.http.server import HttpServer, start_ops
from tidelog.config.schema import BrokerConfig
from tidelog.controller.access_commands import StoreToken
from tidelog.model.access import check_principal
from tidelog.model.cluster import Endpoint
from tidelog.testing.certificates import ClusterCertificates

WITH_OPS = {"http.ops.listener": "127.0.0.1:0"}
PATHS = [route.template for route in OPS]


@asynccontextmanager
async def operated(
    settings: Mapping[str, object] = MappingProxyType({}), tls: TlsStore | None = None
) -> AsyncIterator[tuple[Site, HttpServer]]:
    """A broker with both listeners, whose clients may have one connection."""
    async with simulated(settings={**WITH_OPS, **settings}, connections_max=1, probes_max=0) as site:
        ops = await start_ops(site.server, Endpoint("127.0.0.1", 0), tls)
        try:
            yield site, ops
        finally:
            await ops.stop(STOP_S)


async def test_health_is_told_apart_from_the_places_of_clients() -> None:
    async with operated() as (site, ops):
        async with await site.wire() as busy:
            assert (await busy.request("GET", "/topics")).status == 200
            assert (await site.get("/topics")).status == 503
            for path in PATHS:
                assert (await ask(ops.address, "GET", path)).status == 200
            for path in ("/topics", "/metadata", "/", "/openapi.json"):
                assert (await ask(ops.address, "GET", path)).code == 40400
        await site.broker.hand_over()
        await site.server.stop(STOP_S)
        assert (await ask(ops.address, "GET", "/readyz")).code == 50306
        assert (await ask(ops.address, "GET", "/healthz")).status == 200


async def test_clients_are_served_nothing_of_operators() -> None:
    assert PATHS == ["/healthz", "/readyz", "/metrics"]
    async with operated() as (site, _), await site.wire() as client:
        for path in PATHS:
            for method in ("GET", "HEAD", "POST"):
                assert (await client.request(method, path)).status == 404
            told = await client.request("GET", path)
            assert (told.code, told.message) == (
                40400,
                f"{path} is not for clients: it is at this broker's http.ops.listener",
            )
            assert (await client.request("GET", f"{path}/")).status == 404
        assert (await client.request("GET", "/")).status == 200
        shown = (await client.request("GET", "/openapi.json")).json()["paths"]
        assert [*shown] == [*dict.fromkeys(route.template for route in CLIENT)]


async def test_without_one_all_is_at_the_listener_of_clients(site: Site) -> None:
    for path in PATHS:
        assert (await site.get(path)).status == 200


async def test_operators_have_as_many_places_as_they_are_given() -> None:
    async with operated({"http.ops.connections.max": 2}) as (_, ops):
        held = [await Wire.open(ops.address) for _ in range(3)]
        for one in held[:2]:
            assert (await one.request("GET", "/healthz")).status == 200
        assert (await held[2].read("GET")).code == 50305
        for one in held:
            await one.close()


async def test_what_operators_ask_is_counted_with_the_rest() -> None:
    async with operated() as (_, ops):
        assert (await ask(ops.address, "GET", "/readyz")).status == 200
        page = (await ask(ops.address, "GET", "/metrics")).body.decode()
        assert 'tidelog_http_requests_total{method="GET",route="/readyz",status="200"} 1.0' in page


async def test_the_name_that_operators_connect_to_is_known() -> None:
    async with operated({"http.ops.listener": "ops.example.com:9100"}) as (_, ops):
        for host, status in (("ops.example.com:9100", 200), ("evil.example.com", 421)):
            async with await Wire.open(ops.address) as wire:
                wire.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert (await wire.read()).status == status


# -- who is asking ---------------------------------------------------------------------------------------------------

ACCESS = {"http.authentication": "token", "authorizer.enabled": True, "super.users": "User:root"}


async def token_of(site: Site, name: str) -> str:
    token, secret = site.broker.face.login.made_token(check_principal(f"User:{name}"), 0, "")
    await site.admin.change_access(StoreToken(token))
    return f"{token.token_id}.{secret}"


async def test_operators_log_in_as_clients_do() -> None:
    async with operated(ACCESS) as (site, ops):
        root, alice = await token_of(site, "root"), await token_of(site, "alice")
        for path in ("/healthz", "/readyz"):
            assert (await ask(ops.address, "GET", path)).status == 200
        assert (await ask(ops.address, "GET", "/metrics")).code == 40101
        assert (await ask(ops.address, "GET", "/metrics", None, bearer(alice))).code == 40301
        assert (await ask(ops.address, "GET", "/metrics", None, bearer(root))).status == 200


async def test_operators_may_have_other_ways_to_log_in() -> None:
    async with operated({**ACCESS, "http.ops.authentication": "basic"}) as (site, ops):
        refused = await ask(ops.address, "GET", "/metrics", None, bearer(await token_of(site, "root")))
        assert (refused.code, refused.headers["www-authenticate"][:5]) == (40101, "Basic")
    async with operated({"http.authentication": "token", "http.ops.authentication": ""}) as (site, ops):
        assert (await ask(ops.address, "GET", "/metrics")).status == 200
        assert (await site.get("/topics")).code == 40101


# -- with TLS --------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> ClusterCertificates:
    return ClusterCertificates(tmp_path / "tls")


async def test_operators_may_have_tls_of_their_own(made: ClusterCertificates) -> None:
    settings = {
        **made.settings(1),
        **WITH_OPS,
        "ssl.client.auth": "required",
        "http.ops.security.protocol": "SSL",
        "http.ops.ssl.client.auth": "none",
    }
    store = TlsStore(BrokerConfig.model_validate(settings))
    trusting = ssl.create_default_context(cafile=made.ca)
    async with operated(tls=store) as (site, ops), aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{ops.address[1]}/readyz", ssl=trusting) as answer:
            assert answer.status == 200
        assert "use https://" in (await ask(ops.address, "GET", "/readyz")).message
        assert dict(store.refused) == {("ops", "plain text"): 1}
        assert (await site.get("/topics")).status == 200, "clients speak what they spoke"
