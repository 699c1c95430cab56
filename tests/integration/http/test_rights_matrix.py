"""Every route, asked by everybody: nobody, with a bad, an expired and a revoked token, as another principal, as one who
has just the right that the route table names, and as a super user. The oracle is a broker without access control."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, Site
from tidelog.broker.http.route import Route
from tidelog.broker.http.routes import ROUTES
from tidelog.controller.access_commands import AddAcls, RemoveAcls, RemoveTokens, StoreToken
from tidelog.model.access import CLUSTER, Acl, Operation, check_principal
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

NAMES = {
    "topic": "absent",
    "group": "g",
    "partition": "0",
    "broker_id": "77",
    "instance": "i",
    "name": "retention.ms",
    "consumer": "c",
    "user": "nobody",
    "token_id": "none",
}
STRANGERS = ("nobody", "empty", "nonsense", "bad", "expired", "revoked")
WHO = (*STRANGERS, "other", "right", "root")
SECURE = {"http.authentication": "token,basic", "authorizer.enabled": True, "super.users": "User:root"}
JUDGED_BY_HANDLER = {
    ("GET", "/metadata"): 200,
    ("POST", "/offsets"): 200,
    ("POST", "/batches"): 411,
    ("GET", "/topics"): 200,
    ("GET", "/topics/-/configs"): 200,
    ("GET", "/topics/-/partitions/-/reassignment"): 200,
    ("GET", "/topics/-/partitions/-/losses"): 200,
    ("GET", "/consumer-groups"): 200,
    ("GET", "/tokens"): 200,
    ("POST", "/topics"): 403,
    ("POST", "/tokens"): 403,
    ("DELETE", "/tokens/{token_id}"): 403,
}
"""Says what another principal is told where only the handler knows the resources; the answers show none of them."""

BODIES = {
    ("POST", "/offsets"): b'{"partitions": [{"topic": "absent", "partition": 0}]}',
    ("POST", "/topics"): b'{"topic_name": "absent", "validate_only": true}',
    ("POST", "/tokens"): b'{"principal": "User:somebody"}',
}


@dataclass
class Sites:
    """A broker with access control, another without, and tokens for the first."""

    guarded: Site
    open: Site
    tokens: dict[str, str | None]


async def token_for(site: Site, principal: str, expires_ms: int = 0) -> str:
    token, secret = site.broker.face.login.made_token(check_principal(principal), expires_ms, "")
    await site.admin.change_access(StoreToken(token))
    return f"{token.token_id}.{secret}"


@pytest.fixture
async def sites() -> AsyncIterator[Sites]:
    made = [Site(SimDisk(), SimRunner(Random(seed), mean_s=0.0002)) for seed in (1, 2)]
    guarded, open_to_all = made
    await guarded.start(SECURE)
    await open_to_all.start()
    for site in made:
        await site.topic("hidden")
    tokens: dict[str, str | None] = {"nobody": None, "empty": "", "nonsense": "x"}
    tokens |= {who: await token_for(guarded, f"User:{who}") for who in ("right", "other", "root", "revoked")}
    root, revoked = str(tokens["root"]), str(tokens["revoked"])
    await guarded.admin.change_access(RemoveTokens([revoked.partition(".")[0]]))
    tokens["expired"] = await token_for(guarded, "User:root", round(time.time() * 1000) - 1)
    tokens["bad"] = f"{root[:-1]}{'1' if root.endswith('0') else '0'}"
    yield Sites(guarded, open_to_all, tokens)
    for site in made:
        await site.stop()


async def status(site: Site, route: Route, token: str | None = None) -> tuple[int, bytes]:
    path = route.template.format(cluster_id=site.broker.cluster_id, **NAMES)
    body = BODIES.get((route.method, short(route)))
    headers = JSON_DOCUMENT if body else {}
    if token is not None:
        headers = {**headers, "Authorization": f"Bearer {token}"}
    reply = await site.ask(route.method, path, body, headers)
    return reply.status, reply.body


async def test_everybody_at_every_route(sites: Sites) -> None:
    """F100."""
    wrong = []
    for route in ROUTES:
        told = await told_at(sites, route)
        due = await due_at(sites, route)
        wrong += [f"{route.method} {route.template}: {who} {told[who]}, not {due[who]}" for who in due
                  if told[who] != due[who]]  # fmt: skip
    assert not wrong


async def due_at(sites: Sites, route: Route) -> dict[str, int]:
    """Returns what everybody is to be told."""
    right, _ = await status(sites.open, route)
    if route.operation is Operation.NONE:
        return dict.fromkeys(WHO, right)
    other = JUDGED_BY_HANDLER[route.method, short(route)] if route.is_judged_by_handler else 403
    return {**dict.fromkeys(STRANGERS, 401), "other": other, "right": right, "root": right}


async def told_at(sites: Sites, route: Route) -> dict[str, int]:
    """Returns what everybody is told."""
    told = {}
    for who in (*STRANGERS, "other"):
        told[who], body = await status(sites.guarded, route, sites.tokens[who])
        assert b"hidden" not in body
    acl = acl_for(route)
    await sites.guarded.admin.change_access(AddAcls([acl]))
    told["right"], _ = await status(sites.guarded, route, sites.tokens["right"])
    await sites.guarded.admin.change_access(RemoveAcls([acl]))
    told["root"], _ = await status(sites.guarded, route, sites.tokens["root"])
    return told


def acl_for(route: Route) -> Acl:
    """The one right that the route takes; who asks for a token that there is not has to have the right to all."""
    resource = CLUSTER if short(route) == "/tokens/{token_id}" else route.resource(NAMES)
    operation = "All" if route.operation is Operation.NONE else route.operation.value
    return Acl(resource.type, "Literal", resource.name, "User:right", "*", operation, "Allow")


def short(route: Route) -> str:
    return route.path.removeprefix("/clusters/{cluster_id}")


def test_the_routes_that_are_judged_by_their_handlers_are_those_in_the_table() -> None:
    found = {(route.method, short(route)) for route in ROUTES if route.is_judged_by_handler}
    assert found == set(JUDGED_BY_HANDLER)


def test_a_route_that_names_no_right_cannot_be_made() -> None:
    """The table of routes is made when the broker is imported, so such a route fails at the start."""
    with pytest.raises(TypeError, match="'operation' and 'resource'"):
        Route("GET", "/new", handler=ROUTES[0].handler)  # type: ignore[call-arg]  # that is the point
