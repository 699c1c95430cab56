"""Brokers with four connections to each other for a Paxos partition (`paxos.peer.lanes`), of which single ones break or
stall: what is acknowledged stays, once and in order, and the load goes on by the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.asking import until
from tests.e2e.clusters import PAXOS
from tests.e2e.loading import GAP_S_MAX, Load, create, records, whole
from tests.e2e.relays import RelayedCluster, Wire

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

LEADER = 1
LANES = 4
TOPIC = "lanes"
BREAKS = 20
EACH_S = 0.2
STALL_S = 12.0
"""Longer than a producer may wait, on slow machines too."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RelayedCluster]:
    settings = {"commit.protocol": PAXOS, "paxos.peer.lanes": str(LANES)}
    with RelayedCluster(3, settings=settings, data_dir=tmp_path) as cluster:
        asyncio.run(create(cluster, TOPIC))
        asyncio.run(whole(cluster, TOPIC))
        yield cluster


def wires(cluster: RelayedCluster) -> list[Wire]:
    """The open connections that brokers have to each other."""
    return [wire for wire in cluster.relays._wires if wire.is_open and wire.sender]


def are_all_open(cluster: RelayedCluster) -> bool:
    return len(wires(cluster)) == 3 * 2 * (1 + LANES)


@asynccontextmanager
async def load(cluster: RelayedCluster) -> AsyncIterator[Load]:
    """Writes all the time, and compares at the end."""
    async with Load(cluster, TOPIC) as writing:
        yield writing
    writing.check(await records(cluster, TOPIC))


async def test_connections_break_one_after_the_other(cluster: RelayedCluster) -> None:
    await asyncio.to_thread(until, lambda: are_all_open(cluster))
    async with load(cluster):
        for _ in range(BREAKS):
            random.choice(wires(cluster)).close()
            await asyncio.sleep(EACH_S)
    await asyncio.to_thread(until, lambda: are_all_open(cluster))


@pytest.mark.parametrize("ends", [(LEADER, 2), (2, LEADER)], ids=["writes", "answers"])
async def test_a_connection_that_stalls_holds_up_nothing_for_long(
    cluster: RelayedCluster, ends: tuple[int, int]
) -> None:
    """Between the leader and the only follower that is up."""
    await asyncio.to_thread(until, lambda: are_all_open(cluster))
    cluster.kill(3)
    async with load(cluster) as writing:
        busy = max(
            (wire for wire in wires(cluster) if (wire.sender, wire.receiver) == ends), key=lambda wire: wire.said
        )
        assert busy.said
        with busy.stalled():
            await asyncio.sleep(STALL_S)
    assert writing.gap_s_max < GAP_S_MAX < STALL_S
