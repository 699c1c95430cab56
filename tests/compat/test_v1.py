"""Data directories of format 1: read by today's code, and written by it to the byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.v1.make import LOG, NOW_MS, SETTINGS, make, records
from tests.process_files import process_files
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.producers import SeenBatch
from tidelog.storage.data_directory import check_format
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import LogManager, log_directory
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.read_only import open_read_only
from tidelog.storage.verify import verify

DATA = Path(__file__).parent / "v1" / "data"


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[DiskFiles]:
    shutil.copytree(DATA, tmp_path / "data")
    with process_files(tmp_path / "data") as files:
        yield files


def check(log: PartitionLog) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (1, 15, 15)
    assert log.incarnation == "0123456789abcdef"
    assert log.lineage == [(1, 0), (4, 9)]
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12]
    assert {key: state.batches[-2:] for key, state in log.producers.items()} == {
        1000: (SeenBatch(3, 1, 9), SeenBatch(4, 1, 12)),
        1001: (SeenBatch(6, 2, 10), SeenBatch(8, 2, 13)),
    }
    found = [record for n in range(1, 10) for record in records(n)]
    stored, offset = [], 1
    while offset < 15:
        extent = log.read(offset, 1 << 20, 15)
        stored += [record for batch in iter_batches(extent.data) for record in decode_batch(batch)]
        offset = extent.next_offset
    assert [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in stored] == [
        (r.timestamp_ms, r.key, r.value, list(r.headers)) for r in found
    ]
    assert [record.offset for record in stored] == list(range(1, 15))
    assert not any(step.damage or step.bad_rows for step in verify(log))


def test_it_is_read(copied: DiskFiles) -> None:
    manager = LogManager(copied, open_max=16, new_incarnation=lambda: "another")
    log, report = manager.open_log(LOG, SETTINGS, NOW_MS)
    assert report.findings == []
    assert report.high_watermark == 15
    check(log)
    manager.close({LOG: 15})


def test_it_is_read_where_nothing_may_be_written(copied: DiskFiles) -> None:
    before = files_below(Path(copied.root))
    assert check_format(copied)
    log, report = open_read_only(copied, log_directory(LOG), LOG)
    assert report.findings == []
    check(log)
    log.close(0)
    assert files_below(Path(copied.root)) == before


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    make(str(tmp_path / "data"))
    assert files_below(tmp_path / "data") == files_below(DATA)


def test_metainfo_of_before_it_said_whose_it_is_is_read(copied: DiskFiles, tmp_path: Path) -> None:
    for old in (DATA.parent / "unnamed").iterdir():
        shutil.copy(old, tmp_path / "data" / log_directory(LOG))
    manager = LogManager(copied, open_max=16, new_incarnation=lambda: "another")
    log, report = manager.open_log(LOG, SETTINGS, NOW_MS)
    assert report.findings == []
    check(log)
    manager.close({LOG: 15})
