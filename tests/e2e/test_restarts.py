"""Brokers are killed all at once, again and again, or restarted in turn: what was acknowledged is there, and it costs
little.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from flights_faults import SETTINGS

from tests.e2e.asking import Asked
from tests.e2e.clusters import running
from tests.e2e.loading import GAP_S_MAX, Load, create, metric, partition, records, whole
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

CRASHES = 50
CRASH_BYTES_MAX = 1 << 20
"""What a life of a broker may leave on its disk, its records included."""
WITNESS = 1
"""The broker that is asked while another one crashes."""


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


async def test_all_are_killed_at_once_and_nothing_acknowledged_is_lost(cluster: LocalCluster) -> None:
    await create(cluster, "crash")
    async with Load(cluster, "crash") as load:
        await asyncio.sleep(0.7)
        cluster.kill(*cluster.node_ids)
        await asyncio.to_thread(cluster.restart, *cluster.node_ids)
    load.check(await records(cluster, "crash"))
    await whole(cluster, "crash")


@pytest.mark.timeout(300)
async def test_a_broker_that_crashes_again_and_again_costs_little(cluster: LocalCluster) -> None:
    """Some of its lives end before it is ready. For each there is one election at most, and its disk does not fill."""
    await create(cluster, "looping", replicas=[3, 1, 2])
    asked = Asked(cluster, WITNESS)
    epoch = partition(asked, "looping")["leader_epoch"]
    elections = metric(asked, "tidelog_controller_changes_total")
    data_bytes = disk_bytes(cluster, 3)
    rng = random.Random(7)
    async with Load(cluster, "looping") as load:
        for _ in range(CRASHES):
            cluster.kill(3)
            cluster.broker(3).begin()
            await asyncio.sleep(rng.uniform(0.0, 2.0))
        cluster.kill(3)
        await asyncio.to_thread(cluster.restart, 3)
        await whole(cluster, "looping")
    load.check(await records(cluster, "looping"))
    assert metric(asked, "tidelog_controller_changes_total") - elections <= CRASHES + 1
    assert partition(asked, "looping")["leader_epoch"] - epoch <= 2 * (CRASHES + 1), "lost, and given back"
    assert disk_bytes(cluster, 3) - data_bytes < CRASHES * CRASH_BYTES_MAX


async def test_brokers_are_restarted_in_turn_under_load(cluster: LocalCluster) -> None:
    """A producer that retries sees no error at all."""
    await create(cluster, "rolling")
    async with Load(cluster, "rolling") as load:
        for node_id in cluster.node_ids:
            await asyncio.to_thread(cluster.restart, node_id)
            await whole(cluster, "rolling")
    load.check(await records(cluster, "rolling"))
    assert load.gap_s_max < GAP_S_MAX


def disk_bytes(cluster: LocalCluster, node_id: int) -> int:
    """Returns what a broker's files take."""
    return sum(path.stat().st_blocks * 512 for path in cluster.broker(node_id).data_dir.rglob("*") if path.is_file())
