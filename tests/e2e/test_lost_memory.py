"""A follower acknowledged from memory, and loses its power before it wrote that to its disk, and its leader falls
silent. It comes back before anybody has noticed: who has lost what it acknowledged neither leads nor votes.

The follower's disk keeps what was flushed. Where it cannot be mounted the tests are skipped, and say why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, until
from tests.e2e.clusters import ISR, PAXOS, only, skipped_without_disks
from tests.e2e.loading import create, isr, whole
from tests.e2e.power.disks import Disk
from tests.e2e.replicas import READY_S_MAX, Replicas
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300), only(ISR, PAXOS)]

SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.heartbeat.ms": "300",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.lease.ms": "1500",
    "log.scrub.period.ms": "3600000",
}
TOPIC = "remembered"
LEADER, FOLLOWER, BEHIND = 1, 2, 3
ATTEMPTS_MAX = 10
ALONE_S = 5.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with skipped_without_disks(), Disk(tmp_path / f"broker-{FOLLOWER}" / "data", seed=7) as disk:
        yield disk


@pytest.fixture
def cluster(protocol: str, disk: Disk, tmp_path: Path) -> Iterator[LocalCluster]:
    settings = {"commit.protocol": protocol, **SETTINGS}
    with LocalCluster(3, settings=settings, data_dir=tmp_path, start_timeout_s=READY_S_MAX) as cluster:
        yield cluster


def start(cluster: LocalCluster, *node_ids: int) -> None:
    for node_id in node_ids:
        cluster.broker(node_id).begin()
    for node_id in node_ids:
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)


def forget(cluster: LocalCluster, disk: Disk, replicas: Replicas) -> list[str]:
    """Cuts the follower's power right after an acknowledgement, and has the leader sleep, until the follower's disk
    lacks what was acknowledged last. Returns all that was acknowledged."""
    values: list[str] = []
    for attempt in range(ATTEMPTS_MAX):
        until(lambda: isr(Asked(cluster, LEADER), TOPIC) == [LEADER, FOLLOWER], READY_S_MAX)
        values += replicas.write(LEADER, *(f"value {attempt} {number}" for number in range(5)))
        cluster.kill(FOLLOWER)
        cluster.pause(LEADER)
        disk.cut()
        if not replicas.holds(FOLLOWER, values[-1]):
            return values
        cluster.resume(LEADER)
        start(cluster, FOLLOWER)
    raise AssertionError("all that was acknowledged was on the disk, each time")


def test_a_follower_loses_what_memory_held_and_comes_back_at_once(cluster: LocalCluster, disk: Disk) -> None:
    """A third replica is behind: with it the follower would be a majority."""
    asyncio.run(create(cluster, TOPIC, {"ack.durability": "replicated", "min.insync.replicas": "2"}))
    asyncio.run(whole(cluster, TOPIC))
    replicas = Replicas(cluster, TOPIC)
    cluster.stop(BEHIND)
    values = forget(cluster, disk, replicas)
    start(cluster, FOLLOWER, BEHIND)
    time.sleep(ALONE_S)  # their chance to go on without the leader: no outcome waits for it
    for node_id in (FOLLOWER, BEHIND):
        assert replicas.is_refused(node_id)
    cluster.resume(LEADER)
    until(lambda: len(replicas.values(LEADER)) >= len(values), READY_S_MAX)
    found = replicas.values(LEADER)
    assert found[: len(values)] == values
    assert {*found[len(values) :]} <= {"refused"}, "of that, nobody was told"
    replicas.check(found)
