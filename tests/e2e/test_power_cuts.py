"""A few power cuts under real brokers, the control that loses records, and the disks that both of them use.

`make power-cuts` cuts thousands. Where the disks cannot be mounted the tests are skipped, and say why.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clusters import skipped_without_disks
from tests.e2e.power.books import Wrong
from tests.e2e.power.disks import Disk, mounted
from tests.e2e.power.lives import LIES, LYING_QUIET_S, QUIET_S, Life
from tests.e2e.power.volume import Fault
from tests.nursery import Nursery

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

NODES = (1, 2, 3)
CUTS = 20


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[int, Disk]]:
    """The disks of a cluster in `tmp_path`."""
    with skipped_without_disks(), mounted(tmp_path, NODES, seed=7) as found:
        yield found


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


# -- brokers -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_what_was_acknowledged_survives_power_cuts(
    tmp_path: Path, disks: dict[int, Disk], nursery: Nursery
) -> None:
    async with Life(tmp_path, disks, nursery, random.Random(7), partitions=2, quiet_s=QUIET_S) as life:
        await life.play(CUTS // len(NODES))
        assert life.findings == []
        assert life.acknowledged > 100
        assert life.stakes["writes"] > 0, "nothing was unflushed at any cut, so nothing was tried"


@pytest.mark.slow
async def test_disks_that_flush_nothing_lose_what_was_acknowledged(
    tmp_path: Path, disks: dict[int, Disk], nursery: Nursery
) -> None:
    """The control: what the series counts as lost is seen where it has to be."""
    async with Life(tmp_path, disks, nursery, random.Random(7), partitions=2, quiet_s=LYING_QUIET_S) as life:
        for disk in disks.values():
            disk.set_faults([LIES])
        await life.play(CUTS)
        lost = {finding.wrong for finding in life.findings}
        assert lost & {Wrong.LOST, Wrong.GIVEN, Wrong.UNREAD}, lost


# -- the disks ---------------------------------------------------------------------------------------------------------


def write(path: Path, data: bytes, *, flushed: bool, begin: int = 0) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, data, begin)
        if flushed:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def flush_names(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def disk(root: Path) -> Iterator[Disk]:
    with skipped_without_disks(), Disk(root, seed=7) as disk:
        yield disk


def test_what_was_flushed_survives_and_of_the_rest_whole_sectors_may(disk: Disk, root: Path) -> None:
    file = root / "file"
    seen: set[str] = set()
    for _ in range(60):
        write(file, b"a" * 4096, flushed=True)
        flush_names(root)
        write(file, b"b" * 2048, flushed=False, begin=2048)
        assert file.read_bytes() == b"a" * 2048 + b"b" * 2048, "programs see what they wrote"
        assert disk.cut() == {"names": 0, "writes": 1, "bytes": 2048}
        content = file.read_bytes()
        assert content[:2048] == b"a" * 2048
        sectors = [content[at : at + 512] for at in range(2048, 4096, 512)]
        assert {*sectors} <= {b"a" * 512, b"b" * 512}
        seen.add("".join(chr(sector[0]) for sector in sectors))
    assert {"aaaa", "bbbb"} < seen, "lost, kept, and kept in part"


def test_a_name_survives_for_sure_when_its_directory_was_flushed(disk: Disk, root: Path) -> None:
    seen = set()
    for number in range(40):
        for name in ("sure", "perhaps"):
            write(root / f"{name}-{number}", b"x", flushed=True)
            if name == "sure":
                flush_names(root)
        (root / f"sure-{number}").rename(root / f"renamed-{number}")
        disk.cut()
        assert (root / f"sure-{number}").exists() != (root / f"renamed-{number}").exists()
        seen |= {("renamed", (root / f"renamed-{number}").exists()), ("made", (root / f"perhaps-{number}").exists())}
    assert seen == {("renamed", True), ("renamed", False), ("made", True), ("made", False)}


def test_a_directory_is_gone_with_all_in_it_unless_the_one_above_was_flushed(disk: Disk, root: Path) -> None:
    seen = set()
    for number in range(40):
        (root / f"sure-{number}").mkdir()
        flush_names(root)
        (root / f"perhaps-{number}").mkdir()
        for name in ("sure", "perhaps"):
            write(root / f"{name}-{number}" / "file", b"x", flushed=True)
            flush_names(root / f"{name}-{number}")
        disk.cut()
        assert (root / f"sure-{number}" / "file").read_bytes() == b"x"
        seen.add((root / f"perhaps-{number}" / "file").exists())
    assert seen == {True, False}


def test_a_flush_that_fails_has_forgotten_some_for_good(disk: Disk, root: Path) -> None:
    write(root / "file", b"a" * 512, flushed=True)
    flush_names(root)
    kept = set()
    for _ in range(40):
        write(root / "file", b"a" * 512, flushed=True)
        with disk.failing(Fault("flush", "fi*")), pytest.raises(OSError, match="Input/output"):
            write(root / "file", b"b" * 512, flushed=True)
        write(root / "file", b"", flushed=True)
        disk.cut()
        kept.add((root / "file").read_bytes()[:1])
    assert kept == {b"a", b"b"}


def test_a_flush_that_lies_keeps_nothing_for_sure(disk: Disk, root: Path) -> None:
    kept = set()
    for _ in range(40):
        write(root / "file", b"a" * 512, flushed=True)
        flush_names(root)
        with disk.failing(Fault("lie", "file")):
            write(root / "file", b"b" * 512, flushed=True)
        disk.cut()
        kept.add((root / "file").read_bytes())
    assert kept == {b"a" * 512, b"b" * 512}


def test_a_sector_that_cannot_be_read_can_be_again_when_it_was_written(disk: Disk, root: Path) -> None:
    write(root / "file", bytes(4096), flushed=True)
    disk.spoil("file", 1024, 1025)
    descriptor = os.open(root / "file", os.O_RDWR)
    try:
        assert os.pread(descriptor, 1024, 0) == bytes(1024)
        with pytest.raises(OSError, match="Input/output"):
            os.pread(descriptor, 1, 1100)
        os.pwrite(descriptor, b"b" * 512, 1024)
        assert os.pread(descriptor, 4096, 0) == bytes(1024) + b"b" * 512 + bytes(2560)
    finally:
        os.close(descriptor)


def test_a_read_fails_where_it_was_told_to_until_it_is_told_otherwise(disk: Disk, root: Path) -> None:
    write(root / "file", bytes(4096), flushed=True)
    with disk.failing(Fault("read", "f*", 100, 200)):
        with pytest.raises(OSError, match="Input/output"):
            (root / "file").read_bytes()
        with (root / "file").open("rb", buffering=0) as file:
            assert file.read(100) == bytes(100)
    assert (root / "file").read_bytes() == bytes(4096)


def test_a_removed_file_stays_readable_for_those_who_have_it_open(root: Path, disk: Disk) -> None:
    write(root / "file", b"here", flushed=True)
    with (root / "file").open("rb", buffering=0) as file:
        (root / "file").unlink()
        assert file.read(4) == b"here"
        assert [*root.iterdir()] == []
    (root / "directory").mkdir()
    write(root / "directory" / "file", b"x", flushed=False)
    with pytest.raises(OSError, match="not empty"):
        (root / "directory").rmdir()
