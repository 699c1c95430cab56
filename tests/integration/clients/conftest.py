"""Running brokers for all client tests, fresh topics on them, and a proxy that loses answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import pytest

from tests.integration.clients.losing_proxy import LosingProxy
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, ConsumerRecord, TopicPartition
from tidelog.model.groups import Heartbeat, HeartbeatAnswer
from tidelog.testing import LocalCluster

NewTopic = Callable[..., Awaitable[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Shared: leave it running, and use topics of your own."""
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def doors() -> Iterator[LocalCluster]:
    """Another one, which takes records in frames, too."""
    with LocalCluster(kafka=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def breakable() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def own_cluster(breakable: LocalCluster) -> LocalCluster:
    """To be killed, paused and restarted, and left in any state."""
    if breakable.broker().is_running:
        breakable.resume()
    else:
        breakable.restart()
    return breakable


@pytest.fixture
async def own_topic(own_cluster: LocalCluster, topic_names: Iterator[str]) -> str:
    """A topic of one partition on the cluster that may be broken."""
    name = next(topic_names)
    async with AdminClient(own_cluster.bootstrap) as admin:
        await admin.create_topic(name, partitions=1)
    return name


@pytest.fixture
async def admin(cluster: LocalCluster) -> AsyncIterator[AdminClient]:
    async with AdminClient(cluster.bootstrap) as admin:
        yield admin


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def new_topic(admin: AdminClient, topic_names: Iterator[str]) -> NewTopic:
    """Creates a topic and returns its name."""

    async def create(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = next(topic_names)
        await admin.create_topic(name, partitions=partitions, configs=configs)
        return name

    return create


@pytest.fixture
async def topic(new_topic: NewTopic) -> str:
    """A topic of one partition."""
    return await new_topic()


async def read_all(bootstrap: str, *partitions: TopicPartition) -> list[ConsumerRecord]:
    """Everything in these partitions, one after the other, in order."""
    records: list[ConsumerRecord] = []
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        for partition in partitions:
            end = (await consumer.end_offsets([partition]))[partition]
            consumer.assign([partition])
            while await consumer.position(partition) < end:
                for found in (await consumer.getmany(timeout_ms=5000)).values():
                    records += found
    return records


@pytest.fixture
def read() -> Callable[..., Awaitable[list[ConsumerRecord]]]:
    return read_all


@pytest.fixture
async def proxy(cluster: LocalCluster) -> AsyncIterator[LosingProxy]:
    async with LosingProxy(cluster) as proxy:
        yield proxy


def hold_back_heartbeats(monkeypatch: pytest.MonkeyPatch, member: Consumer, topic: str) -> asyncio.Event:
    """Cuts a member off from its coordinator, until the event that is returned is set."""
    assert member._group is not None
    calls, is_connected = member._group._calls, asyncio.Event()
    heartbeat = calls.heartbeat

    async def held_back(said: Heartbeat, patience_s: float) -> HeartbeatAnswer:
        await is_connected.wait()
        return await heartbeat(said, patience_s)

    monkeypatch.setattr(calls, "heartbeat", held_back)
    member._group._member.start([topic], "")  # the poll that is under way is cut off
    return is_connected
