"""A caller with rights to one topic and one group learns nothing of others: a name that exists and one that does not
are answered alike. F123 of docs/testing.md."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, Site
from tests.integration.http.wire import Reply
from tidelog.broker.http.route import Route
from tidelog.broker.http.routes import ROUTES
from tidelog.controller.access_commands import AddAcls, StoreToken
from tidelog.model.access import Acl, Operation, check_principal
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

SECURE = {"http.authentication": "token", "authorizer.enabled": True, "super.users": "User:root"}
THERE, ABSENT = "hidden", "absent"
"""A topic, a group and a user of this name, and what nobody has ever made; both names have the same length."""
INSTANCE = "/consumers/mine/instances/i"
OTHERS = {"partition": "0", "broker_id": "1", "instance": "i", "name": "retention.ms", "consumer": "c", "token_id": "x"}


class Seen:
    """A site with something to hide, and a principal who has all rights to something else."""

    def __init__(self, site: Site, token: str) -> None:
        self.site = site
        self.headers = {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, target: str, body: bytes | None = None) -> Reply:
        headers = self.headers if body is None else {**JSON_DOCUMENT, **self.headers}
        return await self.site.ask(method, target, body, headers)


@pytest.fixture
async def seen() -> AsyncIterator[Seen]:
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002))
    await site.start(SECURE)
    for topic in ("mine", THERE):
        await site.topic(topic)
    admin = site.admin
    made, secret = site.broker.face.login.made_token(check_principal("User:alice"), 0, "")
    await admin.change_access(StoreToken(made))
    mine = [Acl(kind, "Literal", "mine", "User:alice", "*", "All", "Allow") for kind in ("Topic", "Group")]
    await admin.change_access(AddAcls([*mine, Acl("Topic", "Literal", THERE, "User:bob", "*", "All", "Allow")]))
    assert site.partition(THERE).is_readable  # so it would answer
    yield Seen(site, f"{made.token_id}.{secret}")
    await site.stop()


def told(reply: Reply, name: str) -> tuple[int, dict[str, str], bytes]:
    """An answer without the name that was asked for, and without the time."""
    headers = {key: value for key, value in reply.headers.items() if key not in ("date", "x-request-id")}
    return reply.status, headers, reply.body.replace(name.encode(), b"NAME")


def named(route: Route) -> list[str]:
    return [name for name in ("topic", "group", "user") if f"{{{name}}}" in route.path]


async def test_what_there_is_answers_as_what_there_is_not(seen: Seen) -> None:
    for route in filter(named, ROUTES):
        answers = []
        for name in (THERE, ABSENT):
            wanted = dict.fromkeys(("topic", "group", "user"), name)
            target = route.template.format(**OTHERS, cluster_id=seen.site.broker.cluster_id, **wanted)
            bodies = (None, b"{}", b"x")
            answers.append([told(await seen.ask(route.method, target, body), name) for body in bodies])
        assert answers[0] == answers[1], route
        if route.operation is not Operation.NONE:
            assert {status for status, _, _ in answers[0]} == {403}, route


async def test_a_document_tells_as_little(seen: Seen) -> None:
    v3 = seen.site.v3
    assert (await seen.ask("POST", "/consumers/mine", b'{"name": "i", "format": "json"}')).status == 200
    for target, document in (
        ("/offsets", {"partitions": [{"topic": "NAME", "partition": 0}]}),
        ("/metadata?topics=NAME", None),
        (f"{v3}/topics", {"topic_name": "NAME"}),
        (f"{v3}/topics", {"topic_name": "NAME", "validate_only": True}),
        (f"{v3}/tokens", {"principal": "User:NAME"}),
        (f"{v3}/topics/-/partitions:elect", {"election_type": "preferred", "data": [{"topic_name": "NAME"}]}),
        (f"{v3}/consumer-groups/mine/offsets:reset", {"to": "earliest", "topics": [{"topic_name": "NAME"}]}),
        ("/groups/mine/heartbeat", {"member_id": "m", "member_epoch": 0, "topics": ["NAME"]}),
        ("/groups/mine/offsets", {"offsets": [{"topic": "NAME", "partition": 0, "offset": 0}]}),
        ("/groups/mine/offsets:fetch", {"partitions": [{"topic": "NAME", "partition": 0}]}),
        (f"{INSTANCE}/assignments", {"partitions": [{"topic": "NAME", "partition": 0}]}),
        (f"{INSTANCE}/subscription", {"topics": ["NAME"]}),
        (f"{INSTANCE}/positions", {"offsets": [{"topic": "NAME", "partition": 0, "offset": 0}]}),
        (f"{INSTANCE}/positions/beginning", {"partitions": [{"topic": "NAME", "partition": 0}]}),
        (f"{INSTANCE}/offsets", {"offsets": [{"topic": "NAME", "partition": 0, "offset": 0}]}),
    ):
        answers = []
        for name in (THERE, ABSENT):
            body = None if document is None else json.dumps(document).replace("NAME", name).encode()
            reply = await seen.ask("GET" if body is None else "POST", target.replace("NAME", name), body)
            answers.append(told(reply, name))
        assert answers[0] == answers[1], target


async def test_lists_and_figures_name_nothing_of_others(seen: Seen) -> None:
    for route in ROUTES:
        if route.method == "GET" and not named(route):
            target = route.template.format(cluster_id=seen.site.broker.cluster_id, **OTHERS)
            assert THERE.encode() not in (await seen.ask("GET", target)).body, target
