"""A REST consumer instance belongs to who has created it: for others there is no such instance, whatever they ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from tests.integration.http.conftest import JSON_V2, Site
from tests.integration.http.test_guard import SECURE, Secure, bearer
from tests.integration.http.wire import Reply
from tests.integration.rest_consumers.conftest import CONTROL
from tidelog.broker.http.routes import ROUTES
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

PARTITIONS = {"partitions": [{"topic": "t", "partition": 0}]}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/subscription"): {"topics": ["t"]},
    ("POST", "/assignments"): PARTITIONS,
    ("POST", "/positions"): {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
    ("POST", "/positions/beginning"): PARTITIONS,
    ("POST", "/positions/end"): PARTITIONS,
    ("POST", "/offsets"): {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
    ("GET", "/offsets"): PARTITIONS,
}
TEMPLATE = "/consumers/{group}/instances/{instance}"


class Owned(Secure):
    """Alice and Bob may both read topic `t` in group `g`; an instance of Alice's is assigned its partition."""

    alice: str
    bob: str

    async def of(self, token: str, method: str, rest: str, instance: str = "i") -> Reply:
        body = BODIES.get((method, rest.partition("?")[0]))
        sent = None if body is None else json.dumps(body).encode()
        headers = {**bearer(token), **(CONTROL if sent else {})}
        return await self.site.ask(method, f"/consumers/g/instances/{instance}{rest}", sent, headers)

    async def create(self, token: str, name: str = "i") -> Reply:
        body = json.dumps({"name": name, "format": "json", "auto.offset.reset": "earliest"}).encode()
        return await self.site.ask("POST", "/consumers/g", body, {**JSON_V2, **bearer(token)})


@pytest.fixture
async def owned() -> AsyncIterator[Owned]:
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start(SECURE)
    await site.topic()
    made = Owned(site)
    made.root = await made.token("root")
    for name in ("alice", "bob"):
        await made.allow(name, "Read")
        await made.allow(name, "Write")
        await made.allow(name, "Read", "Group", "g")
    made.alice, made.bob = await made.token("alice"), await made.token("bob")
    assert (await made.create(made.alice)).status == 200
    assert (await made.of(made.alice, "POST", "/assignments")).status == 204
    yield made
    await site.stop()


def routes() -> list[tuple[str, str]]:
    found = [(route.method, route.path.removeprefix(TEMPLATE)) for route in ROUTES if route.path.startswith(TEMPLATE)]
    return sorted(found, key=lambda route: (route[0] == "DELETE", route))


async def test_no_route_knows_another_ones(owned: Owned) -> None:
    asked = routes()
    assert len(asked) >= 12 and {*BODIES}.issubset(asked)
    for method, rest in asked:
        query = "?timeout=0" if rest == "/records" else ""
        theirs = await owned.of(owned.bob, method, rest + query)
        absent = await owned.of(owned.bob, method, rest + query, "j")
        assert (theirs.status, theirs.code) == (404, 40403), (method, rest)
        assert theirs.body.replace(b"instance i:", b"") == absent.body.replace(b"instance j:", b""), (method, rest)
    assert (await owned.ask(owned.alice, "POST", "/topics/t", {"records": []})).status != 404
    shown = await owned.of(owned.alice, "GET", "/assignments")
    assert shown.json() == PARTITIONS, "nobody has touched it"
    assert (await owned.create(owned.bob)).code == 40902, "a name is taken, whoever has it"


async def test_its_owner_and_super_users_go_on(owned: Owned) -> None:
    await owned.site.ask("POST", "/topics/t", b'{"records":[{"value":1}]}', {**JSON_V2, **bearer(owned.alice)})
    other = await owned.token("alice")
    assert [one["value"] for one in (await owned.of(other, "GET", "/records")).json()] == [1], "by any token"
    assert (await owned.of(owned.root, "GET", "/assignments")).json() == PARTITIONS
    assert (await owned.of(owned.root, "DELETE", "")).status == 204
    assert (await owned.of(owned.alice, "GET", "/assignments")).code == 40403


async def test_the_owner_is_known_after_a_start(owned: Owned) -> None:
    site = owned.site
    await site.stop()
    await site.start(SECURE)
    for token, status in ((owned.bob, 404), (owned.alice, 200), (owned.bob, 404)):
        assert (await owned.of(token, "GET", "/assignments")).status == status


async def test_who_looks_for_anothers_does_not_keep_it_alive(owned: Owned) -> None:
    assert (await owned.create(owned.alice, "k")).status == 200
    registry = owned.site.broker.face.rest_consumers._registry
    assert (await owned.of(owned.bob, "GET", "/assignments")).status == 404
    longest = registry.longest_quiet()
    assert longest is not None and longest.name == "i"
