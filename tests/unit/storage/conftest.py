"""Storage tests run on a real directory and on the simulated disk, through one fixture, `files`.

`store` is one partition's log on such a disk, with a door in front of every file that counts what goes through and can
be told to fail.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.process_files import process_files
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, iter_batches, split_batches
from tidelog.model.errors import DamagedBatch
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Buffer, File, Files, Lock
from tidelog.model.records import Record
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.load_report import LoadReport
from tidelog.storage.loader import load_log
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rows import ROW_BYTES, Row
from tidelog.storage.scan import BadEnd
from tidelog.storage.segment import Segment

IDENTITY = PartitionId(TopicId("ab" * 16), 3)
DIRECTORY = f"topics/{IDENTITY}"
SETTLED, ALL = 4, 7
"""Batches of the log `torn`: 0 to 3 below the durable mark, 4 to 6 beyond: committed, perhaps, but nothing says so."""


@pytest.fixture(params=["disk", "sim"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "disk":
        with process_files(tmp_path / "data") as files:
            yield files
    else:
        simulated = SimDisk(7)
        simulated.make_dirs("")
        yield simulated


@pytest.fixture
def store(files: Files) -> Store:
    return Store(WatchedFiles(files))


@pytest.fixture
def torn(store: Store) -> Store:
    """A log whose process died with the durable mark at row 1 + SETTLED, and no metainfo of that."""
    store.append(*[b"value %d" % n for n in range(SETTLED)])
    store.flush()
    for n in range(SETTLED, ALL):
        store.append(b"value %d" % n)
    store.opened.close_all()
    return store


class WatchedFiles:
    """`Files` that counts operations by kind, and by kind and path, and fails those that a test picks.

    `fails(kind, path)` gives the errno to fail with, or 0; `bad_sectors` are (path, start, end) that cannot be read.
    """

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.counts: Counter[str] = Counter()
        self.by_path: Counter[tuple[str, str]] = Counter()
        self.bytes_read = 0
        self.fails: Callable[[str, str], int] = lambda kind, path: 0
        self.bad_sectors: list[tuple[str, int, int]] = []

    def pass_through(self, kind: str, path: str) -> None:
        self.counts[kind] += 1
        self.by_path[kind, path] += 1
        number = self.fails(kind, path)
        if number:
            raise OSError(number, errno.errorcode[number], path)

    def forget(self) -> None:
        self.counts.clear()
        self.by_path.clear()
        self.bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> WatchedFile:
        self.pass_through("open", path)
        return WatchedFile(self, self.inner.open(path, create=create), path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def list(self, directory: str) -> list[str]:
        self.pass_through("list", directory)
        return self.inner.list(directory)

    def make_dirs(self, directory: str) -> None:
        self.pass_through("make_dirs", directory)
        self.inner.make_dirs(directory)

    def make_dir(self, directory: str) -> None:
        self.pass_through("make_dir", directory)
        self.inner.make_dir(directory)

    def remove(self, path: str) -> None:
        self.pass_through("remove", path)
        self.inner.remove(path)

    def remove_tree(self, directory: str) -> None:
        self.pass_through("remove_tree", directory)
        self.inner.remove_tree(directory)

    def rename(self, source: str, target: str) -> None:
        self.pass_through("rename", source)
        self.inner.rename(source, target)

    def sync_dir(self, directory: str) -> None:
        self.pass_through("sync_dir", directory)
        self.inner.sync_dir(directory)

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)

    def free_bytes(self) -> int:
        return self.inner.free_bytes()


class WatchedFile:
    def __init__(self, watched: WatchedFiles, inner: File, path: str) -> None:
        self._watched = watched
        self._inner = inner
        self._path = path

    def pread(self, size: int, position: int) -> bytes:
        self._watched.pass_through("pread", self._path)
        for path, start, end in self._watched.bad_sectors:
            if path == self._path and start < position + size and position < end:
                raise OSError(errno.EIO, "EIO", path)
        data = self._inner.pread(size, position)
        self._watched.bytes_read += len(data)
        return data

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._watched.pass_through("pwritev", self._path)
        self._inner.pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        self._watched.pass_through("truncate", self._path)
        self._inner.truncate(size)

    def sync(self) -> None:
        self._watched.pass_through("sync", self._path)
        self._inner.sync()

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


class Store:
    """One log, restartable as a process is. `appended` holds the bytes of every batch by base offset."""

    def __init__(self, files: WatchedFiles) -> None:
        self.files = files
        self.settings = LogSettings(segment_bytes=1 << 30, segment_ms=1 << 40)
        self.handles_max = 64
        self.bad_end = BadEnd.TRUNCATE
        self.epoch = 1
        self.now_ms = 1_700_000_000_000
        self.appended: dict[int, bytes] = {}
        self.log: PartitionLog
        self.report: LoadReport
        self._starts = 0
        self.open()

    # -- what a broker does ------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._starts += 1
        self.opened = OpenFiles(self.files, self.handles_max)
        self.log, self.report = load_log(
            self.opened, DIRECTORY, IDENTITY, self.settings,
            new_incarnation=f"start-{self._starts}", now_ms=self.now_ms, bad_end=self.bad_end,
        )  # fmt: skip

    def kill_and_open(self) -> None:
        """The process dies without a word, and another starts: nothing is lost that was written."""
        self.opened.close_all()
        self.open()

    def close_and_open(self) -> None:
        self.log.close(self.log.log_end_offset)
        self.open()

    def batch(
        self,
        value: bytes = b"value",
        *,
        records: int = 1,
        timestamp_ms: int = 1,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> RecordBatch:
        """A batch for the log's end. `producer` is (id, epoch, first sequence)."""
        pid, epoch, sequence = producer
        data = encode_batch(
            [Record(timestamp_ms, None, value)] * records,
            producer_id=pid, producer_epoch=epoch, base_sequence=sequence,
        )  # fmt: skip
        (batch,) = split_batches(data, batch_bytes_max=1 << 24)
        return assign_offsets(batch, self.log.log_end_offset, self.epoch)

    def append(
        self, *values: bytes, records: int = 1, timestamp_ms: int = 1, producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> None:
        """Appends a batch for each value, one by one."""
        for value in values:
            batch = self.batch(value, records=records, timestamp_ms=timestamp_ms, producer=producer)
            base, data = batch.header.base_offset, bytes(batch.data)
            self.log.append([batch], self.now_ms)
            self.appended[base] = data

    def gather(self, *values: bytes) -> list[RecordBatch]:
        """Batches that follow each other, for one append."""
        batches, offset = [], self.log.log_end_offset
        for value in values:
            batches.append(assign_offsets(self.batch(value), offset, self.epoch))
            offset += 1
        return batches

    def flush(self) -> None:
        if not self.log.is_dirty:
            return
        flush = self.log.begin_flush()
        try:
            flush.run()
        except OSError as error:
            self.log.end_flush(flush, error)
        else:
            self.log.end_flush(flush, None)

    # -- looking -----------------------------------------------------------------------------------------------------

    def read_sound(self) -> dict[int, bytes]:
        """Every batch that can be read, by base offset; each must be what was appended there."""
        found: dict[int, bytes] = {}
        offset, end = self.log.log_start_offset, self.log.log_end_offset
        while offset < end:
            try:
                extent = self.log.read(offset, 1, end)
            except DamagedBatch:
                offset += 1
                continue
            (batch,) = iter_batches(extent.data)
            assert extent.data == self.appended[batch.header.base_offset], f"wrong bytes at {offset}"
            found[batch.header.base_offset] = extent.data
            offset = extent.next_offset
        return found

    @property
    def is_whole(self) -> bool:
        """True if everything that was appended and not deleted is there, and nothing else."""
        kept = {base: data for base, data in self.appended.items() if base >= self.log.log_start_offset}
        return self.read_sound() == kept

    # -- harming -----------------------------------------------------------------------------------------------------

    def log_path(self, base_offset: int = 0) -> str:
        return f"{DIRECTORY}/{base_offset:020}.log"

    def catalog_path(self, base_offset: int = 0) -> str:
        return f"{DIRECTORY}/{base_offset:020}.catalog"

    def content(self, path: str) -> bytes:
        file = self.files.inner.open(path)
        data = file.pread(file.size(), 0)
        file.close()
        return data

    def overwrite(self, path: str, position: int, content: bytes) -> None:
        file = self.files.inner.open(path)
        file.pwritev([content], position)
        file.close()

    def cut(self, path: str, size: int) -> None:
        file = self.files.inner.open(path)
        file.truncate(size)
        file.close()

    def harm_row(self, slot: int, base_offset: int = 0) -> None:
        self.overwrite(self.catalog_path(base_offset), slot * ROW_BYTES + 40, b"\xff\x00\xff")

    def harm_batch(self, offset: int, base_offset: int = 0) -> None:
        """Damages the batch at `offset` of the segment at `base_offset`."""
        row = next(self.segment(base_offset).entries(offset))
        assert isinstance(row, Row)
        self.overwrite(self.log_path(base_offset), row.end_position - 2, b"\xff\x00")

    def segment(self, base_offset: int = 0) -> Segment:
        return next(segment for segment in self.log.segments if segment.base_offset == base_offset)
