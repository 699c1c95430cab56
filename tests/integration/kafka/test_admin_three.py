"""Any of three brokers administers the cluster: what is asked of one is in force on all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tests.integration.kafka.conftest import STOP_S, Client, batch
from tests.integration.replication.three_brokers import NODES, ThreeBrokers
from tidelog.adapters.client_network import ClientNetwork
from tidelog.adapters.log_lines import LogLevel
from tidelog.broker.assembly import KAFKA_WORDS
from tidelog.broker.face.brake import Brake
from tidelog.broker.kafka.admin.codes import AdminCode
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.server import KafkaServer, kafka_listener
from tidelog.config.schema import BrokerConfig
from tidelog.model.cluster import PartitionInfo
from tidelog.model.kafka_codes import KafkaCode

WAIT_S = 20


class Cluster:
    """Three brokers, and a client of each."""

    def __init__(self, three: ThreeBrokers, clients: dict[int, Client]) -> None:
        self.three = three
        self.clients = clients

    def info(self, topic: str, node: int = 1) -> PartitionInfo:
        return self.three.brokers[node].image.topics[topic].partitions[0]

    def is_everywhere(self, topic: str) -> bool:
        return all(topic in broker.image.topics for broker in self.three.brokers.values())

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0.01)

    async def create(self, node: int, name: str, *replicas: int) -> int:
        assigned = [{"partition_index": 0, "broker_ids": replicas}]
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assigned, "configs": []}
        answer = await self.clients[node].ask(Key.CREATE_TOPICS, 7, topics=[topic], timeout=5_000, validate_only=False)
        return int(answer.topics[0].error_code.value)

    async def move(self, node: int, topic: str, replicas: tuple[int, ...] | None) -> int:
        partitions = [{"partition_index": 0, "replicas": replicas}]
        topics = [{"name": topic, "partitions": partitions}]
        answer = await self.clients[node].ask(Key.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=5_000)
        return int(answer.responses[0].partitions[0].error_code.value)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    three, clients = ThreeBrokers({}), {}
    async with AsyncExitStack() as stack:
        await three.start(*NODES)
        stack.push_async_callback(three.stop, *NODES)
        listener = kafka_listener(BrokerConfig.model_validate({"kafka.listener": "127.0.0.1:0"}))
        assert listener is not None
        for node, broker in three.brokers.items():
            server = KafkaServer(broker.face, listener, "localhost", Brake(1.0), LogLevel("info"))
            await server.open(ClientNetwork(KAFKA_WORDS, lambda: "127.0.0.1:8082"))
            await server.serve()
            stack.push_async_callback(server.stop, STOP_S)
            clients[node] = await Client.open(server.address)
            stack.push_async_callback(clients[node].close)
        yield Cluster(three, clients)


async def test_any_broker_administers(cluster: Cluster) -> None:
    for node in NODES:
        name = f"of-{node}"
        assert await cluster.create(node, name, 1) == 0
        await cluster.until(partial(cluster.is_everywhere, name))
    assert {await cluster.create(node, "of-1", 1) for node in NODES} == {KafkaCode.TOPIC_ALREADY_EXISTS}
    (done,) = await cluster.clients[1].produce(("of-1", 0, batch(b"a", b"b")))
    assert done.error_code.value == 0
    topics = [{"name": "of-1", "partitions": [{"partition_index": 0, "offset": -1}]}]
    answer = await cluster.clients[3].ask(Key.DELETE_RECORDS, 2, topics=topics, timeout=5_000)
    (deleted,) = answer.topics[0].partitions
    assert (deleted.error_code.value, deleted.low_watermark) == (0, 2)
    await move_and_elect(cluster)


async def move_and_elect(cluster: Cluster) -> None:
    assert await cluster.create(1, "m", 1, 2) == 0
    assert await cluster.move(2, "m", (3, 2)) == 0
    await cluster.until(lambda: cluster.info("m").replicas == (3, 2) and not cluster.info("m").is_moving)
    assert await cluster.move(3, "m", None) == AdminCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await cluster.move(3, "m", (2, 3)) == 0
    await cluster.until(lambda: cluster.info("m", 3).replicas == (2, 3) == (*sorted(cluster.info("m", 3).isr),))
    asked = [{"topic": "m", "partitions": (0,)}]
    answer = await cluster.clients[3].ask(Key.ELECT_LEADERS, 2, election_type=0, topic_partitions=asked, timeout=5_000)
    (elected,) = answer.replica_election_results[0].partition_result
    assert elected.error_code.value in (0, AdminCode.ELECTION_NOT_NEEDED)
    await cluster.until(lambda: cluster.info("m").leader == 2)


@pytest.mark.slow
async def test_what_moves_is_listed_until_it_is_called_off(cluster: Cluster) -> None:
    assert await cluster.create(1, "m", 1) == 0
    cluster.three.cut_off(3)
    assert await cluster.move(1, "m", (3,)) == 0
    answer = await cluster.clients[1].ask(Key.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout=5_000)
    (topic,) = answer.topics
    (moving,) = topic.partitions
    assert (topic.name, moving.replicas, moving.adding_replicas, moving.removing_replicas) == ("m", (3, 1), (3,), (1,))
    assert await cluster.move(2, "m", None) == 0
    await cluster.until(lambda: not cluster.info("m").is_moving)
    assert cluster.info("m").replicas == (1,)
    cluster.three.network.heal()
