"""Consumers ask for the offsets of a partition that has no leader at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e.asking import ask, until
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.errors import LeaderNotAvailable
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e, pytest.mark.timeout(90)]

T, U = TopicPartition("t", 0), TopicPartition("u", 0)
LEADER_NOT_AVAILABLE = 50302


def is_refused(url: str) -> bool:
    """True if the broker does not tell where the partition ends."""
    body = {"partitions": [{"topic": "t", "partition": 0}]}
    answer = ask(f"{url}/offsets", body)
    return answer.status == 200 and answer.body["partitions"][0].get("error_code") == LEADER_NOT_AVAILABLE


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as cluster:
        yield cluster


async def test_they_are_known_when_the_leader_may_lead_again(cluster: LocalCluster) -> None:
    """The leader's lease is over, as there is no controller; the leader refuses until there is one."""
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic("t", replicas_assignments={0: [2]})
    async with Consumer(bootstrap_servers=cluster.broker(2).url) as consumer:
        assert await consumer.end_offsets([T]) == {T: 0}
        await asyncio.to_thread(cluster.kill, 1, 3)
        await asyncio.to_thread(until, lambda: is_refused(cluster.broker(2).url))
        asked = asyncio.create_task(consumer.end_offsets([T]))
        await asyncio.to_thread(cluster.restart, 1, 3)
        assert await asked == {T: 0}


async def test_they_are_refused_at_the_timeout_if_nobody_leads(cluster: LocalCluster) -> None:
    async with (
        AdminClient(cluster.bootstrap) as admin,
        Consumer(bootstrap_servers=cluster.bootstrap, request_timeout_ms=1_500) as consumer,
    ):
        await admin.create_topic("u", replicas_assignments={0: [2]})
        assert await consumer.end_offsets([U]) == {U: 0}
        await asyncio.to_thread(cluster.kill, 2)
        with pytest.raises(LeaderNotAvailable):
            await consumer.end_offsets([U])
