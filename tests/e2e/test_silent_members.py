"""A batch that was acknowledged is bad where its partition is to be led, some replicas never had it, and those that
have it are silent. Who lacks it proves nothing: it is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.e2e.asking import Asked, until
from tests.e2e.clusters import ISR, PAXOS, only
from tests.e2e.loading import create, isr, whole
from tests.e2e.replicas import READY_S_MAX, Replicas
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240), only(ISR, PAXOS)]

SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.heartbeat.ms": "300",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.lease.ms": "1500",
    "replica.lag.time.max.ms": "1500",
    "log.scrub.period.ms": "3600000",
}
TOPIC = "silent"
ALONE_S = 6.0
"""A leader that cannot settle its log's end gives way after half of it."""


@pytest.fixture
def brokers() -> int:
    return 3


@pytest.fixture
def cluster(protocol: str, brokers: int) -> Iterator[LocalCluster]:
    settings = {"commit.protocol": protocol, **SETTINGS}
    with LocalCluster(brokers, settings=settings, start_timeout_s=READY_S_MAX) as cluster:
        yield cluster


def written_without(cluster: LocalCluster, protocol: str, replicas: Replicas, *without: int) -> list[str]:
    """Has records acknowledged, the last ones while some replicas are dead. Kills all that have these but the silent,
    at once: nobody's disk says yet that they are committed."""
    values = replicas.write(1, "a", "b")
    asyncio.run(whole(cluster, TOPIC))
    cluster.kill(*without)
    if protocol == ISR:
        until(lambda: not {*isr(Asked(cluster, 1), TOPIC)} & {*without}, READY_S_MAX)
    return values + replicas.write(1, "c", "last")


def start(cluster: LocalCluster, *node_ids: int) -> None:
    for node_id in node_ids:
        cluster.broker(node_id).begin()
    for node_id in node_ids:
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)


@pytest.mark.parametrize("brokers", [5])
def test_the_leaders_batch_is_bad_two_lack_it_and_two_are_silent(cluster: LocalCluster, protocol: str) -> None:
    """Two brokers that lack the batch and one that has it damaged are a majority of five."""
    asyncio.run(create(cluster, TOPIC, {"min.insync.replicas": "3"}, cluster.node_ids))
    replicas = Replicas(cluster, TOPIC)
    values = written_without(cluster, protocol, replicas, 4, 5)
    cluster.pause(2)
    cluster.pause(3)
    cluster.kill(1)
    replicas.rot(1, values[-1])
    start(cluster, 1, 4, 5)
    time.sleep(ALONE_S)  # their chance to go on without it: no outcome waits for it
    for node_id in (1, 4, 5):
        assert replicas.is_refused(node_id)
    cluster.resume(2)
    cluster.resume(3)
    until(lambda: len(replicas.values(1)) >= len(values))
    found = replicas.values(1)
    assert found[: len(values)] == values
    assert not [value for value in found[len(values) :] if value != "refused"]
    replicas.check(found, cluster.node_ids)


def test_somebody_out_of_sync_denies_a_batch(cluster: LocalCluster, protocol: str) -> None:
    """Broker 3 was away when the batch was written, broker 1 has it damaged, and broker 2, which has it, is silent."""
    asyncio.run(create(cluster, TOPIC, {"min.insync.replicas": "2"}))
    replicas = Replicas(cluster, TOPIC)
    values = written_without(cluster, protocol, replicas, 3)
    cluster.pause(2)
    cluster.kill(1)
    replicas.rot(1, values[-1])
    start(cluster, 1, 3)
    time.sleep(ALONE_S)  # their chance to go on without it: no outcome waits for it
    for node_id in (1, 3):
        assert replicas.is_refused(node_id)
    cluster.resume(2)
    until(lambda: len(replicas.values(1)) >= len(values))
    found = replicas.values(1)
    assert found[: len(values)] == values
    assert not [value for value in found[len(values) :] if value != "refused"]
    replicas.check(found)
