"""The walk-through of Confluent's documentation on three brokers: no request goes where the one before it went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import cycle

import pytest

from tests.integration.http.conftest import JSON_V2, STOP_S, listen
from tests.integration.http.wire import Address, Reply, Wire, ask
from tests.integration.replication.three_brokers import ThreeBrokers, three_brokers
from tests.integration.rest_consumers.conftest import Client, named
from tidelog.broker.broker import NewTopic


class Listeners:
    """Of three brokers, which are asked in turn."""

    def __init__(self, cluster: ThreeBrokers, addresses: dict[int, Address]) -> None:
        self.cluster = cluster
        self.addresses = addresses
        self._turns = cycle(addresses)
        self.asked: list[int] = []

    async def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None) -> Reply:
        node = next(self._turns)
        self.asked.append(node)
        return await ask(self.addresses[node], method, path, body, headers)


@pytest.fixture
async def listeners() -> AsyncIterator[Listeners]:
    async with three_brokers() as cluster, AsyncExitStack() as stack:
        addresses = {}
        for node, broker in cluster.brokers.items():
            server = await listen(broker.face)
            stack.push_async_callback(server.stop, STOP_S)
            addresses[node] = server.address
        await cluster.brokers[1].admin.create_topic(NewTopic("t", 3, 3))
        yield Listeners(cluster, addresses)


@pytest.mark.slow
async def test_the_walk_through(listeners: Listeners) -> None:
    client = Client(listeners.ask)
    await client.create()
    await client.subscribe()
    assert await client.done("GET", "subscription") == {"topics": ["t"]}
    assert await client.assigned() == [0, 1, 2]
    for partition in range(3):
        document = {"records": [{"value": partition, "partition": partition}]}
        assert (await client.send("POST", "/topics/t", document, **JSON_V2)).status == 200
    values = list[int]()
    async with asyncio.timeout(20):
        while len(values) < 3:
            values += await client.values()
    assert sorted(values) == [0, 1, 2]
    await client.commit()
    assert await client.committed(0, 1, 2) == {0: 1, 1: 1, 2: 1}
    await client.done("POST", "positions/beginning", {"partitions": named(1)})
    assert await client.values() == [1]
    await client.commit(*named(2, offset=8))
    assert await client.committed(0, 1, 2) == {0: 1, 1: 1, 2: 9}
    await client.delete()
    assert [(await client.send("GET", "records")).code for _ in range(3)] == [40403] * 3
    assert {*listeners.asked} == {1, 2, 3}
    assert all(one != other for one, other in zip(listeners.asked, listeners.asked[1:], strict=False))


@pytest.mark.slow
async def test_a_client_that_goes_away_has_read_nothing_wherever_it_was(listeners: Listeners) -> None:
    """Its read waits at the broker that keeps the instance, which hears of it from the one that was asked."""
    client = Client(listeners.ask)
    await client.create()
    await client.subscribe()
    keeper = next(broker for broker in listeners.cluster.brokers.values() if broker.rest_consumers.instances)
    instance = keeper.rest_consumers._registry.find("g", "i")
    assert instance is not None
    for address in listeners.addresses.values():
        async with await Wire.open(address) as wire:
            wire.write(f"GET {client.path}/records?timeout=30000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            async with asyncio.timeout(20):
                while not instance.is_waiting:
                    await asyncio.sleep(0.001)
        async with asyncio.timeout(20):
            while instance.is_waiting:
                await asyncio.sleep(0.001)
    assert (await client.send("POST", "/topics/t", {"records": [{"value": "a"}]}, **JSON_V2)).status == 200
    assert await client.values("?timeout=10000") == ["a"]
