"""What a majority commits waits for nobody in particular; and who has lost what it promised is mute until it votes as
somebody else.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flights_faults import SESSION_MS, SETTINGS

from tests.e2e.asking import Asked, ask, controller_of, until
from tests.e2e.clusters import ISR, PAXOS
from tests.e2e.loading import Load, Probes, create, isr, own_copy, partition, records, whole
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

LEADER = 1
FOLLOWERS = (2, 3)
SESSION_S = SESSION_MS / 1000
MUTE_PROBES = 3
MORE = "more"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def described(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    """Partition 0, as a user is shown it by broker 1."""
    command = [sys.executable, "-m", "tidelog", "topic", "describe", topic, "--json"]
    shown = subprocess.run([*command, "--bootstrap", cluster.broker(LEADER).url], capture_output=True, check=True)
    found: dict[str, Any] = json.loads(shown.stdout)["partitions"][0]
    return found


def voters(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """Of partition 0: node id to the id it votes under."""
    return {voter["broker_id"]: voter["voter_id"] for voter in partition(Asked(cluster, LEADER), topic)["voters"]}


# -- one sleeps ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_who_sleeps_is_waited_for_by_the_in_sync_and_by_no_majority(cluster: LocalCluster) -> None:
    """The broker that sleeps is not the controller, so the in-sync set can shrink as soon as it may."""
    for protocol in (ISR, PAXOS):
        await create(cluster, protocol, {"commit.protocol": protocol})
    controller = controller_of(cluster)
    sleeper = next(node_id for node_id in FOLLOWERS if node_id != controller)
    awake = [node_id for node_id in cluster.node_ids if node_id != sleeper]
    asked = Asked(cluster, LEADER)
    for protocol in (ISR, PAXOS):
        asked.append(protocol, 0, "before")
    cluster.pause(sleeper)
    stalled = asyncio.create_task(asyncio.to_thread(asked.produce, ISR, 0, "waits"))
    written = ["before"]
    while not stalled.done():
        answer = await asyncio.to_thread(asked.produce, PAXOS, 0, f"{len(written)}")
        assert answer.status == 200, answer
        assert sorted(answer.body["offsets"][0]["acked_by"]) == awake
        written.append(f"{len(written)}")
    assert len(written) > 5, "one after another, while the other topic waits for one"
    answer = await stalled
    assert sorted(answer.body["offsets"][0]["acked_by"]) == awake == isr(asked, ISR), "the set goes on without it"
    cluster.resume(sleeper)
    for topic, values in ((ISR, ["before", "waits"]), (PAXOS, written)):
        await whole(cluster, topic)
        assert asked.values(topic, 0) == values
        await asyncio.to_thread(until, partial(holds, cluster, sleeper, topic, values))


def holds(cluster: LocalCluster, node_id: int, topic: str, values: list[str]) -> bool:
    return own_copy(cluster, node_id, topic) == values


# -- one forgets ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_who_lost_its_journal_is_mute_until_it_votes_under_another_id(cluster: LocalCluster) -> None:
    """With one of the others down its vote would do, and nobody takes it: it cannot know what it has promised."""
    topic, forgetful, other = "forgotten", 3, 2
    await create(cluster, topic, {"commit.protocol": PAXOS})
    probes = Probes(cluster, LEADER, topic)
    assert len(await probes.send()) >= 2
    before = voters(cluster, topic)
    cluster.kill(forgetful, other)
    shutil.rmtree(journal_of(cluster, forgetful, topic))
    await asyncio.to_thread(cluster.restart, forgetful)
    for _ in range(MUTE_PROBES):
        assert await probes.send() == []
    assert voters(cluster, topic) == before
    assert forgetful not in isr(Asked(cluster, LEADER), topic)
    await asyncio.to_thread(cluster.restart, other)
    await whole(cluster, topic)
    assert voters(cluster, topic) == {**before, forgetful: max(before.values()) + 1}
    cluster.kill(other)
    await asyncio.to_thread(until, lambda: acknowledged_by(cluster, topic) == [LEADER, forgetful])
    await asyncio.to_thread(cluster.restart, other)
    await whole(cluster, topic)
    found = await records(cluster, topic)
    probes.check([record for record in found if record[1] != MORE])
    shown = {voter["broker_id"]: voter["voter_id"] for voter in described(cluster, topic)["voters"]}
    assert shown == voters(cluster, topic)


@pytest.mark.slow
async def test_who_lost_its_disk_under_load_is_filled_and_votes_again(cluster: LocalCluster) -> None:
    topic = "disk-lost"
    await create(cluster, topic, {"commit.protocol": PAXOS})
    before = voters(cluster, topic)
    async with Load(cluster, topic) as load:
        await asyncio.sleep(SESSION_S)
        cluster.wipe(3)
        await asyncio.to_thread(cluster.restart, 3)
        await asyncio.to_thread(until, lambda: voters(cluster, topic).get(3, 0) > before[3])
        await whole(cluster, topic)
        cluster.kill(2)
        acknowledged = len(load.acknowledged)
        await asyncio.to_thread(until, lambda: len(load.acknowledged) > acknowledged + 100)
        await asyncio.to_thread(cluster.restart, 2)
    load.check(await records(cluster, topic))
    await whole(cluster, topic)
    await asyncio.to_thread(until, lambda: own_copy(cluster, 3, topic) == own_copy(cluster, LEADER, topic))


def journal_of(cluster: LocalCluster, node_id: int, topic: str) -> Path:
    """Where a replica of partition 0 keeps what it has promised and accepted; what is applied lies beside it."""
    (shown,) = ask(f"{cluster.broker(LEADER).url}/metadata?topics={topic}").body["topics"]
    topic_id: str = shown["topic_id"]
    return cluster.broker(node_id).data_dir / "topics" / topic_id / "0" / "journal"


def acknowledged_by(cluster: LocalCluster, topic: str) -> list[int]:
    answer = Asked(cluster, LEADER).produce(topic, 0, MORE, timeout_ms=1_000)
    return sorted(answer.body["offsets"][0]["acked_by"]) if answer.status == 200 else []
