"""The audit log of a broker behind real sockets: each kind of denial and of change has its line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.http.conftest import JSON_V2, STOP_S, Site, listen
from tests.integration.http.wire import Reply, Wire, ask, head
from tidelog.adapters.audit_file import AuditFile
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.face.audit import Audit, AuditSink
from tidelog.broker.http.server import HttpServer
from tidelog.controller.access_commands import StoreToken
from tidelog.model.access import Caller, Operation, Principal, Resource
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

JSON = {"Content-Type": "application/json"}


class Watched:
    """A broker with a listener that keeps an audit log."""

    def __init__(self, site: Site, audit: Audit, server: HttpServer, path: Path) -> None:
        self.site = site
        self.audit = audit
        self._server = server
        self._path = path

    @property
    def v3(self) -> str:
        return self.site.v3

    async def ask(
        self, method: str, target: str, document: object = None, headers: dict[str, str] | None = None
    ) -> Reply:
        body = None if document is None else json.dumps(document).encode()
        sent = {**({} if document is None else JSON), **(headers or {})}
        return await ask(self._server.address, method, target, body, sent)

    async def wire(self) -> Wire:
        return await Wire.open(self._server.address)

    async def lines(self) -> list[dict[str, Any]]:
        await self.audit.stop()
        self.audit.start()
        data = self._path.read_bytes()
        assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in data)
        return [json.loads(line) for line in data.splitlines()]


class Nobody:
    """Forbids all but reading."""

    def may(self, _caller: Caller, operation: Operation, _resource: Resource) -> bool:
        return operation is Operation.READ


@asynccontextmanager
async def watched(site: Site, path: Path, sink: AuditSink | None = None, **face: Any) -> AsyncIterator[Watched]:
    file, thread = AuditFile(str(path), 1 << 20, 2), DiskThreads(1, name="audit")
    audit = Audit(sink or file, thread, SystemClock(), SystemEntropy(), 1)
    audit.start()
    server = await listen(replace(site.broker.face, audit=audit, **face))
    try:
        yield Watched(site, audit, server, path)
    finally:
        await server.stop(STOP_S)
        await audit.stop()
        thread.close()
        file.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def shown(line: dict[str, Any], *names: str) -> list[Any]:
    return [line[name] for name in names]


async def test_each_kind_of_denial_has_its_line(site: Site, path: Path) -> None:
    async with watched(site, path, authorizer=Nobody()) as broker:
        forbidden = await broker.ask("POST", f"{broker.v3}/topics", {"topic_name": "x"}, {"X-Request-Id": "mine-1"})
        assert (forbidden.status, forbidden.headers["x-request-id"]) == (403, "mine-1")
        foreign = await broker.ask("POST", "/topics/t", {}, {"Origin": "http://evil.example", **JSON_V2})
        assert foreign.code == 40302
        async with await broker.wire() as wire:
            wire.write(b"GET /topics HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            assert (await wire.read()).status == 421
        [*lines] = await broker.lines()
    assert [shown(line, "event", "allowed", "status", "error_code", "reason") for line in lines] == [
        ["denied", False, 403, 40301, "no right"],
        ["denied", False, 403, 40302, "foreign origin"],
        ["denied", False, 421, 42101, "unknown host"],
    ]
    assert shown(lines[0], "principal", "address", "request_id", "method", "operation", "resource_type") == [
        "User:ANONYMOUS",
        "127.0.0.1",
        "mine-1",
        "POST",
        "Create",
        "Topic",
    ]
    assert lines[1]["resource_name"] == "t" and len(lines[1]["request_id"]) == 16


async def test_what_is_over_a_share_is_a_denial_and_a_crowd_of_them_few_lines(site: Site, path: Path) -> None:
    async with watched(site, path) as broker:
        change = {"data": [{"user": "<default>", "rates": {"request_rate": 0.001}}]}
        assert (await broker.ask("POST", f"{broker.v3}/quotas:alter", change)).status == 204
        statuses = [(await broker.ask("GET", "/topics")).status for _ in range(30)]
        assert statuses.count(429) == 28
        changed, *denied = await broker.lines()
        left_out = broker.audit.counts["left out"]
        metrics = (await broker.ask("GET", "/metrics")).body.decode()
    assert changed["subject"].startswith("user <default>: {'request_rate': 0.001}")
    assert {(line["status"], line["reason"]) for line in denied} == {(429, "quota")}
    assert len(denied) + left_out == 28
    assert f'tidelog_audit_lines_total{{outcome="left out"}} {left_out}.0' not in metrics or left_out


async def test_who_connects_too_often_is_denied(site: Site, path: Path) -> None:
    async with watched(site, path) as broker:
        change = {"data": [{"address": "127.0.0.1", "rates": {"connection_creation_rate": 0.001}}]}
        assert (await broker.ask("POST", f"{broker.v3}/quotas:alter", change)).status == 204
        assert [(await broker.ask("GET", "/topics")).status for _ in range(3)][-1] == 429
        _, denied, *_ = await broker.lines()
    assert shown(denied, "event", "address", "listener", "reason") == [
        "denied",
        "127.0.0.1",
        "http",
        "connection rate",
    ]


async def test_each_kind_of_change_has_its_line(site: Site, path: Path) -> None:
    await site.topic("u", 2)
    async with watched(site, path) as broker:
        v3 = broker.v3
        asked: Sequence[tuple[str, str, object, int]] = [
            ("POST", f"{v3}/topics", {"topic_name": "new"}, 201),
            ("POST", f"{v3}/topics", {"topic_name": "new"}, 400),
            ("PATCH", f"{v3}/topics/new", {"partitions_count": 3}, 200),
            ("PUT", f"{v3}/topics/new/configs/retention.ms", {"value": "1000"}, 204),
            ("POST", f"{v3}/topics/new/configs:alter", {"data": [{"name": "retention.ms", "value": "2"}]}, 204),
            ("POST", f"{v3}/topics/new/partitions/0/records:delete", {"before_offset": 0}, 204),
            ("DELETE", f"{v3}/topics/new", None, 204),
            ("DELETE", f"{v3}/topics/-/partitions/-/reassignment", None, 204),
            ("POST", f"{v3}/brokers:rebalance", {"leaving": [], "validate_only": True}, 200),
            ("POST", f"{v3}/topics/-/partitions:elect", {"election_type": "preferred"}, 200),
            ("POST", f"{v3}/topics/t/partitions/0/losses", {"validate_only": True}, 200),
            ("DELETE", f"{v3}/brokers/9", None, 404),
            ("PUT", f"{v3}/brokers/1/configs/log.level", {"value": "info"}, 204),
            ("POST", f"{v3}/feature-level:raise", {"validate_only": True}, 200),
            ("DELETE", f"{v3}/consumer-groups/g", None, 404),
        ]
        for method, target, document, status in asked:
            reply = await broker.ask(method, target, document)
            assert reply.status == status, (target, reply.body)
            assert len(reply.headers["x-request-id"]) == 16
        for target in ("/topics", f"{v3}/topics", f"{v3}/brokers"):
            await broker.ask("GET", target)
        assert (await broker.ask("POST", "/topics/t", {"records": [{"value": 1}]}, JSON_V2)).status == 200
        lines = await broker.lines()
    assert [(line["event"], line["method"], line["status"]) for line in lines] == [
        ("changed", method, status) for method, _, _, status in asked
    ]
    assert all(line["allowed"] for line in lines)
    by_status = {line["status"]: line for line in lines}
    assert shown(lines[0], "operation", "subject", "route") == [
        "Create",
        "new",
        "/v3/clusters/{cluster_id}/topics",
    ]
    assert by_status[400]["error_code"] == 40002
    assert shown(lines[3], "operation", "resource_type", "resource_name", "subject") == [
        "AlterConfigs",
        "Topic",
        "new",
        "new: retention.ms",
    ]
    assert lines[11]["subject"] == "broker_id=9"


async def test_a_change_whose_client_is_gone_has_its_line(site: Site, path: Path) -> None:
    async with watched(site, path) as broker:
        wire = await broker.wire()
        body = b'{"topic_name":"late"}'
        wire.write(head("POST", f"{broker.v3}/topics", {**JSON, "Content-Length": str(len(body) + 1)}) + body)
        await broker.site.until(lambda: broker.audit is not None)
        await asyncio.sleep(0.05)
        await wire.close()
        async with asyncio.timeout(10):
            while not (lines := await broker.lines()):
                await asyncio.sleep(0.01)
    assert [shown(line, "event", "status", "reason") for line in lines] == [
        ["changed", 0, "the client was gone before the answer"]
    ]


@pytest.mark.parametrize("hostile", ["a\x1b[31mb", "a\x9bb", "a\u202eb", 'a","event":"x', "é\u2028"])
async def test_hostile_names_stay_in_their_field(site: Site, path: Path, hostile: str) -> None:
    """F116; `lines` looks at every byte."""
    async with watched(site, path, authorizer=Nobody()) as broker:
        headers = {"X-Client-Id": hostile.replace("\x1b", ""), "X-Request-Id": hostile.replace("\x1b", "")}
        assert (await broker.ask("DELETE", f"{broker.v3}/topics/{quote(hostile)}%0d%0ab", None, headers)).status == 403
        [line] = await broker.lines()
    assert line["resource_name"] == hostile + "\r\nb"
    assert len(line["request_id"]) == 16


async def test_a_full_disk_troubles_no_request(site: Site, path: Path) -> None:
    class Full:
        def write(self, lines: Sequence[bytes]) -> None:
            raise OSError(28, "No space left on device")

    async with watched(site, path, Full()) as broker:
        for number in range(5):
            made = await broker.ask("POST", f"{broker.v3}/topics", {"topic_name": f"n{number}"})
            assert made.status == 201
        assert await broker.lines() == []
        assert broker.audit.counts["lost"] == 5
        metrics = (await broker.ask("GET", "/metrics")).body.decode()
    assert 'tidelog_audit_lines_total{outcome="lost"} 5.0' in metrics


async def test_without_an_audit_log_no_request_has_an_id(site: Site) -> None:
    reply = await site.ask("GET", "/topics", None, {"X-Request-Id": "mine"})
    assert "x-request-id" not in reply.headers


async def test_logins_that_fail_and_changes_of_access_have_their_lines_and_no_secret(path: Path) -> None:
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start({"http.authentication": "token,basic", "authorizer.enabled": True, "super.users": "User:root"})
    token, secret = site.broker.face.login.made_token(Principal("User", "root"), 0, "")
    await site.admin.change_access(StoreToken(token))
    as_root = {"Authorization": f"Bearer {token.token_id}.{secret}"}
    acl = {
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "pattern_type": "LITERAL",
        "principal": "User:alice",
        "operation": "READ",
        "permission": "ALLOW",
    }
    async with watched(site, path) as broker:
        assert (await broker.ask("GET", "/topics", None, {"Authorization": "Bearer a.b"})).status == 401
        user = {"user_name": "alice", "password": "correct horse battery"}
        assert (await broker.ask("POST", f"{broker.v3}/users", user, as_root)).status == 201
        made = await broker.ask("POST", f"{broker.v3}/tokens", {"principal": "User:alice"}, as_root)
        assert made.status == 201
        assert (await broker.ask("POST", f"{broker.v3}/acls", acl, as_root)).status == 201
        assert (await broker.ask("DELETE", f"{broker.v3}/users/alice", None, as_root)).status == 204
        lines = await broker.lines()
    await site.stop()
    assert [shown(line, "event", "principal", "status", "reason") for line in lines] == [
        ["denied", "User:ANONYMOUS", 401, "no login: token"],
        *(["changed", "User:root", status, ""] for status in (201, 201, 201, 204)),
    ]
    assert [line["subject"].split()[0] for line in lines[1:]] == ["user", "token", "Topic", "user=alice"]
    text = json.dumps(lines)
    assert not [word for word in ("correct horse", secret, "a.b", made.json()["token"].split(".")[1]) if word in text]


async def test_a_topic_that_only_the_body_names_is_named_by_the_denial(path: Path) -> None:
    site = Site(SimDisk(), SimRunner(Random(1), mean_s=0.0002), lingering_s=0.05)
    await site.start({"http.authentication": "token", "authorizer.enabled": True, "super.users": "User:root"})
    shows = {}
    for name in ("alice", "bob"):
        token, secret = site.broker.face.login.made_token(Principal("User", name), 0, "")
        await site.admin.change_access(StoreToken(token))
        shows[name] = {"Authorization": f"Bearer {token.token_id}.{secret}"}
    async with watched(site, path) as broker:
        asked = {"partitions": [{"topic": "secret", "partition": 0}]}
        assert (await broker.ask("POST", "/offsets", asked, shows["alice"])).status == 200
        assert (await broker.ask("POST", f"{broker.v3}/topics", {"topic_name": "x"}, shows["bob"])).status == 403
        lines = await broker.lines()
    await site.stop()
    names = ("event", "principal", "operation", "resource_type", "resource_name", "allowed", "status", "reason")
    assert [shown(line, *names) for line in lines] == [
        ["denied", "User:alice", "Describe", "Topic", "secret", False, 200, "no right"],
        ["denied", "User:bob", "Create", "Topic", "x", False, 403, "no right"],
    ]
