"""Damage at rest shows at once, survives crashes, and touches nothing else."""

from __future__ import annotations

import pytest

from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(1)
    for name in ("a", "b"):
        file = disk.open(name, create=True)
        file.pwritev([name.encode() * 1024], 0)
        file.sync()
    disk.sync_dir("")
    return disk


def content(disk: SimDisk, path: str) -> bytes:
    return disk.open(path).pread(4096, 0)


def test_flip_bit(disk: SimDisk) -> None:
    rot.flip_bit(disk.medium, "a", 100, 3)
    damaged = b"a" * 100 + b"i" + b"a" * 923
    assert content(disk, "a") == damaged
    after = disk.crash()
    assert content(after, "a") == damaged
    assert content(after, "b") == b"b" * 1024
    assert after.medium.statistics.faults["bit_flip"] == 1


def test_what_rots_is_on_the_disk_whatever_a_killed_process_has_left_in_the_cache(disk: SimDisk) -> None:
    disk.open("a").truncate(10)
    disk.open("b").pwritev([bytes(1024)], 1024)
    after = disk.kill()
    rot.flip_bit(after.medium, "a", 100, 3)
    assert len(content(after, "a")) == 10
    with pytest.raises(IndexError):
        rot.flip_bit(after.medium, "b", 1024, 3)
    assert bytes(after.medium.walk()["a"].durable[99:102]) == b"aia"


def test_overwrite_and_cut(disk: SimDisk) -> None:
    rot.overwrite(disk.medium, "a", 512, bytes(512))
    rot.truncate(disk.medium, "b", 10)
    rot.truncate(disk.medium, "b", 500)  # nothing grows by being truncated
    after = disk.crash()
    assert content(after, "a") == b"a" * 512 + bytes(512)
    assert content(after, "b") == b"b" * 10


def test_unreadable_ranges_give_eio_until_written(disk: SimDisk) -> None:
    rot.make_unreadable(disk.medium, "a", 512, 512)
    file = disk.open("a")
    assert file.pread(512, 0) == b"a" * 512
    for size, position in ((513, 0), (1, 1023), (4096, 600)):
        with pytest.raises(OSError, match="EIO"):
            file.pread(size, position)
    assert file.pread(10, 2000) == b""
    file.pwritev([b"new"], 600)
    assert file.pread(3, 600) == b"new"


def test_a_lost_file_stays_lost(disk: SimDisk) -> None:
    rot.lose(disk.medium, "b")
    assert disk.crash().list("") == ["a"]


def test_a_lost_directory_stays_lost_and_its_name_can_be_used_again(disk: SimDisk) -> None:
    disk.make_dirs("one/two")
    disk.open("one/two/file", create=True).pwritev([b"x"], 0)
    used = disk.medium.used_bytes
    rot.lose_directory(disk.medium, "one/two")
    assert not rot.has_directory(disk.medium, "one/two")
    assert disk.medium.used_bytes == used - 1
    after = disk.crash()
    assert after.list("one") == []
    after.make_dirs("one/two")
    assert after.list("one/two") == []
    assert rot.has_directory(after.medium, "one/two")
    assert not rot.has_directory(after.medium, "a"), "a file is none"


def test_what_the_kernel_wrote_back_survives_and_can_rot(disk: SimDisk) -> None:
    disk.open("b").pwritev([b"c" * 512], 1024)
    after = disk.kill()
    rot.write_back(after.medium)
    rot.flip_bit(after.medium, "b", 1024, 0)
    assert content(after.crash(), "b") == b"b" * 1024 + b"b" + b"c" * 511


def test_swapped_directories_stay_swapped(disk: SimDisk) -> None:
    for directory in ("one", "two"):
        disk.make_dirs(directory)
        disk.open(f"{directory}/{directory}", create=True).pwritev([directory.encode()], 0)
        disk.sync_dir(directory)
    rot.swap_directories(disk.medium, "one", "two")
    assert (disk.list("one"), disk.list("two")) == (["two"], ["one"])
    after = disk.crash()
    assert (after.list("one"), after.list("two")) == (["two"], ["one"])
