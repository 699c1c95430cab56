"""The guard of a listener tells everybody the right thing, and ends what may not go on."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, JSON_V2, Site, simulated
from tests.integration.http.wire import Reply, Wire
from tidelog.controller.access_commands import AddAcls, RemoveAcls, RemoveTokens, StoreToken
from tidelog.controller.judge import Judge
from tidelog.model.access import Acl, check_principal
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

SECURE = {"http.authentication": "token,basic", "authorizer.enabled": True, "super.users": "User:root"}


class Secure:
    """A site with access control, its topics `t` and `hidden`, and a token of the super user."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.root = ""

    async def token(self, name: str, expires_ms: int = 0) -> str:
        token, secret = self.site.broker.face.login.made_token(check_principal(f"User:{name}"), expires_ms, "")
        await self.site.admin.change_access(StoreToken(token))
        return f"{token.token_id}.{secret}"

    async def allow(self, name: str, operation: str, kind: str = "Topic", of: str = "t", what: str = "Allow") -> Acl:
        acl = Acl(kind, "Literal", of, f"User:{name}", "*", operation, what)
        await self.site.admin.change_access(AddAcls([acl]))
        return acl

    async def forbid(self, *acls: Acl) -> None:
        await self.site.admin.change_access(RemoveAcls(acls))

    async def revoke(self, token: str) -> None:
        await self.site.admin.change_access(RemoveTokens([token.partition(".")[0]]))

    async def ask(self, token: str, method: str, target: str, document: object = None) -> Reply:
        headers = bearer(token)
        if document is None:
            return await self.site.ask(method, target, None, headers)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return await self.site.ask(method, target, body, {**JSON_DOCUMENT, **headers})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture
async def secure() -> AsyncIterator[Secure]:
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start(SECURE)
    for name in ("t", "hidden"):
        await site.topic(name)
    made = Secure(site)
    made.root = await made.token("root")
    yield made
    await site.stop()


# -- logging in ------------------------------------------------------------------------------------------------------


async def test_a_401_names_the_ways_to_log_in(secure: Secure) -> None:
    told = []
    for headers in (
        {},
        bearer("x.y"),
        basic("nobody", "wrong password"),
        {"Authorization": "Basic !"},
        {"Authorization": "Digest x"},
    ):
        reply = await secure.site.get("/topics", headers)
        assert (reply.status, reply.code) == (401, 40101)
        assert reply.headers["www-authenticate"] == 'Bearer realm="tidelog", Basic realm="tidelog", charset="UTF-8"'
        told.append(reply.body)
    assert len(dict.fromkeys(told)) == 1
    for open_to_all in ("/healthz", "/readyz", "/", "/openapi.json"):
        assert (await secure.site.get(open_to_all)).status == 200


async def test_a_401_names_no_way_that_no_header_can_go() -> None:
    files = {"ssl.keystore.location": "/broker.pem", "ssl.truststore.location": "/ca.pem"}
    settings = {"http.security.protocol": "SSL", "ssl.client.auth": "requested", "http.authentication": "certificate"}
    async with simulated(settings={**settings, **files}) as site:
        reply = await site.get("/topics")
        assert (reply.code, "www-authenticate" in reply.headers) == (40101, False)


