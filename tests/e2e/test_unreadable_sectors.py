"""Sectors of one broker's disk give EIO, or flushes of it fail: what was acknowledged is read, and the disk is mended.

The disk is a file system of the test's own (FUSE). Where that cannot be mounted the tests are skipped, and say why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.asking import JSON_RECORDS, Asked, ask, until
from tests.e2e.clusters import ISR, PAXOS, only, running, skipped_without_disks
from tests.e2e.loading import Load, create, own_copy, partition, records, whole
from tests.e2e.power.disks import Disk
from tests.e2e.power.volume import Fault
from tests.e2e.sweep.identities import HEALED, IDLE_S, SETTINGS, Watch
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

RECORDS = 20
OFFLINE, NO_COPY, NOT_IN_LINE = 50304, 40404, 50302
BROKEN = 1
"""The broker with the bad disk; it leads the partitions of all tests."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """The disk that broker 1 of a cluster in `tmp_path` has its data on."""
    with skipped_without_disks(), Disk(data_dir(tmp_path), seed=1) as disk:
        yield disk


def data_dir(directory: Path) -> Path:
    return directory / f"broker-{BROKEN}" / "data"


def log_of(cluster: LocalCluster, topic: str) -> Path:
    """The log of partition 0 on the bad disk."""
    (described,) = ask(f"{Asked(cluster, BROKEN).url}/metadata?topics={topic}").body["topics"]
    topic_id: str = described["topic_id"]
    return cluster.broker(BROKEN).data_dir / "topics" / topic_id / "0" / f"{0:020}.log"


def pattern_of(cluster: LocalCluster, path: Path) -> str:
    """The name of a file as its disk knows it."""
    return str(path.relative_to(cluster.broker(BROKEN).data_dir))


async def test_a_batch_in_a_sector_that_cannot_be_read_is_written_anew(
    disk: Disk, tmp_path: Path, protocol: str
) -> None:
    values = [f"value {number} {'x' * 600}" for number in range(RECORDS)]
    with running(protocol, settings=SETTINGS, data_dir=tmp_path) as cluster:
        await create(cluster, "spoilt")
        for value in values:
            Asked(cluster, BROKEN).append("spoilt", 0, value)
        until(lambda: all(own_copy(cluster, node, "spoilt") == values for node in cluster.node_ids))
        log = log_of(cluster, "spoilt")
        content = log.read_bytes()
        at = content.index(values[7].encode()) + 10
        disk.spoil(pattern_of(cluster, log), at, at + 1)
        with pytest.raises(OSError, match="Input/output"):
            log.read_bytes()
        url = f"{cluster.broker(BROKEN).url}/topics/spoilt/partitions/0/records?replica=local&offset=7"
        answer = ask(url, media=JSON_RECORDS)
        assert [record["value"] for record in answer.body] == values[7:]
        assert log.read_bytes() == content, "it was written again, and so can be read"


@only(ISR, PAXOS)
@pytest.mark.slow
async def test_a_log_that_cannot_be_read_for_good_is_said_so_and_the_others_have_it(
    disk: Disk, tmp_path: Path, protocol: str
) -> None:
    values = [f"value {number}" for number in range(RECORDS)]
    with running(protocol, settings=SETTINGS, data_dir=tmp_path) as cluster:
        await create(cluster, "gone")
        for value in values:
            Asked(cluster, BROKEN).append("gone", 0, value)
        until(lambda: all(own_copy(cluster, node, "gone") == values for node in cluster.node_ids))
        pattern = str(Path(pattern_of(cluster, log_of(cluster, "gone"))).parent / "*")
        url = f"{cluster.broker(BROKEN).url}/topics/gone/partitions/0/records?replica=local&offset=0"
        with disk.failing(Fault("read", pattern), Fault("write", pattern)):
            answer = ask(url, media=JSON_RECORDS)
            assert answer.status == 503, answer
            await asyncio.to_thread(cluster.kill, BROKEN)
            await asyncio.to_thread(cluster.restart, BROKEN)
            answer = ask(url, media=JSON_RECORDS)
            expected = (OFFLINE,) if protocol == ISR else (OFFLINE, NO_COPY, NOT_IN_LINE)
            assert answer.code in expected, answer
            assert partition(Asked(cluster, 2), "gone")["leader"] != BROKEN
            assert [value for _, value in await records(cluster, "gone")] == values
            await asyncio.to_thread(until, lambda: Asked(cluster, 2).produce("gone", 0, "after").status == 200)
        await asyncio.to_thread(cluster.kill, BROKEN)
        await asyncio.to_thread(cluster.restart, BROKEN)
        await whole(cluster, "gone")
        found = [value for _, value in await records(cluster, "gone")]
        assert found[:RECORDS] == values
        await asyncio.to_thread(until, lambda: own_copy(cluster, BROKEN, "gone") == found)
        assert "Traceback" not in cluster.broker(BROKEN).output


@only(ISR, PAXOS)
@pytest.mark.slow
@pytest.mark.parametrize("times", ["once", "always"])
async def test_a_flush_that_fails_takes_the_replica_out_and_nothing_is_lost(
    disk: Disk, tmp_path: Path, protocol: str, times: str
) -> None:
    with running(protocol, settings=SETTINGS, data_dir=tmp_path) as cluster:
        await create(cluster, "failing")
        async with Load(cluster, "failing") as load:
            with disk.failing(Fault("flush", "topics/*")):
                acknowledged = len(load.acknowledged)
                await asyncio.to_thread(until, lambda: partition(Asked(cluster, 2), "failing")["leader"] != BROKEN)
                if times == "always":
                    await asyncio.to_thread(until, lambda: len(load.acknowledged) > acknowledged + 100)
            await asyncio.to_thread(until, lambda: len(load.acknowledged) > acknowledged + 100)
            await asyncio.to_thread(cluster.kill, BROKEN)
            await asyncio.to_thread(disk.cut)
            await asyncio.to_thread(cluster.restart, BROKEN)
        await whole(cluster, "failing")
        found = await records(cluster, "failing")
        load.check(found)
        await asyncio.to_thread(until, lambda: own_copy(cluster, BROKEN, "failing") == [value for _, value in found])


UNREADABLE = {
    "log of ISR": "topics/{isr}/0/*.log",
    "log of Paxos": "topics/{paxos}/0/0*.log",
    "log and catalog of ISR": "topics/{isr}/0/0*",
    "log and catalog of Paxos": "topics/{paxos}/0/0*",
    "catalog of a log of ISR": "topics/{isr}/0/*.catalog",
    "journal of Paxos": "topics/{paxos}/0/journal/*.log",
    "catalog of a journal": "topics/{paxos}/0/journal/*.catalog",
    "metainfo of a log of ISR, one copy": "topics/{isr}/0/metainfo.0",
    "metainfo of a log of ISR, both": "topics/{isr}/0/metainfo.*",
    "metainfo of a journal, one copy": "topics/{paxos}/0/journal/metainfo.0",
    "metainfo of a journal, both": "topics/{paxos}/0/journal/metainfo.*",
    "metadata log": "metadata/*.log",
    "catalog of the metadata log": "metadata/*.catalog",
    "metainfo of the metadata log, one copy": "metadata/metainfo.0",
    "metainfo of the metadata log, both": "metadata/metainfo.*",
    "snapshots, blocks": "snapshots/*.body",
    "snapshots, one header of each": "snapshots/*.header.0",
    "snapshots, all": "snapshots/*",
    "identity, one copy": "identity.0",
    "identity, both": "identity.*",
}
"""All sectors of these files of one broker, when it starts."""


class Spoilt:
    """A cluster with topics of both protocols and a bad disk under one broker; another one after each that stays
    damaged, so that one kind of file says nothing about the next."""

    def __init__(self, new_directory: Callable[[], Path]) -> None:
        self._new_directory = new_directory
        self._stack = ExitStack()
        self._begun: tuple[Disk, Watch] | None = None

    def begin(self) -> tuple[Disk, Watch]:
        """Returns the disk and the cluster, which is whole. Raises `DisksUnavailable`."""
        if self._begun is None:
            directory = self._new_directory()
            disk = self._stack.enter_context(Disk(data_dir(directory), seed=1))
            watch = Watch(self._stack.enter_context(running(ISR, settings=SETTINGS, data_dir=directory)))
            watch.fill()
            self._begun = disk, watch
        return self._begun

    def end(self) -> None:
        self._begun = None
        self._stack.close()


@pytest.fixture(scope="module")
def spoilt(protocol: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoilt]:
    spoilt = Spoilt(lambda: tmp_path_factory.mktemp("spoilt"))
    yield spoilt
    spoilt.end()


@only(ISR)
@pytest.mark.slow
@pytest.mark.parametrize("what", UNREADABLE)
def test_whatever_a_broker_cannot_read_when_it_starts_is_mended(spoilt: Spoilt, what: str) -> None:
    with skipped_without_disks():
        disk, watch = spoilt.begin()
    time.sleep(IDLE_S)  # so that all is known to be durable, as in any cluster that is not being written to
    watch.cluster.kill(*watch.cluster.node_ids)
    disk.spoil(UNREADABLE[what].format(**watch.topic_ids))
    for node in watch.cluster.node_ids:
        watch.cluster.broker(node).begin()
    outcome = watch.settle()
    output = watch.cluster.broker(BROKEN).output
    if outcome != HEALED:
        spoilt.end()
    assert outcome == HEALED, output
    assert "Traceback" not in output
