"""Histories in which the naive way of dealing with a damaged log loses what was acknowledged, on real disks.

All brokers are killed, what the history says is done to their files, and they are started again. Each test has a topic
of its own in one cluster, and leaves the cluster whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest

from tests.e2e.asking import until
from tests.e2e.clusters import ISR, PAXOS, only, running
from tests.e2e.loading import create, whole
from tests.e2e.replicas import READY_S_MAX, Replicas
from tidelog.admin import AdminClient
from tidelog.model.errors import TimedOutAfterAppend
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]
PROTOCOLS = only(ISR, PAXOS)

NODES = (1, 2, 3)
LEADER = 1
ALONE_S = 3.0
"""How long some run before the others start."""
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "log.scrub.period.ms": "3600000",
}
"""It is not the scrubber who finds damage here."""
VALUES = [f"value {number}" for number in range(8)]
KEPT_FROM = 6
_numbers = count()


@pytest.fixture(scope="module")
def shared(protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> Iterator[LocalCluster]:
    """All brokers run when the next test begins, however this one ends."""
    yield shared
    dead = [node_id for node_id in NODES if not shared.broker(node_id).is_running]
    for node_id in set(NODES) - {*dead}:
        shared.resume(node_id)
    if dead:
        shared.restart(*dead)


def begun(cluster: LocalCluster, *replicas: int, least: int = 2) -> Replicas:
    """Returns a new topic of one partition, with so many replicas in sync at least; the first of its replicas leads."""
    topic = f"history-{next(_numbers)}"
    asyncio.run(create(cluster, topic, {"min.insync.replicas": str(least)}, replicas or NODES))
    asyncio.run(whole(cluster, topic))
    return Replicas(cluster, topic)


async def need(cluster: LocalCluster, topic: str, least: int) -> None:
    """Has the topic commit with so many replicas in sync."""
    async with AdminClient(cluster.broker(LEADER).url) as admin:
        await admin.alter_configs(topic, {"min.insync.replicas": str(least)})


def start(cluster: LocalCluster, *node_ids: int) -> None:
    """Starts brokers, and waits until they are ready."""
    for node_id in node_ids:
        cluster.broker(node_id).begin()
    for node_id in node_ids:
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)


def start_first(cluster: LocalCluster, *first: int) -> None:
    """Starts some brokers, and the others when those had time to do harm."""
    for node_id in first:
        cluster.broker(node_id).begin()
    time.sleep(ALONE_S)  # their chance to do harm: no outcome waits for it
    others = sorted(set(NODES) - set(first))
    for node_id in others:
        cluster.broker(node_id).begin()
    for node_id in NODES:
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)


@PROTOCOLS
def test_three_replicas_have_each_lost_another_batch(cluster: LocalCluster) -> None:
    """No replica has all: one that stops for damage, or is emptied and filled again, takes a last good copy away."""
    replicas = begun(cluster)
    values = replicas.write(LEADER, *VALUES)
    until(lambda: all(replicas.holds(node_id, VALUES[-1]) for node_id in NODES))
    cluster.kill(*NODES)
    for node_id in NODES:
        replicas.rot(node_id, values[node_id], values[node_id + 3])
    replicas.rot(LEADER, values[-1])
    start(cluster, *NODES)
    replicas.check(values)


@PROTOCOLS
def test_the_high_watermark_on_the_disk_is_lost(cluster: LocalCluster) -> None:
    """Both copies, on each replica: what lies above a high watermark that nobody knows is not less acknowledged."""
    replicas = begun(cluster)
    values = replicas.write(LEADER, *VALUES)
    cluster.kill(*NODES)
    for node_id in NODES:
        copies = sorted(replicas.directory(node_id).glob("metainfo.*"))
        assert len(copies) == 2
        for path in copies:
            path.write_bytes(bytes(path.stat().st_size))
    start_first(cluster, 3)
    replicas.check(values)


@PROTOCOLS
@pytest.mark.parametrize("victim", [1, 2], ids=["leader", "follower"])
def test_a_misdirected_write_hits_a_batch_and_its_neighbour(cluster: LocalCluster, victim: int) -> None:
    """Two sound batches of the same log lie where two others were, and two others are torn in their middles."""
    replicas = begun(cluster)
    values = replicas.write(LEADER, *VALUES)
    until(lambda: len(replicas.log_copies(victim, *values)) == len(values))
    cluster.kill(*NODES)
    copies = replicas.log_copies(victim, *values)
    path = copies[0].path
    content = bytearray(path.read_bytes())
    strayed = content[copies[0].position : copies[2].position]
    content[copies[2].position : copies[2].position + len(strayed)] = strayed
    middle = copies[5].position + copies[5].size // 2
    content[middle : middle + len(strayed) // 2] = strayed[: len(strayed) // 2]
    path.write_bytes(content)
    assert {copy.entry for copy in replicas.log_copies(victim, *values)} < set(range(len(values)))
    start_first(cluster, victim)
    replicas.check(values)


@PROTOCOLS
def test_a_damaged_batch_that_another_leader_has_replaced(cluster: LocalCluster) -> None:
    """A leader appends what nobody else gets, and is killed. Another batch is acknowledged at that offset, and the
    first one rots: it is not mended with the other, nor kept."""
    replicas = begun(cluster)
    values = replicas.write(LEADER, *VALUES[:4])
    until(lambda: all(replicas.log_copies(node_id, values[-1]) for node_id in NODES))
    cluster.kill(2, 3)
    assert replicas.is_refused(LEADER, "ghost")
    assert replicas.holds(LEADER, "ghost")
    cluster.kill(LEADER)
    start(cluster, 2, 3)
    replicas.until_written(2, "real")
    replicas.rot(LEADER, "ghost")
    start(cluster, LEADER)
    asyncio.run(whole(cluster, replicas.topic))
    found = replicas.values(LEADER)
    assert found == values + ["real"] * (len(found) - len(values)), "it was asked for until it was acknowledged"
    replicas.check(found)
    until(lambda: bool(replicas.log_copies(LEADER, "real")))
    assert not replicas.log_copies(LEADER, "ghost")


@PROTOCOLS
def test_who_has_deleted_a_batch_is_asked_for_it(cluster: LocalCluster, protocol: str) -> None:
    """It has let go of it since, and has not lacked it: what follows stays."""
    replicas = begun(cluster, *((2, 1) if protocol == ISR else (2, 1, 3)))
    others = [2] if protocol == ISR else [2, 3]
    values = replicas.write(2, *VALUES)
    kept = [*enumerate(values)][KEPT_FROM:]
    until(lambda: all(replicas.log_copies(node_id, VALUES[-1]) for node_id in (1, *others)))
    cluster.pause(1)
    if protocol == ISR:
        with pytest.raises(TimedOutAfterAppend):  # as long as 1 may lead next
            delete(cluster, replicas.topic, timeout_ms=12_000)
    else:
        delete(cluster, replicas.topic)
    for node_id in others:
        until(partial(replicas.shows, node_id, kept))
    cluster.kill(*NODES)
    replicas.rot(1, VALUES[KEPT_FROM - 1])
    start_first(cluster, 1, 3)
    delete(cluster, replicas.topic)  # whoever leads now may not have heard of it
    until(lambda: replicas.read(1) == kept)
    replicas.check(values[KEPT_FROM:], (1, *others))


def delete(cluster: LocalCluster, topic: str, *, timeout_ms: float = 30_000) -> None:
    """Deletes the records below `KEPT_FROM`."""

    async def asked() -> None:
        async with AdminClient(cluster.broker(2).url, request_timeout_ms=timeout_ms) as admin:
            await admin.delete_records(topic, 0, KEPT_FROM)

    asyncio.run(asked())


@only(ISR)
def test_a_leader_truncates_what_is_bad_and_who_has_it_follows(cluster: LocalCluster) -> None:
    """Two replicas have a batch that is not committed, and it rots on one of them. That one leads, the third one lacks
    the batch, and another takes its offset: under another epoch, so that the second can tell. Nothing was committed
    without the third, in whichever order they have come back."""
    replicas = begun(cluster, least=3)
    values = replicas.write(LEADER, *VALUES[:4])
    until(lambda: all(replicas.holds(node_id, values[-1]) for node_id in NODES))
    cluster.pause(3)
    assert replicas.is_refused(LEADER, "ghost")
    until(lambda: replicas.holds(2, "ghost"))
    cluster.kill(*NODES)
    assert not replicas.holds(3, "ghost")
    replicas.rot(LEADER, "ghost")
    start(cluster, LEADER, 3)
    asyncio.run(need(cluster, replicas.topic, 2))
    replicas.until_written(LEADER, "real")
    assert not replicas.holds(LEADER, "ghost") and not replicas.holds(3, "ghost")
    start(cluster, 2)
    asyncio.run(whole(cluster, replicas.topic))
    found = replicas.values(LEADER)
    assert found == values + ["real"] * (len(found) - len(values))
    replicas.check(found)
    until(lambda: not replicas.holds(2, "ghost"))
    assert replicas.content(1) == replicas.content(2) == replicas.content(3)
