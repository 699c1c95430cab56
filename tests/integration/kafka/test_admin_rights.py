"""Each call of administration is charged to its client's share and told to the audit log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka.admin_trees import NEW_TOPIC, TREES
from tests.integration.kafka.conftest import STOP_S, Client, KafkaSite, codes, request_frame
from tidelog.adapters.audit_file import AuditFile
from tidelog.adapters.client_network import ClientNetwork
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.broker.assembly import KAFKA_WORDS
from tidelog.broker.face.audit import Audit
from tidelog.broker.face.brake import Brake
from tidelog.broker.kafka.admin.desk import ENTRIES_MAX
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.server import KafkaServer, kafka_listener
from tidelog.controller.commands import QuotaChange
from tidelog.model.access import CLUSTER, Caller, Operation, Resource
from tidelog.model.kafka_codes import KafkaCode

CREATING = (Operation.CREATE, Resource("Topic", "new"))
RIGHTS = {
    Key.CREATE_TOPICS: CREATING,
    Key.ALTER_USER_SCRAM_CREDENTIALS: (Operation.ALTER, CLUSTER),
    Key.DESCRIBE_ACLS: (Operation.DESCRIBE, CLUSTER),
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
    server = KafkaServer(replace(site.broker.face, **face), listener, "localhost", Brake(1.0), site.log_level)
    await server.open(ClientNetwork(KAFKA_WORDS, lambda: "127.0.0.1:8082"))
    await server.serve()
    client = await Client.open(server.address)
    try:
        yield client
    finally:
        await client.close()
        await server.stop(STOP_S)


async def ask(client: Client, key: Key) -> set[int]:
    return {*codes(await client.ask(key, APIS[key].newest, **TREES[key]))}


async def test_changes_and_denials_have_their_lines(site: KafkaSite, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file, thread = AuditFile(str(path), 1 << 20, 2), DiskThreads(1, name="audit")
    audit = Audit(file, thread, site.clock, site.entropy, 1)
    audit.start()
    only = Only()
    try:
        async with listening(site, authorizer=only, audit=audit) as client:
            await ask(client, Key.CREATE_TOPICS)
            for key, right in RIGHTS.items():
                only.allowed = right
                await ask(client, key)
            only.allowed = CREATING
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
