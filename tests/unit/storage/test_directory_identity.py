"""The identity of a data directory: two copies in its root, apart from everything else."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from tests.every_crash import enumerate_crashes
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.directory_identity import IDENTITY_NAMES, DirectoryIdentity, DirectoryIdentityStore
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings

FIRST = DirectoryIdentity(cluster_id="c1", node_id=1, storage="a", founds=True)
SECOND = DirectoryIdentity(cluster_id="c1", node_id=1, storage="b", generation=2)


def zero(files: Files, name: str) -> None:
    file = files.open(name)
    file.pwritev([bytes(512)], 0)
    file.close()


def test_a_new_directory_has_none(files: Files) -> None:
    assert DirectoryIdentityStore(files).current is None


def test_what_was_stored_is_found_again(files: Files) -> None:
    store = DirectoryIdentityStore(files)
    store.store(FIRST)
    assert store.current == FIRST
    assert DirectoryIdentityStore(files).current == FIRST


def test_facts_are_changed_one_by_one(files: Files) -> None:
    store = DirectoryIdentityStore(files)
    store.store(FIRST)
    store.change(storage="b", founds=False, generation=2)
    assert DirectoryIdentityStore(files).current == SECOND


@pytest.mark.parametrize("name", IDENTITY_NAMES)
def test_one_copy_may_be_lost_and_is_written_again(files: Files, name: str) -> None:
    DirectoryIdentityStore(files).store(FIRST)
    zero(files, name)
    store = DirectoryIdentityStore(files)
    assert store.current == FIRST
    store.settle()
    (other,) = set(IDENTITY_NAMES) - {name}
    zero(files, other)
    assert DirectoryIdentityStore(files).current == FIRST


def test_it_is_lost_only_if_both_copies_are(files: Files) -> None:
    DirectoryIdentityStore(files).store(FIRST)
    for name in IDENTITY_NAMES:
        zero(files, name)
    store = DirectoryIdentityStore(files)
    store.settle()
    assert store.current is None


def test_facts_of_a_later_version_are_passed_over(files: Files) -> None:
    class Later(DirectoryIdentity, frozen=True, kw_only=True):
        colour: str

    DirectoryIdentityStore(files).store(Later(cluster_id="c1", node_id=1, storage="a", founds=True, colour="red"))
    assert DirectoryIdentityStore(files).current == FIRST


def test_neither_a_crash_nor_a_killed_process_and_a_power_cut_lose_it() -> None:
    third = DirectoryIdentity(cluster_id="c1", node_id=1, storage="c")
    for operation, later in product(range(1, 7), range(1, 9)):
        for choices in enumerate_crashes():
            disk = SimDisk(operation)
            disk.make_dirs("")
            DirectoryIdentityStore(disk).store(FIRST)
            disk.crash_at(operation)
            with suppress(Crashed):
                DirectoryIdentityStore(disk).store(SECOND)
            disk = disk.kill()
            store = DirectoryIdentityStore(disk)
            shown = store.current
            disk.crash_at(later)
            with suppress(Crashed):
                store.settle()
                store.store(third)
            found = DirectoryIdentityStore(disk.crash(choices)).current
            assert found in (shown, third) or (later <= 4 and found == FIRST), (operation, later)


def test_a_directory_holds_data_once_a_log_or_a_snapshot_was_written(files: Files) -> None:
    manager = LogManager(files, open_max=16, new_incarnation=lambda: "i")
    assert not manager.holds_data()
    files.make_dirs(f"topics/{'a' * 32}/0")
    assert not manager.holds_data(), "an empty directory is no log"
    log, _ = manager.open_log(
        PartitionId(TopicId("a" * 32), 0), LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40), 0
    )
    assert manager.holds_data()
    manager.close_removed([log.identity])
    manager.remove_aside(manager.set_topic_aside(log.identity.topic_id))
    assert not manager.holds_data()
    manager.snapshots.write(1, b"header", b"body")
    assert manager.holds_data()
    manager.close({})
