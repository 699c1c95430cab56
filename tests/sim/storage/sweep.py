"""Tests every single damage to a complete log, and what must hold after each (the method of CTRL, FAST '18).

A log of 64 batches is written, closed cleanly, and kept as files. A case puts these files on a fresh disk, damages one
range of one of them, opens the log, reads each batch, appends, and opens it again. Since all of it was durable:

- no byte is served that was not written there;
- each batch whose own bytes are intact is served, even if its row, its segment's header, the seal or the metainfo is
  damaged;
- reads of a batch whose bytes are damaged, and of no other batch, raise `DamagedBatch`;
- the log's end does not move, appends continue there, and the next opening shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tidelog.model.batch_header import HEADER_BYTES, iter_batches
from tidelog.model.errors import DamagedBatch
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.medium import Medium
from tidelog.sim.storage.log_driver import LogDriver
from tidelog.storage.rows import ROW_BYTES

BATCHES = 64
PRODUCER_ID = 7
ROW_BOUNDS = (0, 2, 3, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 88, 96, 100, 102, 104, 108, 112, 120, 124, 128)
BATCH_BOUNDS = (0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57, 61)
METAINFO_BOUNDS = (0, 2, 4, 12, 14, 18)

Content = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of damage to the bytes [start, end) of a file. `does` applies it to (medium, path, start, end)."""

    name: str
    does: Callable[[Medium, str, int, int], None]


@dataclass(frozen=True, slots=True)
class Case:
    fault: Fault
    path: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.fault.name} {self.path.rpartition('/')[2]} {self.start}-{self.end}"


def _flip(medium: Medium, path: str, start: int, end: int) -> None:
    content = medium.walk()[path].data[start:end]
    rot.overwrite(medium, path, start, bytes(byte ^ 0xFF for byte in content))


def _zero(medium: Medium, path: str, start: int, end: int) -> None:
    rot.overwrite(medium, path, start, bytes(end - start))


def _truncate(medium: Medium, path: str, start: int, end: int) -> None:
    rot.truncate(medium, path, start)


def _make_unreadable(medium: Medium, path: str, start: int, end: int) -> None:
    rot.make_unreadable(medium, path, start, end - start)


FAULTS = (Fault("flip", _flip), Fault("zero", _zero), Fault("truncate", _truncate), Fault("EIO", _make_unreadable))


class DamageSweep:
    """The files of an undamaged log or slot store, and the cases that damage one of them."""

    def __init__(self, disk: SimDisk) -> None:
        self.content: Content = {path: bytes(node.data) for path, node in disk.medium.walk().items()}

    def cases(self) -> Iterator[Case]:
        """Yields every case: each fault on each stretch of 16 and of 64 bytes of each file, and on each field of some
        rows, batches and copies of the metainfo."""
        for path, content in self.content.items():
            if not content:
                continue
            stretches = [(start, start + size) for size in (16, 64) for start in range(0, len(content), size)]
            for start, end in stretches + list(self._fields(path, content)):
                for fault in FAULTS:
                    yield Case(fault, path, start, min(end, len(content)))

    def _fields(self, path: str, content: bytes) -> Iterator[tuple[int, int]]:
        origins: list[int] = [0]
        bounds: tuple[int, ...] = METAINFO_BOUNDS
        if path.endswith(".catalog"):
            origins, bounds = [0, ROW_BYTES, len(content) - 2 * ROW_BYTES, len(content) - ROW_BYTES], ROW_BOUNDS
        elif path.endswith(".log"):
            origins, bounds = self._batch_positions(content)[::9], BATCH_BOUNDS
        for origin in origins:
            yield from ((origin + low, origin + high) for low, high in pairwise(bounds))

    def _batch_positions(self, content: bytes) -> list[int]:
        """Returns the positions of the batches in a `.log` file; none in one of a slot store."""
        return []

    def damaged(self, damage: Callable[[Medium], None]) -> SimDisk:
        """Returns a fresh disk with the files, damaged."""
        disk = SimDisk(0)
        for path, content in self.content.items():
            rot.plant(disk.medium, path, content)
        damage(disk.medium)
        return disk


class Sweep(DamageSweep):
    """An undamaged log, the cases that damage it, and the checks of what is read after each."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        disk = SimDisk(0)
        driver = LogDriver(disk, segment_bytes=segment_bytes, producer_id=PRODUCER_ID)
        for number in range(BATCHES):
            driver.append(records=1 + number % 3, value_bytes=number)
            if number % 5 == 4:
                driver.flush()
        driver.close()
        super().__init__(disk)
        self.expected = driver.acked
        self.end_offset = driver.log.log_end_offset
        self._extents = {base: self._extent(data) for base, data in self.expected.items()}

    def _extent(self, data: bytes) -> tuple[str, int, int]:
        """Returns the file, the start and the end of a batch. Raises `AssertionError` if it is in no file."""
        for path, content in self.content.items():
            position = content.find(data) if path.endswith(".log") else -1
            if position >= 0:
                return path, position, position + len(data)
        raise AssertionError("a batch that was committed is in no file")

    def _batch_positions(self, content: bytes) -> list[int]:
        sizes = [len(batch.data) for batch in iter_batches(content)]
        assert all(size >= HEADER_BYTES for size in sizes)
        return [0, *accumulate(sizes)][:-1]

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, damage: Callable[[Medium], None]) -> None:
        """Damages a fresh copy of the log, opens it and checks all promises. Raises `AssertionError` if one is broken,
        or the log's own error."""
        disk = self.damaged(damage)
        lost = self._lost(disk.medium)
        driver = LogDriver(disk, segment_bytes=self._segment_bytes, producer_id=PRODUCER_ID)
        self._check_batches(driver, lost)
        base = driver.log.log_end_offset
        driver.append()
        assert driver.flush(), driver.log.offline_reason
        added = driver.acked[base]
        for restart in (driver.kill, driver.crash):
            restart()
            driver.open()
            self._check_batches(driver, lost)
            assert driver.read_what_is_sound().get(base) == added, "what was appended after the damage is gone"

    def check_case(self, case: Case) -> None:
        self.check(lambda medium: case.fault.does(medium, case.path, case.start, case.end))

    def _lost(self, medium: Medium) -> list[int]:
        """Returns the base offsets of the batches whose own bytes are damaged."""
        files = medium.walk()
        lost = []
        for base, (path, start, end) in self._extents.items():
            node = files.get(path)
            is_readable = node is not None and not node.is_unreadable(start, end - start)
            if node is None or not is_readable or bytes(node.data[start:end]) != self.expected[base]:
                lost.append(base)
        return lost

    def _check_batches(self, driver: LogDriver, lost: Sequence[int]) -> None:
        log = driver.log
        assert log.offline_reason is None, log.offline_reason
        assert log.log_start_offset == 0
        assert log.log_end_offset >= self.end_offset, f"the log ends at {log.log_end_offset}, not {self.end_offset}"
        for base, data in self.expected.items():
            try:
                extent = log.read(base, 1, log.log_end_offset)
            except DamagedBatch:
                assert base in lost, f"the batch at {base} is intact and called damaged"
                continue
            (batch,) = iter_batches(extent.data)
            assert bytes(batch.data) == data, f"wrong bytes at offset {base}"
        if not lost:
            driver.check_producer(dict(list(driver.read_all().items())))
