"""A rolling upgrade of real brokers: of those that speak the first feature level alone, as older versions do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tidelog.admin import AdminClient
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.levels import LEVEL_MAX
from tidelog.producer import Producer
from tidelog.testing import BrokerFailed, LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]

OLD, NEW = {"feature.level.max": "1"}, {"feature.level.max": str(LEVEL_MAX)}
T = TypeVar("T")


def ask(cluster: LocalCluster, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with AdminClient(cluster.bootstrap) as admin:
            return await work(admin)

    return asyncio.run(main())


def spoken(cluster: LocalCluster) -> tuple[int, dict[int, int | None]]:
    """Returns the cluster's level, and the highest that each broker speaks."""
    described = ask(cluster, lambda admin: admin.describe_cluster())
    levels = {broker.broker_id: broker.feature_levels for broker in described.brokers}
    return described.feature_level, {node: None if found is None else found.highest for node, found in levels.items()}


async def produce(cluster: LocalCluster) -> None:
    async with Producer(cluster.bootstrap) as producer:
        await producer.send("t", b"value", partition=0)
        await producer.flush()


def run_upgrade(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelog", "cluster", "upgrade", *words, "--bootstrap", cluster.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_brokers_are_upgraded_one_by_one_then_the_cluster() -> None:
    with LocalCluster(brokers=3, settings=OLD) as cluster:
        ask(cluster, lambda admin: admin.create_topic("t", replication_factor=3))
        assert spoken(cluster) == (1, {1: 1, 2: 1, 3: 1})
        for node in (1, 2):
            cluster.restart(node, settings=NEW)
            asyncio.run(produce(cluster))
        assert spoken(cluster)[0] == 1
        with pytest.raises(UnsupportedLevel):
            ask(cluster, lambda admin: admin.raise_feature_level())
        cluster.restart(1, settings=OLD)  # there is a way back
        cluster.restart(3, settings=NEW)
        cluster.restart(1, settings=NEW)
        shown = json.loads(run_upgrade(cluster, "--dry-run", "--json").stdout)
        assert shown == {"before": 1, "feature_level": LEVEL_MAX}
        assert spoken(cluster) == (1, dict.fromkeys((1, 2, 3), LEVEL_MAX))
        raised = run_upgrade(cluster, "--finalize")
        assert (raised.stdout, raised.returncode) == (f"the feature level was raised from 1 to {LEVEL_MAX}\n", 0)
        asyncio.run(produce(cluster))
        assert spoken(cluster) == (LEVEL_MAX, dict.fromkeys((1, 2, 3), LEVEL_MAX))

        with pytest.raises(BrokerFailed):  # there is none any more
            cluster.restart(3, settings=OLD)
        assert f"node 3 speaks feature level 1, and the cluster is at level {LEVEL_MAX}" in cluster.broker(3).output
        asyncio.run(produce(cluster))
        cluster.restart(3, settings=NEW)
        asyncio.run(produce(cluster))
