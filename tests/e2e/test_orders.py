"""Topics in which commits do not wait for all before them, beside the others, while real brokers are killed, stopped
and cut off: nothing acknowledged is lost or there twice, and a leader is replaced as soon as any other."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from flights_faults import SETTINGS, until_in_sync

from tests.e2e.asking import Asked
from tests.e2e.loading import partition
from tests.e2e.mixed import BY_KEY, TOPICS, WITH_HOLES, Mixed, attack
from tests.e2e.relays import RelayedCluster
from tests.e2e.test_lanes import wires
from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster, NetworkUnavailable, PrivateNetwork
from tidelog.testing.faults import Fault, Faults, plan

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

LANES = {"paxos.peer.lanes": "4"}
FAULT_S = 4.0
CALM_S = 1.0
GAP_S_MAX = 12.0
"""A bound for slow machines, not a figure."""
DRAWN = 6
STALLS = 30
STALL_S = 0.6
SEED = 11


@pytest.fixture
def links() -> Iterator[PrivateNetwork | None]:
    """The network of the brokers, where the test may cut its links."""
    with contextlib.ExitStack() as stack:
        network = None
        with contextlib.suppress(NetworkUnavailable):
            network = stack.enter_context(PrivateNetwork(3))
        yield network


async def inflict(cluster: LocalCluster, faults: Faults, fault: Fault, mixed: Mixed) -> None:
    """Inflicts a fault, and waits until all replicas are in sync again."""
    mixed.recording.fault(str(fault))
    mixed.measure()
    await faults.inflict(fault)
    async with AdminClient(cluster.bootstrap) as admin:
        for topic in TOPICS:
            await until_in_sync(admin, topic)
    await asyncio.sleep(CALM_S)


def leader_of(cluster: LocalCluster, topic: str) -> int:
    return int(partition(Asked(cluster, cluster.node_ids[0]), topic)["leader"])


def test_leaders_fall_and_no_topic_loses_or_repeats_a_record(links: PrivateNetwork | None) -> None:
    with LocalCluster(3, settings={**SETTINGS, **LANES}, network=links) as cluster:
        faults = Faults(cluster, links)
        kinds = [kind for kind in ("killed", "paused", "cut off") if kind in faults.kinds]

        async def leaders(mixed: Mixed) -> None:
            for topic in WITH_HOLES:
                for kind in kinds:
                    leader = await asyncio.to_thread(leader_of, cluster, topic)
                    await inflict(cluster, faults, Fault(kind, (leader,), FAULT_S), mixed)
                    assert mixed.gaps()[topic] < GAP_S_MAX

        verdict = asyncio.run(attack(cluster, leaders))
    assert (verdict.word, verdict.anomalies) == ("valid", ())


def test_drawn_faults_leave_all_topics_as_they_were_promised(links: PrivateNetwork | None) -> None:
    with LocalCluster(3, settings={**SETTINGS, **LANES}, network=links) as cluster:
        faults = Faults(cluster, links)

        async def drawn(mixed: Mixed) -> None:
            for fault in islice(plan(SEED, cluster.node_ids, faults.kinds), DRAWN):
                await inflict(cluster, faults, fault, mixed)

        verdict = asyncio.run(attack(cluster, drawn))
    assert (verdict.word, verdict.anomalies) == ("valid", ())


def test_a_reader_by_key_is_shown_records_past_holes(tmp_path: Path) -> None:
    """Now and then one of the leader's connections to each follower stalls, and frames on the others arrive first."""
    rng = random.Random(SEED)
    with RelayedCluster(3, settings={**SETTINGS, **LANES}, data_dir=tmp_path) as cluster:

        async def stall(mixed: Mixed) -> None:
            mixed.recording.fault("connections stall")
            for _ in range(STALLS):
                leader = await asyncio.to_thread(leader_of, cluster, BY_KEY)
                with contextlib.ExitStack() as stack:
                    for follower in sorted(set(cluster.node_ids) - {leader}):
                        ways = [wire for wire in wires(cluster) if (wire.sender, wire.receiver) == (leader, follower)]
                        stack.enter_context(rng.choice(ways).stalled())
                    await asyncio.sleep(STALL_S)
                await asyncio.sleep(STALL_S / 2)
            assert mixed.shown_early

        verdict = asyncio.run(attack(cluster, stall))
    assert (verdict.word, verdict.anomalies) == ("valid", ())
