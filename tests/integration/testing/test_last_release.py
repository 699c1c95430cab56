"""Brokers of the last release and of this version are one cluster: in all mixtures, there and back, and its data opens.

The release is run as it was: its code is taken out of the history, from the commit that gathered its changelog.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.model.levels import LEVEL_MAX
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[3]
NODES = (1, 2, 3)
TOPICS = {"t-isr": "isr", "t-paxos": "paxos"}
SNAPSHOTS = {"metadata.log.snapshot.records": "15"}
START_S_MAX = 90.0
READ_S_MAX = 60.0
T = TypeVar("T")


def git(*words: str) -> bytes:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return ran.stdout if ran.returncode == 0 else b""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    heading = re.search(r"^## \d+\.\d+\.\d+", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    commit = git("log", "--format=%H", "-S", heading[0], "--", "CHANGELOG.md").split()
    archive = git("archive", commit[-1].decode(), "tidelog") if commit else b""
    if not archive:
        # A copy of the sources without their history has no other version to run.
        pytest.skip("the history of the last release is not here; clone all of it")
    found = tmp_path_factory.mktemp("release")
    subprocess.run(["tar", "-x", "-C", found], input=archive, check=True)
    return found


class Mixture:
    """Three brokers, each of either version, and all that was acknowledged by them."""

    def __init__(self, release: Path, old: tuple[int, ...]) -> None:
        self.cluster = LocalCluster(brokers=3, settings=SNAPSHOTS, start_timeout_s=START_S_MAX)
        self.old = ["env", "PYTHONSAFEPATH=1", f"PYTHONPATH={release}"]
        self.values: dict[str, set[bytes]] = {name: set() for name in TOPICS}
        for node in old:
            self.cluster.broker(node).prefix = self.old

    def become(self, node: int, *, is_old: bool) -> None:
        self.cluster.broker(node).prefix = self.old if is_old else ()
        self.cluster.restart(node)
        self.produce()

    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        async with Producer(self.cluster.bootstrap) as producer:
            for name, values in self.values.items():
                fresh = [b"%d" % number for number in range(len(values), len(values) + 10)]
                for number, value in enumerate(fresh):
                    await producer.send(name, value, partition=number % 2)
                await producer.flush()
                values.update(fresh)

    def ask(self, work: Callable[[AdminClient], Awaitable[T]]) -> T:
        async def main() -> T:
            async with AdminClient(self.cluster.bootstrap) as admin:
                return await work(admin)

        return asyncio.run(main())

    def create(self) -> None:
        async def create(admin: AdminClient) -> None:
            for name, protocol in TOPICS.items():
                await admin.create_topic(
                    name, partitions=2, replication_factor=3, configs={"commit.protocol": protocol}
                )

        self.ask(create)

    def alter(self, times: int) -> None:
        """Has the metadata log grow past a snapshot."""

        async def alter(admin: AdminClient) -> None:
            for number in range(times):
                await admin.alter_configs("t-isr", {"retention.ms": str(86_400_000 + number)})

        self.ask(alter)

    def check(self) -> None:
        """All that was acknowledged is read."""
        for name, values in self.values.items():
            assert asyncio.run(self._read(name, len(values))) == values

    async def _read(self, name: str, count: int) -> set[bytes]:
        found: set[bytes] = set()
        async with Consumer(name, bootstrap_servers=self.cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(READ_S_MAX):
                while len(found) < count:
                    records = await consumer.getmany(timeout_ms=1_000)
                    found |= {record.value for some in records.values() for record in some if record.value is not None}
        return found

    def finalize(self) -> str:
        words = ["cluster", "upgrade", "--finalize", "--bootstrap", self.cluster.bootstrap]
        ran = subprocess.run([sys.executable, "-m", "tidelog", *words], capture_output=True, text=True, check=True)
        return ran.stdout


def mixtures() -> Iterator[tuple[int, ...]]:
    for count in (1, 2):
        yield from itertools.combinations(NODES, count)


@pytest.mark.parametrize("old", list(mixtures()), ids=lambda old: "old-" + "-".join(map(str, old)))
def test_brokers_of_both_versions_are_one_cluster(release: Path, old: tuple[int, ...]) -> None:
    mixture = Mixture(release, old)
    with mixture.cluster as cluster:
        mixture.create()
        mixture.produce()
        for node in NODES:
            cluster.kill(node)
            mixture.produce()
            cluster.restart(node)
        cluster.restart(*NODES)
        mixture.produce()
        for node in NODES:  # the others are the old ones now
            mixture.become(node, is_old=node not in old)
        mixture.alter(25)
        cluster.wipe(2)  # it begins with a snapshot of whichever version
        cluster.restart(2)
        mixture.produce()
        for node in NODES:
            mixture.become(node, is_old=False)
        mixture.check()
        assert mixture.finalize() == f"the feature level was raised from 1 to {LEVEL_MAX}\n"
        mixture.alter(25)
        cluster.restart(*NODES)
        mixture.produce()
        mixture.check()


def test_what_the_release_has_on_its_disks_opens(release: Path) -> None:
    mixture = Mixture(release, NODES)
    with mixture.cluster as cluster:
        mixture.create()
        mixture.alter(40)
        mixture.produce()
        cluster.kill(*NODES)
        for node in NODES:
            cluster.broker(node).prefix = ()
        cluster.restart(*NODES)
        mixture.produce()
        mixture.check()
        mixture.finalize()
        cluster.restart(*NODES)
        mixture.check()
