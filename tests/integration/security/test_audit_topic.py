"""The audit log as a topic: of whole brokers, joined by their own peer connections over a simulated network."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration.forwarding.test_three_brokers import NODES, START_S, Machine
from tests.integration.http.conftest import JSON_V2, STOP_S, Site, listen
from tests.integration.http.wire import Reply, ask
from tidelog.broker.auditing import Auditing
from tidelog.broker.http.server import HttpServer
from tidelog.config.schema import BrokerConfig
from tidelog.model.batch_header import RecordBatch, parse_header
from tidelog.model.errors import InvalidRequest
from tidelog.model.names import AUDIT_TOPIC, OFFSETS_TOPIC
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.sim.kit.network import SimNetwork

RECORDS = f"/topics/{AUDIT_TOPIC}/partitions/0/records?offset=0"


class Recorded:
    """A broker with a listener that tells the audit log."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.auditing = Auditing(BrokerConfig.model_validate({"node.id": machine.node_id, "audit.log.topic": True}))
        self.server: HttpServer

    async def open(self) -> None:
        self.server = await listen(self.auditing.open(self.machine.broker))

    async def close(self) -> None:
        await self.server.stop(STOP_S)
        await self.auditing.publish()
        await self.auditing.close()

    async def ask(self, method: str, target: str, body: bytes | None = None) -> Reply:
        return await ask(self.server.address, method, target, body, JSON_V2 if body else {"Accept": "application/json"})

    async def create(self, name: str) -> Reply:
        target = f"/v3/clusters/{self.machine.broker.cluster_id}/topics"
        body = json.dumps({"topic_name": name}).encode()
        return await ask(self.server.address, "POST", target, body, {"Content-Type": "application/json"})

    async def lines(self, count: int) -> list[dict[str, Any]]:
        """So many lines, or more, as a client reads them."""
        async with asyncio.timeout(START_S):
            while True:
                accept = {"Accept": "application/vnd.kafka.json.v2+json"}
                reply = await ask(self.server.address, "GET", RECORDS, None, accept)
                found = [record["value"] for record in reply.json()] if reply.status == 200 else []
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
async def brokers() -> AsyncIterator[list[Recorded]]:
    network = SimNetwork(random.Random(1))
    machines = [Machine(network, node_id) for node_id in NODES]
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(machine.start() for machine in machines))
        for machine in machines:
            stack.push_async_callback(machine.stop)
        made = [Recorded(machine) for machine in machines]
        for one in made:
            await one.open()
            stack.push_async_callback(one.close)
        yield made


async def test_all_brokers_write_it_and_clients_only_read_it(brokers: list[Recorded]) -> None:
    for number, broker in enumerate(brokers):
        assert (await broker.create(f"t{number}")).status == 201
    lines = await brokers[0].lines(3)
    assert sorted((line["node_id"], line["event"], line["subject"]) for line in lines) == [
        (1, "changed", "t0"),
        (2, "changed", "t1"),
        (3, "changed", "t2"),
    ], "and none about the topic itself"
    topic = brokers[0].machine.broker.image.topics[AUDIT_TOPIC]
    assert topic.is_internal
    assert [len(info.replicas) for info in topic.partitions] == [3]
    body = b'{"records":[{"value":{"event":"changed"}}]}'
    for broker in brokers:
        forged = await broker.ask("POST", f"/topics/{AUDIT_TOPIC}", body)
        assert (forged.status, "brokers' own" in forged.message) == (400, True)
    assert (await brokers[0].create(AUDIT_TOPIC)).status == 400
    v3 = f"/v3/clusters/{brokers[0].machine.broker.cluster_id}/topics/{AUDIT_TOPIC}"
    assert (await brokers[0].ask("DELETE", v3)).status == 400
    lines = await brokers[1].lines(5)
    assert len(lines) == 5, "reading it, and what is refused for its body, has no line"
    assert {(line["status"], line["method"]) for line in lines[3:]} == {(400, "POST"), (400, "DELETE")}


async def test_a_broker_writes_to_no_other_topic_of_the_brokers() -> None:
    site = Site(SimDisk(), SimRunner(random.Random(1), mean_s=0.0002))
    await site.start()
    await site.broker.admin.create_offsets_topic()
    handle = site.broker.face.partitions.handle(OFFSETS_TOPIC, 0)
    data = site.batch(b"x")
    batch = RecordBatch(parse_header(data), memoryview(bytearray(data)))
    deadline_s = asyncio.get_running_loop().time() + START_S
    with pytest.raises(InvalidRequest, match="brokers' own"):
        await handle.produce([batch], acks=-1, deadline_s=deadline_s, is_own=True)
    await site.stop()
