"""A simulated disk that fails while it is used."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.unit.sim.kit.crashes import (
    OLD,
    ZERO,
    A,
    B,
    C,
    contents,
    make,
    safe_file,
    state,
)
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import FaultRates


def test_a_failed_sync_drops_the_writes_and_the_next_one_says_yes() -> None:
    lost, seen_after, noticed = 0, 0, 0
    for seed in range(100):
        disk = SimDisk(seed)
        file = safe_file(disk, OLD)
        file.pwritev([A], 512)
        disk.medium.faults = FaultRates(sync_error=1.0)
        with pytest.raises(OSError, match="EIO"):
            file.sync()
        disk.medium.faults = FaultRates()
        file.sync()
        seen_after += file.pread(2000, 0) == OLD + A
        noticed += file.pread(2000, 0) != OLD + A
        lost += disk.crash().open("f").pread(2000, 0) != OLD + A
    assert lost > 20
    assert seen_after > 20
    assert noticed > 5


def test_a_failed_directory_sync_leaves_the_names_unsettled() -> None:
    disk = SimDisk(1)
    make(disk, "f", named=False)
    disk.medium.faults = FaultRates(sync_error=1.0)
    with pytest.raises(OSError, match="EIO"):
        disk.sync_dir("")
    assert len(disk.medium.space.pending) == 1


def test_a_lying_sync_can_lose_what_it_promised() -> None:
    def build(disk: SimDisk) -> None:
        file = safe_file(disk, OLD)
        disk.medium.faults = FaultRates(lying_sync=1.0)
        file.pwritev([A], 512)
        file.sync()

    assert contents(build) == {OLD, OLD + A, OLD + ZERO}


def test_read_and_write_errors() -> None:
    prefixes = set()
    for seed in range(50):
        disk = SimDisk(seed)
        file = safe_file(disk, OLD)
        disk.medium.faults = FaultRates(write_error=1.0, read_error=1.0)
        with pytest.raises(OSError, match="EIO"):
            file.pread(1, 0)
        with pytest.raises(OSError, match="EIO"):
            file.pwritev([b"1234"], 512)
        disk.medium.faults = FaultRates()
        prefixes.add(file.pread(10, 512))
    assert prefixes == {b"", b"1", b"12", b"123", b"1234"}


def test_a_lost_write_is_seen_until_the_cache_is_dropped() -> None:
    disk = SimDisk(1)
    file = safe_file(disk, OLD)
    disk.medium.faults = FaultRates(lost_write=1.0)
    file.pwritev([A], 0)
    file.sync()
    assert file.pread(512, 0) == A
    disk.medium.walk()["f"].drop_cache()
    assert file.pread(512, 0) == OLD


def test_a_misdirected_write_lands_elsewhere() -> None:
    elsewhere = set()
    for seed in range(80):
        disk = SimDisk(seed)
        make(disk, "g", OLD * 2)
        file = safe_file(disk, OLD * 2)
        disk.medium.faults = FaultRates(misdirected_write=1.0)
        file.pwritev([A], 512)
        assert file.pread(2000, 0) == OLD + A
        for name in "fg":
            disk.open(name).sync()
        elsewhere.add(state(disk.crash()))
    assert (("f", OLD * 2), ("g", A + OLD)) in elsewhere
    assert (("f", A + OLD), ("g", OLD * 2)) in elsewhere


def test_a_full_disk_takes_what_fits_and_recovers_when_there_is_room() -> None:
    disk = SimDisk(1)
    disk.medium.capacity_bytes = 1000
    file = safe_file(disk, OLD)
    assert disk.free_bytes() == 488
    with pytest.raises(OSError, match="ENOSPC"):
        file.pwritev([A[:300], B[:300]], 512)
    assert file.pread(1000, 512) == A[:300] + B[:188]
    assert disk.free_bytes() == 0
    file.pwritev([B], 0)  # in place: needs no room
    file.sync()
    file.truncate(512)
    assert disk.free_bytes() == 488
    file.pwritev([C[:488]], 512)
    disk.medium.capacity_bytes = 2000
    file.pwritev([C], 1000)
    assert disk.free_bytes() == 488


def test_space_comes_back_with_removal_replacement_and_crash() -> None:
    disk = SimDisk(1)
    disk.medium.capacity_bytes = 4096
    for name in "abc":
        make(disk, name, OLD)
    disk.remove("a")
    assert disk.free_bytes() == 4096 - 1024
    disk.rename("b", "c")
    assert disk.free_bytes() == 4096 - 512
    disk.sync_dir("")
    disk.open("c").pwritev([A], 512)
    after = disk.crash()
    assert after.free_bytes() == 4096 - len(after.medium.walk()["c"].data)


def test_a_full_disk_may_refuse_new_names() -> None:
    refused = 0
    for seed in range(40):
        disk = SimDisk(seed)
        make(disk, "f", OLD)
        disk.medium.capacity_bytes = 512
        try:
            disk.open("g", create=True)
        except OSError as error:
            refused += error.errno == errno.ENOSPC
            assert not disk.exists("g")
    assert 0 < refused < 40


def test_a_read_only_disk_reads() -> None:
    disk = SimDisk(1)
    file = safe_file(disk, OLD)
    disk.medium.read_only = True
    calls: list[Callable[[], object]] = [
        lambda: file.pwritev([A], 0),
        file.sync,
        lambda: disk.open("g", create=True),
        lambda: disk.remove("f"),
        lambda: disk.rename("f", "g"),
        lambda: disk.make_dirs("d"),
        lambda: disk.sync_dir(""),
    ]
    for call in calls:
        with pytest.raises(OSError, match="EROFS"):
            call()
    assert file.pread(512, 0) == OLD
    assert disk.open("f").pread(512, 0) == OLD
    assert disk.list("") == ["f"]


def test_statistics_count_operations_and_faults() -> None:
    disk = SimDisk(1)
    safe_file(disk, OLD)
    disk.crash()
    assert disk.medium.statistics.operations == {"create": 1, "write": 1, "sync": 1, "sync_dir": 1}
    assert disk.medium.statistics.faults == {"crash": 1}
