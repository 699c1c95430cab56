"""Small histories of a simulated disk, and every state that a crash after them can leave."""

from __future__ import annotations

from collections.abc import Callable

from tests.every_crash import enumerate_crashes
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.sim_file import SimFile

OLD = b"o" * 512
A, B, C = b"a" * 512, b"b" * 512, b"c" * 512
ZERO = bytes(512)

State = tuple[tuple[str, bytes], ...]


def state(disk: SimDisk) -> State:
    """All files with their bytes."""
    return tuple((path, bytes(node.data)) for path, node in disk.medium.walk().items())


def outcomes(build: Callable[[SimDisk], object]) -> set[State]:
    """Every state that a crash after `build` can leave."""
    found = set()
    for choices in enumerate_crashes():
        disk = SimDisk(0)
        build(disk)
        found.add(state(disk.crash(choices)))
    return found


def seeded_outcomes(build: Callable[[SimDisk], object], seeds: int = 2000) -> set[State]:
    found = set()
    for seed in range(seeds):
        disk = SimDisk(seed)
        build(disk)
        found.add(state(disk.crash()))
    return found


def contents(build: Callable[[SimDisk], object]) -> set[bytes]:
    """Returns what file `f` can hold after a crash; it always exists."""
    found = outcomes(build)
    assert seeded_outcomes(build) == found, "random crashes reach exactly what exhaustive ones do"
    return {dict(files)["f"] for files in found}


def safe_file(disk: SimDisk, content: bytes = b"") -> SimFile:
    """File `f` with these bytes, durable in bytes and name."""
    file = disk.open("f", create=True)
    file.pwritev([content], 0)
    file.sync()
    disk.sync_dir("")
    return file


def make(disk: SimDisk, path: str, content: bytes = b"", *, named: bool = True) -> None:
    file = disk.open(path, create=True)
    file.pwritev([content], 0)
    file.sync()
    if named:
        disk.sync_dir(path.rpartition("/")[0])
