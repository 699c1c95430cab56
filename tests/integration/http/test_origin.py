"""What web pages of strangers can do to a broker on their reader's machine: nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.integration.http.conftest import Site, simulated
from tests.integration.http.wire import Reply
from tidelog.broker.http.routes import ROUTES
from tidelog.model.access import Operation

EVIL = {"Origin": "http://evil.example"}
BODY = b'{"records":[{"value":"QQ=="}]}'


async def ask_as(site: Site, host: str, target: str = "/topics", headers: Mapping[str, str] | None = None) -> Reply:
    """A GET under this `Host`."""
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    async with await site.wire() as wire:
        wire.write("\r\n".join([*lines, "", ""]).encode())
        return await wire.read()


@pytest.mark.parametrize(
    "headers", [EVIL, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
async def test_a_page_of_another_origin_changes_nothing(site: Site, headers: dict[str, str]) -> None:
    for route in ROUTES:
        if route.method == "GET" or route.operation is Operation.NONE:
            continue
        names = {"cluster_id": site.broker.cluster_id, "topic": "t", "partition": 0, "broker_id": 1, "name": "n"}
        target = route.template.format(**names, group="g", instance="i", consumer="c")
        reply = await site.ask(route.method, target, BODY, headers)
        assert (reply.status, reply.code) == (403, 40302), route
        assert "access-control-allow-origin" not in reply.headers
    assert site.values() == []
    assert sorted(site.broker.image.topics) == ["t"]
    assert 'tidelog_http_refused_total{reason="foreign origin"}' in await site.metrics()


async def test_a_page_of_the_listener_itself_and_programs_are_served(site: Site) -> None:
    own = {"Origin": "http://test", "Sec-Fetch-Site": "same-origin"}
    for headers in ({}, own, {"Origin": "http://test"}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Mode": "cors"}):
        assert (await site.ask("POST", "/topics/t", BODY, headers)).status == 200
    assert len(site.values()) == 5


async def test_a_page_is_not_told_that_it_may_read(site: Site) -> None:
    reply = await site.get("/topics", {**EVIL, "Sec-Fetch-Site": "cross-site"})
    assert reply.status == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]
    asked = {**EVIL, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    assert (await site.ask("OPTIONS", "/topics/t", None, asked)).status == 405


async def test_a_name_that_leads_here_by_a_trick_is_refused(site: Site) -> None:
    for target in ("/topics", "/metadata", "/metrics", "/v3/clusters", "/topics/t/partitions/0/records?offset=0"):
        reply = await ask_as(site, f"evil.example:{site.address[1]}", target)
        assert (reply.status, reply.code) == (421, 42101)
        assert "http.hosts" in reply.message
    assert (await ask_as(site, "evil.example", "/healthz")).status == 200, "who looks after brokers uses any name"


async def test_the_names_of_a_broker_are_known() -> None:
    async with simulated(settings={"http.hosts": "tidelog.example.com,*.svc.cluster.local"}) as site:
        port = site.address[1]
        for host in ("127.0.0.1", "localhost", "[::1]", "broker1", "tidelog.example.com", "a.b.svc.cluster.local"):
            assert (await ask_as(site, f"{host}:{port}")).status == 200
        assert (await ask_as(site, "cluster.local")).status == 421
    async with simulated(settings={"http.listener": "Broker.example.com:8082"}) as site:
        assert (await ask_as(site, "broker.example.com:8082")).status == 200
        assert (await ask_as(site, "other.example.com:8082")).status == 421
    async with simulated(settings={"http.hosts": ["*"]}) as site:
        assert (await ask_as(site, "evil.example")).status == 200
