"""Who may use a data directory, and how a full one is emptied."""

from __future__ import annotations

import errno

import pytest

from tests.every_crash import enumerate_crashes
from tests.unit.storage.conftest import Store, WatchedFiles
from tidelog.config.errors import ConfigError
from tidelog.model.errors import DiskFull
from tidelog.model.ports import Files
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.data_directory import FORMAT, check_format, claim
from tidelog.storage.reserve import RESERVE, RESERVE_BYTES, Reserve


def write(files: Files, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwritev([content], 0)
    file.close()


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    data = file.pread(1000, 0)
    file.close()
    return data


# -- format ------------------------------------------------------------------------------------------------------------


def test_a_new_directory_says_which_format_it_has(files: Files) -> None:
    assert not check_format(files)
    claim(files).release()
    assert content(files, FORMAT) == b"tidelog data 1\n"
    assert check_format(files)


def test_a_newer_programs_data_is_left_alone(files: Files) -> None:
    write(files, FORMAT, b"tidelog data 2\n")
    with pytest.raises(
        ConfigError, match=r"has format 2, written by a newer tidelog; this one reads format 1: upgrade"
    ):
        claim(files)
    assert content(files, FORMAT) == b"tidelog data 2\n"
    write(files, FORMAT, b"tidelog data 1\n")
    claim(files).release()  # the lock was given back


@pytest.mark.parametrize("damaged", [b"", b"\0" * 15, b"tidelog data ", b"tidelog data x\n", b"TIDELOG DATA 1\n"])
def test_a_damaged_format_file_does_not_cost_all_logs(files: Files, damaged: bytes) -> None:
    write(files, FORMAT, damaged)
    claim(files).release()
    assert content(files, FORMAT) == b"tidelog data 1\n"


def test_an_unreadable_format_file_does_not_either(files: Files) -> None:
    claim(files).release()
    watched = WatchedFiles(files)
    watched.fails = lambda kind, path: errno.EIO if kind == "pread" and path == FORMAT else 0
    claim(watched).release()


def test_any_crash_while_it_is_written_leaves_a_directory_that_can_be_used() -> None:
    crashes = 0
    for operation in range(1, 8):
        for choices in enumerate_crashes():
            disk = SimDisk(1)
            disk.crash_at(operation)
            try:
                claim(disk)
            except Crashed:
                crashes += 1
            after = disk.crash(choices)
            claim(after).release()
            assert content(after, FORMAT) == b"tidelog data 1\n"
    assert crashes > 10


# -- reserve -----------------------------------------------------------------------------------------------------------


def test_the_reserve_is_taken_given_up_and_taken_again(files: Files) -> None:
    reserve = Reserve(files)
    reserve.fill()
    assert not files.exists(RESERVE), "only a manager makes one"
    assert not reserve.spend()
    reserve.fill(create=True)
    assert files.open(RESERVE).size() == RESERVE_BYTES
    assert reserve.spend()
    assert files.open(RESERVE).size() == 0
    assert not reserve.spend()
    reserve.fill()
    assert files.open(RESERVE).size() == RESERVE_BYTES


def test_a_disk_without_room_has_no_reserve() -> None:
    disk = SimDisk(1)
    disk.medium.capacity_bytes = 100
    reserve = Reserve(disk)
    reserve.fill(create=True)
    reserve.spend()
    assert not reserve.spend()


def test_a_full_disk_can_be_emptied() -> None:
    """F33: deleting works at zero bytes free; then there is room again, and a reserve."""
    disk = SimDisk(1)
    store = Store(WatchedFiles(disk))
    store.opened.reserve.fill(create=True)
    store.append(*[bytes(1000)] * 100)
    store.log.roll(store.now_ms)
    store.append(b"newest")
    store.flush()
    disk.medium.capacity_bytes = disk.medium.used_bytes
    with pytest.raises(DiskFull):
        store.append(b"refused")
    store.log.delete_records(100)
    store.flush()
    assert disk.free_bytes() > 20_000
    assert disk.open(RESERVE).size() == RESERVE_BYTES
    store.append(b"accepted")
    store.flush()
    store.kill_and_open()
    assert store.is_whole
    assert (store.log.log_start_offset, store.log.log_end_offset) == (100, 102)


def test_without_a_reserve_a_full_disk_says_so(store: Store) -> None:
    store.append(b"a")
    store.flush()
    store.files.fails = lambda kind, path: errno.ENOSPC if kind == "pwritev" else 0
    with pytest.raises(DiskFull):
        store.log.delete_records(1)
    assert store.log.log_start_offset == 0
