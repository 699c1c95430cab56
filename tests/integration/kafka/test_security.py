"""Callers log in by SASL, have rights for each call and shares, and lose their connection for cause."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kio.schema.errors import ErrorCode

from tests.integration.http.conftest import ROOT
from tests.integration.kafka.conftest import Client, KafkaSite, batch, started
from tidelog.broker.face.audit import Audit
from tidelog.broker.kafka.apis import Key
from tidelog.controller.access_commands import AddAcls, RemoveAcls, RemoveUser, StoreUser
from tidelog.controller.commands import QuotaChange
from tidelog.model.access import Acl
from tidelog.model.kafka_codes import KafkaCode
from tidelog.sim.kit.environment import SimRunner

PASSWORD = "correct horse battery"
SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
RIGHTS = {"authorizer.enabled": True, "super.users": "User:root"}
METADATA = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}


@asynccontextmanager
async def with_alice(**settings: object) -> AsyncIterator[KafkaSite]:
    """A site at which `alice` logs in by SCRAM."""
    async with started({**SASL, **RIGHTS, **settings}) as site:
        user = await site.broker.face.login.made_user("alice", PASSWORD)
        await site.broker.admin.by(ROOT).change_access(StoreUser(user, True))
        yield site


def acl(operation: str, permission: str = "Allow", resource: str = "t", kind: str = "Topic") -> Acl:
    return Acl(kind, "Literal", resource, "User:alice", "*", operation, permission)


async def allow(site: KafkaSite, *operations: str) -> None:
    await site.broker.admin.by(ROOT).change_access(AddAcls([acl(operation) for operation in operations]))


def try_to_produce(site: KafkaSite, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> str:
    """Returns what confluent-kafka says of one record: nothing if it was delivered, else the error's name."""
    host, port = site.server.address
    errors: list[KafkaError] = []
    told: list[KafkaError | None] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "error_cb": errors.append,
        "message.timeout.ms": 10_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.produce("t", b"x", on_delivery=lambda error, _: told.append(error))
    for _ in range(100):
        producer.poll(0.1)
        if told or any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            break
    producer.purge()
    producer.flush(5)
    if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        return "_AUTHENTICATION"
    return "" if told[0] is None else told[0].name()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_logs_in_by_scram_and_may_what_its_acls_say(mechanism: str) -> None:
    async with with_alice() as site:
        assert await asyncio.to_thread(try_to_produce, site, mechanism=mechanism) == "TOPIC_AUTHORIZATION_FAILED"
        await allow(site, "Write")
        assert await asyncio.to_thread(try_to_produce, site, mechanism=mechanism) == ""
        assert await asyncio.to_thread(try_to_produce, site, "wrong", mechanism) == "_AUTHENTICATION"
        assert site.server.metrics.refused["login"] >= 1


