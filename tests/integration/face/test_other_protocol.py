"""A listener of another protocol stands beside the HTTP listener, with limits of its own, on the same face."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.integration.face.line_listener import NAME, LineListener
from tests.integration.http.conftest import AS_JSON, JSON_V2, STOP_S, listen
from tests.integration.http.wire import Reply, ask
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.face.admission import ListenerLimits
from tidelog.broker.face.listener import Listener
from tidelog.broker.http.server import HttpServer
from tidelog.config.schema import BrokerConfig
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner
from tidelog.sim.kit.network import SimNetwork

LINES = Listener(NAME, Endpoint("127.0.0.1", 0), ListenerLimits(connections_max=1))


class TwoFaced:
    """One broker with two listeners, and topic `t` of one partition."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.http: HttpServer
        self.lines = LineListener(broker.face, LINES)

    async def start(self) -> None:
        self.http = await listen(self.broker.face)
        await self.lines.open()
        await self.broker.start({HTTP: self.http.advertised, NAME: self.lines.advertised})
        await self.broker.admin.create_topic(NewTopic("t", 1))

    async def stop(self) -> None:
        await self.lines.close()
        await self.http.stop(STOP_S)
        await self.broker.stop()

    async def say(self, *lines: str) -> list[str]:
        return await say(self.lines, *lines)

    async def ask(self, method: str, target: str, body: bytes | None = None) -> Reply:
        return await ask(self.http.address, method, target, body, JSON_V2 if body else AS_JSON)


async def say(listener: LineListener, *lines: str) -> list[str]:
    """The answers to lines on one connection; none if it was refused."""
    reader, writer = await asyncio.open_connection(listener.advertised.host, listener.advertised.port)
    answers = list[str]()
    with contextlib.suppress(ConnectionError):
        for line in lines:
            writer.write(line.encode() + b"\n")
            if answer := await reader.readline():
                answers.append(answer.decode().strip())
        writer.close()
        await writer.wait_closed()
    writer.close()
    return answers


@pytest.fixture
async def both() -> AsyncIterator[TwoFaced]:
    network = SimNetwork(random.Random(1)).host("127.0.0.1")
    runner = SimRunner(random.Random(0), mean_s=0.0002)
    made = TwoFaced(Broker(BrokerConfig(), SimDisk(), SystemClock(), SystemEntropy(), runner, network))
    await made.start()
    yield made
    await made.stop()


async def test_what_one_protocol_writes_the_other_reads(both: TwoFaced) -> None:
    assert await both.say("PRODUCE t 0 17", "READ t 0 0") == ["OK 0", "VALUE 17"]
    (record,) = (await both.ask("GET", "/topics/t/partitions/0/records?offset=0")).json()
    assert (record["offset"], record["value"]) == (0, 17)
    assert (await both.ask("POST", "/topics/t", b'{"records":[{"value":"x"}]}')).status == 200
    assert await both.say("READ t 0 1") == ['VALUE "x"']
    assert await both.say("PRODUCE u 0 1", "HELLO") == ["ERROR UNKNOWN_TOPIC_OR_PARTITION", "ERROR INVALID_REQUEST"]


async def test_each_listener_is_registered_under_its_name(both: TwoFaced) -> None:
    listeners = both.broker.image.brokers[both.broker.node_id].listeners
    assert dict(listeners) == {HTTP: both.http.advertised, NAME: both.lines.advertised}
    where = await both.say(f"WHERE 1 {HTTP}", f"WHERE 1 {NAME}")
    assert where == [f"AT {both.http.advertised}", f"AT {both.lines.advertised}"]


async def test_a_listener_that_is_full_leaves_the_other_its_room(both: TwoFaced) -> None:
    _, writer = await asyncio.open_connection(both.lines.advertised.host, both.lines.advertised.port)
    while both.lines.admission.connections.open == 0:
        await asyncio.sleep(0)
    assert await both.say("READ t 0 0") == []
    assert (await both.ask("GET", "/topics")).json() == ["t"]
    writer.close()
    await writer.wait_closed()


async def test_a_stop_ends_the_waits_of_its_own_listener(both: TwoFaced) -> None:
    waiting = asyncio.ensure_future(both.say("READ t 0 0"))
    while not len(both.lines.admission.waits):
        await asyncio.sleep(0)
    both.lines.admission.close()
    assert await waiting == ["NONE"]
    assert (await both.ask("GET", "/readyz")).status == 200


class Nobody:
    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return False


async def test_one_authorizer_judges_for_every_listener(both: TwoFaced) -> None:
    guarded = LineListener(replace(both.broker.face, authorizer=Nobody()), LINES)
    await guarded.open()
    assert await say(guarded, "PRODUCE t 0 1") == ["ERROR TOPIC_AUTHORIZATION_FAILED"]
    await guarded.close()
