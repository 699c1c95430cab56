"""Topics that are created before enough brokers are live to lead them."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.asking import ask, until
from tidelog.admin import AdminClient
from tidelog.model.errors import LeaderNotAvailable
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e, pytest.mark.timeout(90)]

BODY = {
    "topic_name": "t",
    "replicas_assignments": {"0": [2, 3]},
    "configs": [{"name": "commit.protocol", "value": "paxos"}],
    "validate_only": True,
}


async def test_a_client_creates_its_topic_when_enough_brokers_are_live() -> None:
    """A Paxos partition of two replicas begins with both."""
    async with LocalCluster(brokers=3) as cluster:
        url = f"{cluster.broker(1).url}/v3/clusters/{cluster.cluster_id}/topics"
        await asyncio.to_thread(cluster.kill, 3)
        await asyncio.to_thread(until, lambda: ask(url, BODY).code == LeaderNotAvailable.code)
        async with AdminClient(cluster.bootstrap) as admin:
            creating = asyncio.create_task(
                admin.create_topic("t", replicas_assignments={0: [2, 3]}, configs={"commit.protocol": "paxos"})
            )
            await asyncio.sleep(0.5)
            assert not creating.done()
            await asyncio.to_thread(cluster.restart, 3)
            assert [list(placement.replicas) for placement in (await creating).assignments] == [[2, 3]]
        async with Producer(cluster.bootstrap) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 0
