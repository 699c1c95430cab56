"""Many new logs at once: few fsyncs, the loader's own bytes, and after a crash all of a log or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from msgspec import UNSET

from tests.unit.storage.conftest import WatchedFiles
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import LogManager, log_directory
from tidelog.storage.new_logs import NewLog, make_topics, prepare, publish
from tidelog.storage.partition_log import LogSettings

TOPIC = TopicId("ab" * 16)
LOGS = [PartitionId(TOPIC, number) for number in range(40)]
ONE = LOGS[0]
SETTINGS = LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40)
METAINFO = b"metainfo"


def make(files: Files, partitions: list[PartitionId], *, is_paxos: bool = False) -> None:
    make_topics(files, partitions)
    news = [NewLog(one, (lambda _: METAINFO) if is_paxos else None) for one in partitions]
    publish(files, [new.partition_id for new in news if prepare(files, new, lambda: "i")], partitions)


def manager_on(files: Files) -> LogManager:
    return LogManager(files, open_max=64, new_incarnation=lambda: "i")


def content(files: Files, directory: str) -> Iterator[tuple[str, bytes]]:
    for name in files.list(directory):
        file = files.open(f"{directory}/{name}")
        yield name, file.pread(1 << 20, 0)
        file.close()


def test_a_log_is_made_as_the_loader_makes_it() -> None:
    ours, theirs = SimDisk(1), SimDisk(1)
    make(ours, [ONE])
    manager_on(theirs).open_log(ONE, SETTINGS, 0)
    directory = log_directory(ONE)
    assert dict(content(ours, directory)) == dict(content(theirs, directory))


def test_many_logs_take_three_fsyncs_of_files_each_and_one_of_their_own_directory() -> None:
    files = WatchedFiles(SimDisk(1))
    make(files, LOGS)
    assert files.counts["sync"] <= 3 * len(LOGS)
    assert files.counts["sync_dir"] <= len(LOGS) + 1
    assert files.counts["make_dirs"] == 1, "which makes the names above durable"
    assert files.counts["open"] <= 4 * len(LOGS)
    manager = manager_on(files)
    files.forget()
    for partition_id in LOGS:
        manager.open_log(partition_id, SETTINGS, 0, held=manager.held(0))
    assert (files.counts["sync"], files.counts["sync_dir"], files.counts["pwritev"]) == (0, 0, 0)


def test_a_paxos_replica_is_made_with_its_journal_and_its_metainfo() -> None:
    files = WatchedFiles(SimDisk(1))
    make(files, LOGS, is_paxos=True)
    assert files.counts["sync"] <= 6 * len(LOGS)
    assert files.counts["sync_dir"] <= 2 * len(LOGS) + 1
    _, stored = manager_on(files).open_journal(ONE, 0)
    assert (stored.metainfo, stored.slots, stored.is_amnesiac) == (METAINFO, [], False)


def test_what_is_there_is_left_to_the_loader() -> None:
    disk = SimDisk(1)
    disk.make_dirs(log_directory(ONE))
    assert not prepare(disk, NewLog(ONE), lambda: "i")


@pytest.mark.parametrize("is_paxos", [False, True])
def test_a_crash_leaves_all_of_a_log_or_nothing_and_it_is_made_again(is_paxos: bool) -> None:
    for operation in count(1):
        disk = SimDisk(operation)
        manager = manager_on(disk)
        manager.identity.store(DirectoryIdentity(cluster_id="c", node_id=1, storage="s"))
        disk.crash_at(operation)
        try:
            make(disk, LOGS[:3], is_paxos=is_paxos)
        except Crashed:
            pass
        else:
            break
        after = disk.crash()
        manager = manager_on(after)
        manager.remove_leftovers()
        there = [one for one in LOGS[:3] if after.exists(log_directory(one))]
        for partition_id in there:
            log, _ = manager.open_log(partition_id, SETTINGS, 0, held=manager.held(0))
            assert log.stands_in_since is UNSET, "it is whole"
            assert not is_paxos or manager.open_journal(partition_id, 0)[1].metainfo == METAINFO
        make(after, LOGS[:3], is_paxos=is_paxos)
        assert manager.partition_ids() == LOGS[:3]
    assert operation > 20
