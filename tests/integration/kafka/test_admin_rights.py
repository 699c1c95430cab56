"""Each call is judged by the one authorizer, charged to its client's share and told to the audit log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka.admin_trees import NEW_TOPIC, TREES
from tests.integration.kafka.conftest import STOP_S, Client, KafkaSite, request_frame
from tidelog.adapters.audit_file import AuditFile
from tidelog.adapters.client_network import ClientNetwork
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.broker.assembly import KAFKA_WORDS
from tidelog.broker.face.audit import Audit
from tidelog.broker.kafka.admin.desk import ENTRIES_MAX
from tidelog.broker.kafka.admin.table import CALLS
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.server import KafkaServer, kafka_listener
from tidelog.controller.commands import QuotaChange
from tidelog.model.access import CLUSTER, Caller, Operation, Resource
from tidelog.model.kafka_codes import KafkaCode

UNAUTHORIZED = {KafkaCode.TOPIC_AUTHORIZATION_FAILED, KafkaCode.CLUSTER_AUTHORIZATION_FAILED}
TOPIC = Resource("Topic", "t")
NEW = Resource("Topic", "new")
RIGHTS = {
    Key.CREATE_TOPICS: (Operation.CREATE, NEW),
    Key.DELETE_TOPICS: (Operation.DELETE, TOPIC),
    Key.CREATE_PARTITIONS: (Operation.ALTER, TOPIC),
    Key.DESCRIBE_TOPIC_PARTITIONS: (Operation.DESCRIBE, TOPIC),
    Key.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, TOPIC),
    Key.INCREMENTAL_ALTER_CONFIGS: (Operation.ALTER_CONFIGS, TOPIC),
    Key.ALTER_CONFIGS: (Operation.ALTER_CONFIGS, TOPIC),
    Key.DESCRIBE_LOG_DIRS: (Operation.DESCRIBE, CLUSTER),
    Key.DESCRIBE_PRODUCERS: (Operation.READ, TOPIC),
    Key.DELETE_RECORDS: (Operation.DELETE, TOPIC),
    Key.ELECT_LEADERS: (Operation.ALTER, CLUSTER),
    Key.ALTER_PARTITION_REASSIGNMENTS: (Operation.ALTER, CLUSTER),
    Key.LIST_PARTITION_REASSIGNMENTS: (Operation.DESCRIBE, TOPIC),
    Key.DESCRIBE_ACLS: (Operation.DESCRIBE, CLUSTER),
    Key.CREATE_ACLS: (Operation.ALTER, CLUSTER),
    Key.DELETE_ACLS: (Operation.ALTER, CLUSTER),
    Key.DESCRIBE_USER_SCRAM_CREDENTIALS: (Operation.DESCRIBE, CLUSTER),
    Key.ALTER_USER_SCRAM_CREDENTIALS: (Operation.ALTER, CLUSTER),
    Key.DESCRIBE_CLIENT_QUOTAS: (Operation.DESCRIBE_CONFIGS, CLUSTER),
    Key.ALTER_CLIENT_QUOTAS: (Operation.ALTER_CONFIGS, CLUSTER),
}


class Only:
    """An authorizer that allows one thing."""

    def __init__(self) -> None:
        self.allowed: tuple[Operation, Resource] | None = None

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return (operation, resource) == self.allowed


@asynccontextmanager
async def listening(site: KafkaSite, **face: Any) -> AsyncIterator[Client]:
    """A client of another listener of the same broker, with other parts of its face."""
    listener = kafka_listener(site.config)
    assert listener is not None
    server = KafkaServer(replace(site.broker.face, **face), listener, "localhost")
    await server.open(ClientNetwork(KAFKA_WORDS, lambda: "127.0.0.1:8082"))
    await server.serve()
    client = await Client.open(server.address)
    try:
        yield client
    finally:
        await client.close()
        await server.stop(STOP_S)


def codes(answer: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(answer, tuple):
        for entry in answer:
            yield from codes(entry)
    elif is_dataclass(answer):
        for field in fields(answer):
            value = getattr(answer, field.name)
            if field.name == "error_code":
                yield value.value
            else:
                yield from codes(value)


async def ask(client: Client, key: Key) -> set[int]:
    return {*codes(await client.ask(key, APIS[key].newest, **TREES[key]))}


async def test_each_call_takes_its_right(site: KafkaSite) -> None:
    assert {*RIGHTS} == {*CALLS} == {*TREES}
    only = Only()
    async with listening(site, authorizer=only) as client:
        for key in (*CALLS, Key.DELETE_TOPICS):
            only.allowed = None
            refused = await ask(client, key)
            only.allowed = RIGHTS[key]
            allowed = await ask(client, key)
            if key is Key.LIST_PARTITION_REASSIGNMENTS:
                assert refused == allowed == {0}, "what may not be seen is not there"
            else:
                assert refused & UNAUTHORIZED, key
            if key is Key.DESCRIBE_CONFIGS:
                assert allowed == {0, KafkaCode.CLUSTER_AUTHORIZATION_FAILED}, "the broker's are another right"
            elif key is not Key.DELETE_TOPICS or "t" in site.broker.image.topics:
                assert not allowed & UNAUTHORIZED, key
            if key is Key.DELETE_TOPICS:
                await site.topic("t", 2)


async def test_changes_and_denials_have_their_lines(site: KafkaSite, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file, thread = AuditFile(str(path), 1 << 20, 2), DiskThreads(1, name="audit")
    audit = Audit(file, thread, site.clock, site.entropy, 1)
    audit.start()
    only = Only()
    try:
        async with listening(site, authorizer=only, audit=audit) as client:
            await ask(client, Key.CREATE_TOPICS)
            for key in (Key.CREATE_TOPICS, Key.ALTER_USER_SCRAM_CREDENTIALS, Key.DESCRIBE_ACLS):
                only.allowed = RIGHTS[key]
                await ask(client, key)
            only.allowed = RIGHTS[Key.CREATE_TOPICS]
            await ask(client, Key.CREATE_TOPICS)
    finally:
        await audit.stop()
        thread.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    denied, made, altered, failed = lines
    assert (denied["event"], denied["reason"], denied["status"]) == ("denied", "no right", 403)
    assert (made["event"], made["listener"], made["route"]) == ("changed", "kafka", "CreateTopics")
    assert (made["subject"], made["status"], made["client_id"]) == ("new", 200, "tests")
    assert (altered["subject"], altered["operation"]) == ("SCRAM credentials of user alice", "Alter")
    assert (failed["status"], failed["error_code"], failed["allowed"]) == (400, 40002, True)


async def test_changes_are_charged_and_refused_beyond_a_share(site: KafkaSite) -> None:
    client = await site.client()
    share = QuotaChange({"controller_mutation_rate": 1.0}, client_id="tests")
    await site.broker.admin.alter_quotas([share])

    async def create(name: str, partitions: int, *, trial: bool = False) -> tuple[int, float]:
        topics = [{**NEW_TOPIC, "name": name, "num_partitions": partitions}]
        answer = await client.ask(Key.CREATE_TOPICS, 7, topics=topics, timeout=1_000, validate_only=trial)
        return answer.topics[0].error_code.value, answer.throttle_time.total_seconds()

    assert await create("first", 5, trial=True) == (0, 0.0)
    code, throttle_s = await create("first", 50)
    assert code == 0 and 10 < throttle_s <= 30
    code, throttle_s = await create("second", 1)
    assert code == KafkaCode.THROTTLING_QUOTA_EXCEEDED and 10 < throttle_s <= 30
    assert "second" not in site.broker.image.topics


@pytest.mark.slow
async def test_clients_that_know_of_no_throttling_wait_for_their_turn(site: KafkaSite) -> None:
    client = await site.client()
    await site.broker.admin.alter_quotas([QuotaChange({"controller_mutation_rate": 10.0}, client_id="tests")])
    codes_of = []
    for version, name, partitions in ((7, "first", 30), (7, "second", 1), (5, "third", 1)):
        topics = [{**NEW_TOPIC, "name": name, "num_partitions": partitions}]
        answer = await client.ask(Key.CREATE_TOPICS, version, topics=topics, timeout=1_000, validate_only=False)
        codes_of.append(answer.topics[0].error_code.value)
    assert codes_of == [0, KafkaCode.THROTTLING_QUOTA_EXCEEDED, 0]


async def test_a_request_with_too_many_entries_ends_its_connection_alone(site: KafkaSite) -> None:
    other = await site.client()
    topics = [NEW_TOPIC] * (ENTRIES_MAX + 1)
    client = await site.client()
    client.send(request_frame(Key.CREATE_TOPICS, 7, {"topics": topics, "timeout": 1_000, "validate_only": False}))
    assert await client.receive() == b""
    assert not {*codes(await other.ask(Key.API_VERSIONS, 0))} - {0}
