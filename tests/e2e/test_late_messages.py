"""Messages between the replicas of a Paxos partition come late: when the disk that they were meant for, or that they
came from, is another one, or when the leader that sent them has been replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.asking import Answer, Asked, until
from tests.e2e.clusters import PAXOS
from tests.e2e.loading import create, partition, whole
from tests.e2e.relays import Fate, RelayedCluster, Relays, Said
from tests.e2e.replicas import Replicas
from tidelog.replication.paxos.messages import (
    PromiseRequest,
    Reply,
    WriteRequest,
    WriteResponse,
)

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

LEADER = 1
SETTINGS = {
    "commit.protocol": PAXOS,
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.heartbeat.ms": "300",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.lease.ms": "1500",
    "log.scrub.period.ms": "3600000",
}
TOPIC = "late"
OLD = [f"old {number}" for number in range(3)]
WAITS_MS = 25_000


@pytest.fixture
def brokers() -> int:
    return 3


@pytest.fixture
def cluster(tmp_path: Path, brokers: int) -> Iterator[RelayedCluster]:
    """The topic's only partition is on the first three brokers, and the first of them leads it."""
    with RelayedCluster(brokers, settings=SETTINGS, data_dir=tmp_path) as cluster:
        asyncio.run(create(cluster, TOPIC))
        asyncio.run(whole(cluster, TOPIC))
        yield cluster


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def voters(cluster: RelayedCluster, asked: int) -> dict[int, int]:
    """Returns who votes in the partition: node id to the id it votes under."""
    return {voter["broker_id"]: voter["voter_id"] for voter in partition(Asked(cluster, asked), TOPIC)["voters"]}


def produce(cluster: RelayedCluster, value: str) -> Answer | None:
    """Asks the leader; None if it never answers."""
    try:
        return Asked(cluster, LEADER).produce(TOPIC, 0, value, timeout_ms=WAITS_MS)
    except OSError:
        return None


def acknowledged(answer: Answer | None) -> bool:
    return answer is not None and answer.status == 200


def said_of(relays: Relays, sender: int, receiver: int, reply: Reply) -> set[int]:
    """Returns the positions of writes that were answered so."""
    return {
        said.frame.message.position
        for said in relays.said
        if (said.sender, said.receiver) == (sender, receiver)
        and isinstance(said.frame.message, WriteResponse)
        and said.frame.message.reply is reply
    }


@pytest.mark.parametrize("brokers", [5])
def test_messages_to_and_from_a_replaced_disk_are_still_under_way(
    cluster: RelayedCluster, pool: ThreadPoolExecutor
) -> None:
    """A follower accepts a record, and its disk is replaced before anybody hears of it. What it said, and what it was
    told, arrive afterwards: the new disk does not know of it, and does not vote in the place of the old one. The
    metadata have a majority without both."""
    replicas, relays = Replicas(cluster, TOPIC), cluster.relays
    values = replicas.write(LEADER, "a", "b")
    before = voters(cluster, LEADER)

    def rule(said: Said) -> Fate:
        if (said.sender, said.receiver) == (3, LEADER):
            return Fate.HOLD
        return Fate.REPEAT if (said.sender, said.receiver) == (LEADER, 3) else Fate.PASS

    cluster.kill(2)
    accepted = said_of(relays, 3, LEADER, Reply.ACCEPT)
    relays.rule = rule
    under_way = pool.submit(produce, cluster, "under way")
    until(lambda: said_of(relays, 3, LEADER, Reply.ACCEPT) > accepted)
    assert replicas.holds(3, "under way") and not under_way.done()
    cluster.wipe(3)
    cluster.restart(3)
    relays.rule = lambda _: Fate.PASS
    delivered = relays.release()
    assert {said.receiver for said in delivered} == {LEADER, 3}
    assert replicas.is_refused(LEADER), "two of three disks are here, and one is another"
    assert voters(cluster, LEADER) == before
    cluster.kill(LEADER)
    cluster.restart(2)
    assert replicas.is_refused(2) and replicas.is_refused(3), "the old disk may have voted for what these do not have"
    cluster.restart(LEADER)
    asyncio.run(whole(cluster, TOPIC))
    assert voters(cluster, LEADER) == {**before, 3: max(before.values()) + 1}
    found = replicas.values(LEADER)
    values += ["under way"] if acknowledged(under_way.result()) else []
    assert found[: len(values)] == values
    assert {*found[len(values) :]} <= {"under way", "refused"}, "of these, nobody was told"
    replicas.check(found)


def test_the_writes_of_an_older_number_come_late_over_a_newer_one(
    cluster: RelayedCluster, pool: ThreadPoolExecutor
) -> None:
    """A leader's writes reach nobody, and it falls asleep. Another one is elected, has a record acknowledged, and tells
    nobody so. It is killed, and the other replica that accepted that record gets the old writes."""
    replicas, relays = Replicas(cluster, TOPIC), cluster.relays
    values = replicas.write(LEADER, "a", "b")
    until(lambda: bool(replicas.log_copies(3, "b")))

    def rule(said: Said) -> Fate:
        is_write = isinstance(said.frame.message, WriteRequest)
        if said.sender == LEADER:
            return Fate.HOLD if said.receiver == 3 and is_write else Fate.DROP
        if (said.sender, said.receiver) == (2, 3):
            return Fate.PASS if is_write or isinstance(said.frame.message, PromiseRequest) else Fate.DROP
        return Fate.PASS

    relays.rule = rule
    old = [pool.submit(produce, cluster, value) for value in OLD]
    until(lambda: all(replicas.holds(LEADER, one) for one in OLD) and len(relays.held) >= len(OLD))
    cluster.pause(LEADER)
    until(lambda: partition(Asked(cluster, 2), TOPIC)["leader"] == 2)
    replicas.until_written(2, "new")
    assert replicas.holds(3, "new")
    newer = said_of(relays, 3, 2, Reply.ACCEPT)
    older = {said.frame.message.position for said in relays.held if isinstance(said.frame.message, WriteRequest)}
    assert older & newer, "it is the same position"
    relays.release()
    until(lambda: bool(said_of(relays, 3, LEADER, Reply.REJECT) & older & newer))
    cluster.kill(LEADER, 2)
    relays.rule = lambda _: Fate.PASS
    cluster.restart(LEADER)
    until(lambda: "new" in replicas.values(LEADER))
    found = replicas.values(LEADER)
    assert found == [*values, *["new"] * (len(found) - len(values))]
    cluster.restart(2)
    replicas.check(found)
    assert not any(acknowledged(one.result()) for one in old)
