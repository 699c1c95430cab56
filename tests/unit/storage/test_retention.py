"""Which segments may go; and that deleting them is a decision first and an act later."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from tests.unit.storage.conftest import Store
from tidelog.model.errors import DamagedBatch, OffsetOutOfRange
from tidelog.storage.retention import SegmentSummary, retained_from

HOUR = 3_600_000


def segments(*sizes_and_ages: tuple[int, int]) -> list[SegmentSummary]:
    """Ten offsets each; (bytes, newest timestamp)."""
    return [SegmentSummary(10 * n, 10 * n + 10, size, newest) for n, (size, newest) in enumerate(sizes_and_ages)]


def keep_from(
    found: list[SegmentSummary], *, now: int = 0, ms: int = -1, size: int = -1, high_watermark: int = 1000
) -> int:
    return retained_from(found, now_ms=now, retention_ms=ms, retention_bytes=size, high_watermark=high_watermark)


def test_without_limits_all_is_kept() -> None:
    assert keep_from(segments((100, 0), (100, 0)), now=10**15) == 0


@pytest.mark.parametrize(("now", "expected"), [(100, 0), (101, 10), (200, 10), (201, 20), (301, 30)])
def test_by_time_a_segment_goes_when_its_newest_record_is_too_old(now: int, expected: int) -> None:
    assert keep_from(segments((5, 0), (5, 100), (5, 200)), now=now, ms=100) == expected


@pytest.mark.parametrize(("size", "expected"), [(300, 0), (299, 0), (200, 10), (199, 10), (100, 20), (0, 20)])
def test_by_size_a_segment_goes_if_enough_is_left_without_it(size: int, expected: int) -> None:
    assert keep_from(segments((100, 0), (100, 0), (100, 0)), size=size) == expected


@pytest.mark.parametrize(("high_watermark", "expected"), [(9, 0), (10, 10), (29, 20), (30, 30)])
def test_nothing_goes_that_is_not_wholly_below_the_high_watermark(high_watermark: int, expected: int) -> None:
    assert keep_from(segments((5, 0), (5, 0), (5, 0)), now=HOUR, ms=1, high_watermark=high_watermark) == expected


def test_an_older_segment_that_must_stay_keeps_the_younger_ones() -> None:
    assert keep_from(segments((5, 5 * HOUR), (5, 0), (5, 0)), now=6 * HOUR, ms=2 * HOUR) == 0


def test_a_segment_without_timestamps_goes_with_the_one_after_it() -> None:
    lost = (0, -1)
    assert keep_from(segments(lost, (5, 0), (5, 5 * HOUR)), now=6 * HOUR, ms=2 * HOUR) == 20
    assert keep_from(segments(lost, (5, 5 * HOUR), (5, 0)), now=6 * HOUR, ms=2 * HOUR) == 0
    assert keep_from(segments((5, 0), lost, lost), now=6 * HOUR, ms=2 * HOUR) == 10


def test_an_empty_log_keeps_its_place() -> None:
    assert keep_from([SegmentSummary(70, 70, 0, -1)], now=HOUR, ms=0, size=0) == 70


# -- delete_records ----------------------------------------------------------------------------------------------------


def store_of_segments(store: Store) -> None:
    """Offsets 0 to 8 in three segments, all durable."""
    for n in range(9):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.flush()


def test_what_is_deleted_cannot_be_read_at_once_and_its_files_go_after_the_flush(store: Store) -> None:
    store_of_segments(store)
    store.log.delete_records(7)
    with pytest.raises(OffsetOutOfRange, match="offset 6 is out of range: the log holds 7 to 9"):
        store.log.read(6, 1, 9)
    assert store.is_whole
    assert store.files.inner.exists(store.log_path(0))
    store.flush()
    assert [name[:20] for name in store.files.list(store.log.directory) if name.endswith(".log")] == [f"{6:020}"]
    store.kill_and_open()
    assert store.log.log_start_offset == 7
    assert store.is_whole
    assert store.report.findings == []


def test_files_wait_for_a_flush_that_covers_the_deletion(store: Store) -> None:
    store_of_segments(store)
    store.append(b"v")
    flush = store.log.begin_flush()
    store.log.delete_records(6)
    flush.run()
    store.log.end_flush(flush, None)
    assert store.files.inner.exists(store.log_path(0)), "a crash now would find neither the files nor the order"
    store.flush()
    assert not store.files.inner.exists(store.log_path(0))


def test_a_deletion_is_remembered_though_every_row_that_says_so_is_damaged(store: Store) -> None:
    store_of_segments(store)
    store.log.delete_records(4)
    store.close_and_open()
    store.harm_row(4, base_offset=6)
    store.kill_and_open()
    assert store.log.log_start_offset == 4


def test_deleting_less_than_before_does_nothing(store: Store) -> None:
    store_of_segments(store)
    store.log.delete_records(5)
    store.flush()
    store.files.forget()
    store.log.delete_records(5)
    store.log.delete_records(2)
    assert not store.files.counts
    assert store.log.log_start_offset == 5


def test_only_what_is_durable_can_be_deleted(store: Store) -> None:
    store_of_segments(store)
    store.append(b"unflushed")
    with pytest.raises(OffsetOutOfRange, match="0 to 9"):
        store.log.delete_records(10)


def test_a_log_deleted_to_its_end_goes_on_there(store: Store) -> None:
    store_of_segments(store)
    store.log.roll(store.now_ms)
    store.log.delete_records(9)
    store.flush()
    assert len(store.log.segments) == 1
    store.append(b"next")
    store.kill_and_open()
    assert (store.log.log_start_offset, store.log.log_end_offset) == (9, 10)
    assert store.is_whole


def test_files_that_cannot_be_removed_do_not_come_back_as_records(store: Store) -> None:
    store_of_segments(store)
    store.log.delete_records(4)
    store.log.take_offline("the test stops here, after the row and before the files")
    store.kill_and_open()
    assert store.log.log_start_offset == 4
    assert not store.files.inner.exists(store.log_path(0))
    assert store.is_whole


def test_a_disk_that_does_not_let_files_go_is_asked_again(store: Store) -> None:
    store_of_segments(store)
    store.files.fails = lambda kind, path: errno.EROFS if kind == "remove" else 0
    store.log.delete_records(6)
    store.flush()
    assert store.log.offline_reason is None
    assert store.is_whole
    store.files.fails = lambda kind, path: 0
    store.append(b"v")
    store.flush()
    assert [name for name in store.files.list(store.log.directory) if name.endswith(".log")] == [f"{6:020}.log"]


def test_lineage_forgets_epochs_that_are_deleted_whole(store: Store) -> None:
    for n in range(6):
        store.epoch = n // 2
        store.append(b"v")
    store.flush()
    store.log.delete_records(3)
    assert store.log.lineage == [(1, 2), (2, 4)]
    assert all(a < b for a, b in pairwise(store.log.lineage))


def test_missing_files_at_the_start_are_damage_and_not_a_deletion(store: Store) -> None:
    store_of_segments(store)
    store.close_and_open()
    store.log.close(9)
    for path in (store.log_path(0), store.catalog_path(0)):
        store.files.inner.remove(path)
    store.open()
    assert store.log.log_start_offset == 0
    with pytest.raises(DamagedBatch, match=r"offsets 0 to 2 .*segment files are missing"):
        store.log.read(0, 1, 9)
    assert list(store.read_sound()) == list(range(3, 9))
