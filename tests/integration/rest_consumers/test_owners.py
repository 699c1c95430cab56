"""A REST consumer instance belongs to who has created it: for others there is no such instance, whatever they ask."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from tests.integration.forwarding.test_three_brokers import NODES, START_S, Machine
from tests.integration.http.conftest import JSON_V2, ROOT, Site
from tests.integration.http.test_guard import SECURE, Secure, bearer
from tests.integration.http.wire import Reply, ask
from tests.integration.rest_consumers.conftest import CONTROL
from tidelog.broker.http.routes import ROUTES
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.broker.rest_consumers.requests import ShowReading
from tidelog.controller.access_commands import AddAcls, StoreToken
from tidelog.model.access import Acl, Principal
from tidelog.model.levels import LEVEL_MAX, LEVEL_MIN
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.sim.kit.network import SimNetwork
from tidelog.transport.peer.frames import MessageCodec

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


def test_brokers_tell_each_other_who_asks_from_the_level_on_that_knows_owners() -> None:
    codec = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
    request = ShowReading(group="g", instance="i", caller="User:bob")
    assert codec.message(memoryview(codec.encode(request, LEVEL_MAX))) == request
    told = codec.message(memoryview(codec.encode(request, LEVEL_MIN)))
    assert told == ShowReading(group="g", instance="i")


@pytest.mark.slow
async def test_any_broker_knows_the_owner() -> None:
    network = SimNetwork(Random(1))
    machines = [Machine(network, node_id) for node_id in NODES]
    for machine in machines:
        machine._settings |= SECURE
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(machine.start() for machine in machines))
        for machine in machines:
            stack.push_async_callback(machine.stop)
        broker = machines[0].broker
        tokens = {}
        for name in ("alice", "bob"):
            token, secret = broker.face.login.made_token(Principal("User", name), 0, "")
            tokens[name] = f"{token.token_id}.{secret}"
            acl = Acl("Group", "Literal", "g", f"User:{name}", "*", "Read", "Allow")
            for command in (StoreToken(token), AddAcls([acl])):
                await broker.admin.by(ROOT).change_access(command)
        headers = {**JSON_V2, **bearer(tokens["alice"])}
        for machine in machines:
            async with asyncio.timeout(START_S):
                while len(machine.broker.image.access.tokens) < len(tokens):
                    await asyncio.sleep(0.01)
        created = await ask(machines[0].server.address, "POST", "/consumers/g", b'{"name":"i"}', headers)
        assert created.status == 200, created.body
        for machine in machines:
            for name, status in (("bob", 404), ("alice", 200)):
                target = "/consumers/g/instances/i/subscription"
                reply = await ask(machine.server.address, "GET", target, None, bearer(tokens[name]))
                assert reply.status == status, (machine.node_id, name, reply.body)
