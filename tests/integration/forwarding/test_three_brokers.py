"""Three whole brokers, joined by their own peer connections over a simulated network: nothing is made up here."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, JSON_V2, STOP_S, listen
from tests.integration.http.wire import Reply, ask
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.http.server import HttpServer
from tidelog.config.schema import BrokerConfig
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.cluster import HTTP
from tidelog.producer import Producer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.sim.kit.network import SimNetwork

NODES = (1, 2, 3)
START_S = 20.0


class Machine:
    """One broker and its listener; its disk outlives it."""

    def __init__(self, network: SimNetwork, node_id: int) -> None:
        self.node_id = node_id
        self.host = f"10.0.0.{node_id}"
        self.broker: Broker
        self.server: HttpServer
        self._network = network
        self._disk = SimDisk()
        self._runner = SimRunner(random.Random(node_id), mean_s=0.0002)
        self._settings = {
            "node.id": node_id,
            "cluster.voters": ",".join(f"{one}@10.0.0.{one}:9192" for one in NODES),
            "peer.listener": f"{self.host}:9192",
            "broker.heartbeat.interval.ms": 100,
            "broker.session.timeout.ms": 30_000,  # no broker is fenced because the machine is slow
            "broker.lease.ms": 20_000,
        }

    async def start(self) -> None:
        config = BrokerConfig.model_validate(self._settings)
        network = self._network.host(self.host)
        self.broker = Broker(config, self._disk, SystemClock(), SystemEntropy(), self._runner, network)
        self.server = await listen(self.broker.face)
        await self.broker.start({HTTP: self.server.advertised})

    async def stop(self) -> None:
        await self.server.stop(STOP_S)
        await self.broker.stop()

    @property
    def url(self) -> str:
        return f"http://{self.server.address[0]}:{self.server.address[1]}"

    async def ask(self, method: str, target: str, document: object = None) -> Reply:
        body = None if document is None else json.dumps(document).encode()
        headers = JSON_V2 if target.startswith("/topics") else JSON_DOCUMENT
        return await ask(self.server.address, method, target, body, headers if body else None)


@pytest.fixture
async def three() -> AsyncIterator[dict[int, Machine]]:
    """Topic `t`, one partition led by each broker, without copies."""
    network = SimNetwork(random.Random(0))
    machines = {node_id: Machine(network, node_id) for node_id in NODES}
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(machine.start() for machine in machines.values()))
        for machine in machines.values():
            stack.push_async_callback(machine.stop)
        await machines[1].broker.admin.create_topic(NewTopic("t", 3, 1))
        yield machines


def leader_of(machines: dict[int, Machine], partition: int) -> int:
    return machines[1].broker.topic("t").partitions[partition].leader


async def test_any_broker_answers_any_request(three: dict[int, Machine]) -> None:
    assert sorted(leader_of(three, partition) for partition in range(3)) == [1, 2, 3]
    for machine in three.values():
        records = {"records": [{"value": machine.node_id, "partition": partition} for partition in range(3)]}
        produced = await machine.ask("POST", "/topics/t", records)
        assert produced.status == 200
        assert [one["acked_by"] for one in produced.json()["offsets"]] == [
            [leader_of(three, partition)] for partition in range(3)
        ]
    for partition in range(3):
        for target in ("batches?offset=0", "batches?offset=0&to=9", "records?offset=0", "records?timestamp=0"):
            replies = [
                await machine.ask("GET", f"/topics/t/partitions/{partition}/{target}") for machine in three.values()
            ]
            assert {reply.status for reply in replies} == {200}
            assert len({reply.body for reply in replies}) == 1
    asked = {"partitions": [{"topic": "t", "partition": partition} for partition in range(3)]}
    answers = [(await machine.ask("POST", "/offsets", asked)).json() for machine in three.values()]
    assert answers[0] == answers[1] == answers[2]
    assert [one["high_watermark"] for one in answers[0]["partitions"]] == [3, 3, 3]


async def test_clients_go_on_when_a_leader_stops_and_comes_back(three: dict[int, Machine]) -> None:
    gone = three[leader_of(three, 1)]
    bootstrap = ",".join(machine.url for machine in three.values())
    others = [partition for partition in range(3) if partition != 1]
    async with (
        Producer(bootstrap, linger_ms=0) as producer,
        Consumer("t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer,
    ):
        for partition in range(3):
            await producer.send_and_wait("t", b"before", partition=partition)
        await gone.stop()
        try:
            delivery = await producer.send("t", b"after", partition=1)
            delivery.hurry()
            for partition in others:
                await producer.send_and_wait("t", b"after", partition=partition)
            assert not delivery.done()
        finally:
            async with asyncio.timeout(START_S):
                await gone.start()
        async with asyncio.timeout(START_S):
            assert (await delivery).acked_by == (gone.node_id,)
            read = [await consumer.getone() for _ in range(6)]
    for partition in range(3):
        values = [one.value for one in read if (one.topic, one.partition) == TopicPartition("t", partition)]
        assert values == [b"before", b"after"]