async def test_a_user_logs_in_by_password_until_it_is_changed(secure: Secure) -> None:
    users = f"{secure.site.v3}/users"
    made = await secure.ask(secure.root, "POST", users, {"user_name": "alice", "password": "correct horse"})
    assert (made.status, made.json()["scram_mechanisms"]) == (201, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    again = await secure.ask(secure.root, "POST", users, {"user_name": "alice", "password": "correct horse"})
    assert (again.status, again.code) == (400, 40002)
    shown = (await secure.ask(secure.root, "GET", users)).json()["data"]
    assert [user["user_name"] for user in shown] == ["alice"]
    assert (await secure.site.get("/topics", basic("alice", "correct horse"))).json() == []
    await secure.allow("alice", "Describe")
    assert (await secure.site.get("/topics", basic("alice", "correct horse"))).json() == ["t"]
    changed = await secure.ask(secure.root, "PUT", f"{users}/alice/password", {"password": "battery staple"})
    assert changed.status == 204
    assert (await secure.site.get("/topics", basic("alice", "correct horse"))).status == 401
    assert (await secure.site.get("/topics", basic("alice", "battery staple"))).status == 200
    assert (await secure.ask(secure.root, "DELETE", f"{users}/alice")).status == 204
    assert (await secure.site.get("/topics", basic("alice", "battery staple"))).status == 401
    assert (await secure.ask(secure.root, "DELETE", f"{users}/alice")).status == 404
    assert (await secure.ask(secure.root, "PUT", f"{users}/alice/password", {"password": "12345678"})).status == 404
    short = await secure.ask(secure.root, "POST", users, {"user_name": "bob", "password": "short"})
    assert (short.status, "short" in short.message) == (400, False)


async def test_trying_passwords_is_429(secure: Secure) -> None:
    """F104."""
    for n in range(5):
        assert (await secure.site.get("/topics", basic("alice", f"guess {n}"))).status == 401
    reply = await secure.site.get("/topics", basic("alice", "guess 5"))
    assert (reply.status, reply.code) == (429, 42901)
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert secure.site.broker.face.login.verifications == 5
    assert (await secure.ask(secure.root, "GET", "/topics")).status == 200


async def test_a_token_is_shown_once(secure: Secure) -> None:
    tokens = f"{secure.site.v3}/tokens"
    made = await secure.ask(secure.root, "POST", tokens, {"principal": "User:job", "description": "nightly"})
    text = made.json()["token"]
    assert (made.status, text.partition(".")[0]) == (201, made.json()["token_id"])
    assert (await secure.ask(text, "GET", "/topics")).json() == []
    listed = await secure.ask(secure.root, "GET", tokens)
    assert sorted(token["principal"] for token in listed.json()["data"]) == ["User:job", "User:root"]
    assert text.partition(".")[2].encode() not in listed.body
    assert (await secure.ask(text, "GET", tokens)).json()["data"] == []
    await secure.allow("job", "Alter", "User", "job")
    assert len((await secure.ask(text, "GET", tokens)).json()["data"]) == 1
    own = await secure.ask(text, "POST", tokens, {"principal": "User:job", "lifetime_ms": 60_000})
    assert own.status == 201 and own.json()["expires_at_ms"] > time.time() * 1000
    assert (await secure.ask(text, "POST", tokens, {"principal": "User:root"})).status == 403
    assert (await secure.ask(text, "DELETE", f"{tokens}/{secure.root.partition('.')[0]}")).status == 403
    assert (await secure.ask(text, "DELETE", f"{tokens}/{text.partition('.')[0]}")).status == 204
    assert (await secure.ask(text, "GET", "/topics")).status == 401


# -- ACLs ------------------------------------------------------------------------------------------------------------


async def test_acls_are_made_found_checked_and_deleted(secure: Secure) -> None:
    acls = f"{secure.site.v3}/acls"
    one = {
        "resource_type": "TOPIC",
        "resource_name": "orders-",
        "pattern_type": "PREFIXED",
        "principal": "User:alice",
        "host": "10.0.0.0/8",
        "operation": "DESCRIBE_CONFIGS",
        "permission": "ALLOW",
    }
    assert (await secure.ask(secure.root, "POST", acls, one)).status == 201
    other = {**one, "operation": "READ", "host": "*"}
    assert (await secure.ask(secure.root, "POST", f"{acls}:batch", {"data": [one, other]})).status == 201
    found = (await secure.ask(secure.root, "GET", acls)).json()
    assert found["kind"] == "KafkaAclList"
    assert [{name: acl[name] for name in one} for acl in found["data"]] == [other, one]
    for query, count in (
        ("?operation=READ", 1),
        ("?operation=ANY&principal=User:alice", 2),
        ("?pattern_type=MATCH&resource_name=orders-eu", 2),
        ("?pattern_type=MATCH&resource_name=order", 0),
        ("?resource_type=GROUP", 0),
    ):
        assert len((await secure.ask(secure.root, "GET", acls + query)).json()["data"]) == count, query
    question = "?resource_type=TOPIC&resource_name=orders-eu&principal=User:alice"
    for operation, host, is_allowed in (("READ", "1.2.3.4", True), ("DESCRIBE_CONFIGS", "1.2.3.4", False)):
        answer = await secure.ask(secure.root, "GET", f"{acls}:check{question}&operation={operation}&host={host}")
        assert answer.json() == {"is_allowed": is_allowed}
    for wrong in ("?operation=FLY", "?resource_type=BROKER"):
        assert (await secure.ask(secure.root, "GET", acls + wrong)).code == 40002
    assert (await secure.ask(secure.root, "DELETE", f"{acls}?principal=User:alice")).code == 40002
    every = "?resource_type=TOPIC&pattern_type=ANY&operation=ANY&permission=ANY"
    gone = await secure.ask(secure.root, "DELETE", acls + every)
    assert (gone.status, len(gone.json()["data"])) == (200, 2)
    assert (await secure.ask(secure.root, "GET", acls)).json()["data"] == []


async def test_a_body_and_a_list_show_no_more_than_the_caller_may_know(secure: Secure) -> None:
    """F123."""
    token = await secure.token("alice")
    await secure.allow("alice", "Read")
    assert (await secure.ask(token, "GET", "/topics")).json() == ["t"]
    shown = (await secure.ask(token, "GET", "/metadata")).json()["topics"]
    assert [topic["name"] for topic in shown] == ["t"]
    assert (await secure.ask(token, "GET", "/metadata?topics=hidden,absent")).json()["topics"] == []
    asked = {"partitions": [{"topic": name, "partition": 0} for name in ("t", "hidden", "absent")]}
    told = (await secure.ask(token, "POST", "/offsets", asked)).json()["partitions"]
    assert [one["error_code"] for one in told] == [None, 40301, 40301]
    for target in ("/topics/hidden", "/topics/absent", "/topics/hidden/partitions/0/records?offset=0"):
        assert (await secure.ask(token, "GET", target)).status == 403
    assert (await secure.ask(token, "GET", "/topics/%2A")).status == 403
    await secure.allow("alice", "Read", "Group", "g")
    member = {"member_id": "m", "member_epoch": 0, "owned": []}
    for sought in ({"topics": ["t", "hidden"]}, {"pattern": ".*"}, {"topics": ["t"], "pattern": "h.*"}):
        assert (await secure.ask(token, "POST", "/groups/g/heartbeat", {**member, **sought})).status == 403
    commit = {"offsets": [{"topic": "hidden", "partition": 0, "offset": 1}]}
    assert (await secure.ask(token, "POST", "/groups/g/offsets", commit)).status == 403


async def test_a_member_that_names_its_topics_needs_no_right_to_others(secure: Secure) -> None:
    """An empty pattern, which the Python client sends, is none."""
    token = await secure.token("alice")
    await secure.allow("alice", "Read", "Group", "g")
    await secure.allow("alice", "Read")
    member = {"member_id": "m", "member_epoch": 0, "topics": ["t"], "pattern": "", "owned": []}
    assert (await secure.ask(token, "POST", "/groups/g/heartbeat", member)).status == 200


async def test_a_group_called_like_the_wildcard_is_judged(secure: Secure) -> None:
    token = await secure.token("alice")
    assert (await secure.ask(token, "POST", "/groups/%2A/offsets:fetch", {})).status == 403


async def test_who_may_write_to_a_topic_may_number_its_batches(secure: Secure) -> None:
    token = await secure.token("alice")
    assert (await secure.ask(token, "POST", f"{secure.site.v3}/producer-ids")).status == 403
    await secure.allow("alice", "Write")
    assert (await secure.ask(token, "POST", f"{secure.site.v3}/producer-ids")).status == 201


# -- what lasts ------------------------------------------------------------------------------------------------------


async def waiting(secure: Secure, token: str, method: str, target: str, document: object = None) -> asyncio.Task[Reply]:
    """A request that waits by now."""
    task = asyncio.create_task(secure.ask(token, method, target, document))
    guard = secure.site.server.context.guard
    assert guard is not None
    await secure.site.until(lambda: bool(guard._under_way) or task.done())
    await asyncio.sleep(0.01)
    assert not task.done()
    return task


READ = "/topics/t/partitions/0/records?offset=0&timeout=30000"


async def test_a_read_that_waits_ends_with_its_token(secure: Secure) -> None:
    """F106."""
    token = await secure.token("alice")
    await secure.allow("alice", "Read")
    task = await waiting(secure, token, "GET", READ)
    await secure.revoke(token)
    assert ((await task).status, (await task).code) == (401, 40101)


async def test_a_read_that_waits_ends_when_its_token_does(secure: Secure) -> None:
    token = await secure.token("alice", round(time.time() * 1000) + 500)
    await secure.allow("alice", "Read")
    assert (await secure.ask(token, "GET", READ)).status == 401


async def test_a_read_that_waits_ends_with_its_acl(secure: Secure) -> None:
    """F106."""
    token = await secure.token("alice")
    acl = await secure.allow("alice", "Read")
    task = await waiting(secure, token, "GET", READ)
    await secure.allow("alice", "Read", of="hidden")
    await secure.forbid(acl)
    assert ((await task).status, (await task).code) == (403, 40301)


async def test_a_wait_for_offsets_ends_with_its_acl(secure: Secure) -> None:
    token = await secure.token("alice")
    acl = await secure.allow("alice", "Describe")
    asked = {"partitions": [{"topic": "t", "partition": 0, "high_watermark": 0}], "wait_ms": 30_000}
    task = await waiting(secure, token, "POST", "/offsets", asked)
    await secure.forbid(acl)
    assert (await task).status == 403


async def test_a_stream_is_cut_off_with_its_user(secure: Secure) -> None:
    """F106."""
    users = f"{secure.site.v3}/users"
    await secure.ask(secure.root, "POST", users, {"user_name": "alice", "password": "correct horse"})
    await secure.allow("alice", "Write")
    async with await secure.site.wire() as wire:
        await begin_stream(secure, wire, basic("alice", "correct horse"))
        await secure.ask(secure.root, "DELETE", f"{users}/alice")
        async with asyncio.timeout(20):
            assert await wire.reader.read() == b""
    assert len(secure.site.values()) == 1


async def begin_stream(secure: Secure, wire: Wire, headers: dict[str, str]) -> None:
    """Streams one record, and reads its receipt."""
    lines = {"Host": "test", "Transfer-Encoding": "chunked", **JSON_DOCUMENT, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    wire.write(f"POST {secure.site.v3}/topics/t/records HTTP/1.1\r\n{head}\r\n".encode())
    wire.write_chunk(b'{"value":{"type":"JSON","data":1}}')
    assert (await wire.read_head())[0] == 200
    assert json.loads(await wire.read_chunk())["error_code"] == 200


async def test_a_consumers_read_ends_with_the_right_to_its_topic(secure: Secure) -> None:
    token = await secure.token("alice")
    acl = await secure.allow("alice", "Read")
    await secure.allow("alice", "Read", "Group", "g")
    created = await secure.site.ask("POST", "/consumers/g", b'{"name":"i"}', {**JSON_V2, **bearer(token)})
    assert created.status == 200
    instance = "/consumers/g/instances/i"
    hidden = {"partitions": [{"topic": "hidden", "partition": 0}]}
    assert (await secure.ask(token, "POST", f"{instance}/assignments", hidden)).status == 403
    assert (await secure.ask(token, "POST", f"{instance}/subscription", {"topic_pattern": ".*"})).status == 403
    assert (await secure.ask(token, "POST", f"{instance}/subscription", {"topics": ["hidden"]})).status == 403
    seen = {"partitions": [{"topic": "t", "partition": 0}]}
    assert (await secure.ask(token, "POST", f"{instance}/assignments", seen)).status == 204
    task = await waiting(secure, token, "GET", f"{instance}/records?timeout=30000")
    await secure.forbid(acl)
    assert (await task).status == 403
    assert (await secure.ask(token, "GET", f"{instance}/records?timeout=0")).status == 403


async def test_who_revokes_its_own_token_is_answered(secure: Secure) -> None:
    reply = await secure.ask(secure.root, "DELETE", f"{secure.site.v3}/tokens/{secure.root.partition('.')[0]}")
    assert reply.status == 204


# -- what the controller judges --------------------------------------------------------------------------------------


async def test_what_the_controller_refuses_is_refused_to_the_client_whose_name_each_change_carries(
    secure: Secure,
) -> None:
    """The guard lets a super user in, and the controller, as one with other metadata, does not."""
    site, v3 = secure.site, secure.site.v3
    moves = {"data": [{"topic_name": "t", "partition_id": 0, "replicas": [site.broker.node_id]}]}
    acl = {
        "resource_type": "TOPIC",
        "resource_name": "t",
        "pattern_type": "LITERAL",
        "principal": "User:alice",
        "operation": "READ",
        "permission": "ALLOW",
    }
    token = await secure.token("alice")
    await secure.allow("alice", "Read")
    site.broker._controller._judge = Judge((), without_acl=False)
    for method, target, document in (
        ("POST", "/topics", {"topic_name": "new"}),
        ("PATCH", "/topics/t", {"partitions_count": 2}),
        ("DELETE", "/topics/t", None),
        ("POST", "/topics/t/configs:alter", {"data": [{"name": "retention.ms", "value": "1000"}]}),
        ("POST", "/quotas:alter", {"data": [{"user": "alice", "rates": {"request_rate": 1}}]}),
        ("DELETE", f"/brokers/{site.broker.node_id}", None),
        ("POST", "/feature-level:raise", {}),
        ("POST", "/topics/-/partitions/-/reassignment", moves),
        ("POST", "/brokers:rebalance", {"throttle_bytes_per_s": 1}),
        ("POST", "/topics/-/partitions:elect", {"election_type": "preferred"}),
        ("POST", "/acls", acl),
        (
            "DELETE",
            "/acls?resource_type=TOPIC&operation=READ&pattern_type=LITERAL&principal=User:alice&permission=ALLOW",
            None,
        ),
        ("POST", "/users", {"user_name": "bob", "password": "correct horse battery"}),
        ("POST", "/tokens", {"principal": "User:alice"}),
        ("DELETE", f"/tokens/{token.partition('.')[0]}", None),
    ):
        reply = await secure.ask(secure.root, method, v3 + target, document)
        assert (reply.status, reply.code) == (403, 40301), (method, target, reply)
        assert b"User:root may not" in reply.body, (method, target, reply)
    assert {*site.broker.image.topics} == {"t", "hidden"} and len(site.broker.image.access.tokens) == 2
    site.broker._controller._judge = None
    assert (await secure.ask(secure.root, "DELETE", f"{v3}/topics/t")).status == 204