async def test_before_a_login_nothing_else_is_answered() -> None:
    async with with_alice() as site:
        client = await site.client()
        assert (await client.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
        other = await client.ask(Key.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert other.error_code == KafkaCode.UNSUPPORTED_SASL_MECHANISM
        assert set(other.mechanisms) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        early = await client.ask(Key.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=x")
        assert early.error_code == KafkaCode.ILLEGAL_SASL_STATE
        assert await client.receive() == b""
        stranger = await site.client()
        with pytest.raises(AssertionError, match="the connection was closed"):
            await stranger.ask(Key.METADATA, 9, topics=[], **METADATA)
        large = await site.client()
        large.writer.write((1 << 20).to_bytes(4) + Key.SASL_AUTHENTICATE.to_bytes(2) + bytes(70_000))
        assert await large.receive() == b""


async def test_names_that_there_are_not_are_answered_as_those_that_there_are() -> None:
    async with with_alice() as site:
        answers = []
        for name in (b"alice", b"nobody"):
            client = await site.client()
            await client.ask(Key.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
            first = await client.ask(Key.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=%b,r=x" % name)
            nonce = bytes(first.auth_bytes).split(b",")[0][2:]
            last = await client.ask(
                Key.SASL_AUTHENTICATE, 2, auth_bytes=b"c=biws,r=%b,p=%b" % (nonce, b"A" * 43 + b"=")
            )
            answers.append((first.error_code, len(first.auth_bytes), last.error_code, last.error_message))
            assert await client.receive() == b""
        assert answers[0] == answers[1]
        assert answers[0][2] == KafkaCode.SASL_AUTHENTICATION_FAILED


# -- rights, without a login: everybody is User:ANONYMOUS --------------------------------------------------------------


async def anonymous(site: KafkaSite, *operations: str) -> Client:
    acls = [acl(operation)._replace(principal="User:ANONYMOUS") for operation in operations]
    if acls:
        await site.broker.admin.by(ROOT).change_access(AddAcls(acls))
    return await site.client()


async def test_each_call_takes_its_right() -> None:
    async with started(RIGHTS) as site:
        client = await anonymous(site)
        (written,) = await client.produce(("t", 0, batch(b"a")))
        (unknown,) = await client.produce(("no", 0, batch(b"a")))
        assert written.error_code == unknown.error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
        (read,) = await client.fetch(("t", 0, 0))
        assert read.error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
        assert (await client.ask(Key.METADATA, 9, topics=None, **METADATA)).topics == ()
        (named,) = (await client.ask(Key.METADATA, 9, topics=[{"name": "t"}], **METADATA)).topics
        assert (named.error_code, named.partitions) == (KafkaCode.TOPIC_AUTHORIZATION_FAILED, ())
        listed = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        answer = await client.ask(Key.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=listed)
        assert answer.topics[0].partitions[0].error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
        new_id = await client.ask(Key.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=0)
        assert new_id.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED
        assert site.led().log_end_offset == 0

        await anonymous(site, "Write", "Read")
        (written,) = await client.produce(("t", 0, batch(b"a")))
        (read,) = await client.fetch(("t", 0, 0))
        assert written.error_code == read.error_code == ErrorCode.none
        assert len((await client.ask(Key.METADATA, 9, topics=None, **METADATA)).topics) == 1
        new_id = await client.ask(Key.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=0)
        assert new_id.error_code == ErrorCode.none, "who may write may number its batches"


async def test_a_read_that_waits_is_judged_again() -> None:
    async with started(RIGHTS) as site:
        client, writer = await anonymous(site, "Read"), await anonymous(site, "Write")
        waiting = asyncio.ensure_future(client.fetch(("t", 0, 0), max_wait=5_000))
        while not len(site.server.parts.admission.waits):
            await asyncio.sleep(0)
        read = acl("Read")._replace(principal="User:ANONYMOUS")
        await site.broker.admin.by(ROOT).change_access(RemoveAcls([read]))
        await writer.produce(("t", 0, batch(b"secret")))
        (found,) = await waiting
        assert (found.error_code, found.records or b"") == (KafkaCode.TOPIC_AUTHORIZATION_FAILED, b"")


async def test_a_login_that_ends_ends_its_connection() -> None:
    async with with_alice() as site:
        await allow(site, "Write")
        connection = await logged_in(site)
        (written,) = await connection.produce(("t", 0, batch(b"a")))
        assert written.error_code == ErrorCode.none
        await site.broker.admin.by(ROOT).change_access(RemoveUser("alice"))
        with pytest.raises(AssertionError, match="the connection was closed"):
            await connection.produce(("t", 0, batch(b"b")))
        assert site.led().log_end_offset == 1


async def logged_in(site: KafkaSite, name: str = "alice") -> Client:
    """A connection of a user's."""
    client, code = await logging_in(site, name)
    assert code == ErrorCode.none
    return client


async def logging_in(site: KafkaSite, name: str, password: str = PASSWORD) -> tuple[Client, int]:
    """A connection after a user's login by the words of SCRAM, and the code that the login was answered with."""
    client = await site.client()
    await client.ask(Key.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    bare = b"n=%b,r=fyko" % name.encode()
    first = bytes((await client.ask(Key.SASL_AUTHENTICATE, 2, auth_bytes=b"n,," + bare)).auth_bytes)
    parts = dict(part.split(b"=", 1) for part in first.split(b","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(parts[b"s"]), int(parts[b"i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = b"c=biws,r=" + parts[b"r"]
    signature = hmac.digest(hashlib.sha256(key).digest(), b",".join((bare, first, without)), "sha256")
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True)))
    last = await client.ask(Key.SASL_AUTHENTICATE, 2, auth_bytes=without + b",p=" + proof)
    return client, int(last.error_code)


class Lines:
    """A place for lines of the audit log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, lines: Sequence[bytes]) -> None:
        self.lines += map(json.loads, lines)


async def test_what_is_denied_is_in_the_audit_log() -> None:
    async with started(RIGHTS) as site:
        lines = Lines()
        audit = Audit(lines, SimRunner(random.Random(0)), site.clock, site.entropy, 1)
        audit.start()
        site.server.parts.face = replace(site.server.parts.face, audit=audit)
        client = await anonymous(site)
        await client.produce(("t", 0, batch(b"a")))
        await client.fetch(("t", 0, 0))
        client.send(b"")
        assert await client.receive() == b""
        assert await audit.stop()
        denied = [(line["listener"], line["operation"], line["resource_name"]) for line in lines.lines]
        assert denied[0] == ("kafka", "Write", "t") and ("kafka", "", "") in denied


# -- shares ------------------------------------------------------------------------------------------------------------


async def test_a_share_that_is_used_up_is_told_and_holds_the_connection() -> None:
    async with started() as site:
        change = QuotaChange({"producer_byte_rate": 10_000.0, "consumer_byte_rate": 10_000.0}, user="<default>")
        await site.broker.admin.by(ROOT).alter_quotas([change])
        client = await site.client()
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"x" * 12_000)}]}]
        tree = {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}
        first = await client.ask(Key.PRODUCE, 9, **tree)
        assert 0 < first.throttle_time.total_seconds() < 5
        began_s = site.clock.monotonic_s()
        assert (await client.ask(Key.PRODUCE, 9, **tree)).responses[0].partition_responses[
            0
        ].error_code == ErrorCode.none
        assert site.clock.monotonic_s() - began_s >= first.throttle_time.total_seconds() - 0.05
        assert (await client.fetch_whole(("t", 0, 0))).throttle_time.total_seconds() > 0


async def test_requests_count_but_not_those_that_keep_a_member() -> None:
    async with started() as site:
        await site.broker.admin.by(ROOT).alter_quotas([QuotaChange({"request_rate": 2.0}, user="<default>")])
        client, began_s = await site.client(), site.clock.monotonic_s()
        for _ in range(4):
            await client.ask(Key.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert site.clock.monotonic_s() - began_s >= 0.5, "two a second"
        beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        began_s = site.clock.monotonic_s()
        for _ in range(60):
            assert (await client.ask(Key.HEARTBEAT, 0, **beat)).error_code != ErrorCode.none
        assert site.clock.monotonic_s() - began_s < 25, "half a minute, if they counted"


async def test_a_user_has_so_many_connections() -> None:
    async with started() as site:
        await site.broker.admin.by(ROOT).alter_quotas([QuotaChange({"connections": 2.0}, user="<default>")])
        clients = [await site.client() for _ in range(3)]
        for client in clients[:2]:
            assert (await client.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
        with pytest.raises(AssertionError, match="the connection was closed"):
            await clients[2].ask(Key.API_VERSIONS, 0)
