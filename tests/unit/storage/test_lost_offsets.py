"""Offsets whose batches nobody can read are damaged from the beginning; a copy that turns up has its place."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.conftest import Store
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import assign_offsets, split_batches
from tidelog.model.errors import DamagedBatch
from tidelog.model.records import Record
from tidelog.storage.repair import Repair
from tidelog.storage.rows import Row

EPOCH = 1


def made(store: Store, offset: int, count: int = 1) -> bytes:
    """Returns a batch that lies in the logs of others."""
    (batch,) = split_batches(encode_batch([Record(50, None, b"lost %d" % offset)] * count), batch_bytes_max=1 << 20)
    store.appended[offset] = bytes(assign_offsets(batch, offset, EPOCH).data)
    return store.appended[offset]


@pytest.fixture
def holed(store: Store) -> Store:
    """Batches 0 to 2, then offsets 3 to 6 that nobody could read, then batches 7 and 8."""
    store.append(b"0", b"1", b"2")
    store.log.append_lost(3, 7, EPOCH, store.now_ms)
    store.append(b"7", b"8")
    store.flush()
    return store


def offsets(store: Store) -> list[tuple[int, int]]:
    """Returns the extents of the log's entries; negative numbers for damage."""
    entries = store.log.entries(store.log.log_start_offset)
    return [(row.base_offset, row.next_offset) if isinstance(row, Row) else (-row.start, -row.end) for row in entries]


WITH_HOLE = [(0, 1), (1, 2), (2, 3), (-3, -7), (7, 8), (8, 9)]


@pytest.mark.parametrize("reopen", ["never", "closed", "killed"])
def test_they_are_damaged_and_what_follows_is_read(holed: Store, reopen: str) -> None:
    if reopen == "closed":
        holed.close_and_open()
    elif reopen == "killed":
        holed.kill_and_open()
    assert offsets(holed) == WITH_HOLE
    for offset in range(3, 7):
        with pytest.raises(DamagedBatch, match="offsets 3 to 6"):
            holed.log.read(offset, 1, 9)
    assert holed.log.read(0, 1 << 20, 9).next_offset == 3
    assert holed.log.read(7, 1, 9).next_offset == 8
    assert holed.log.has_bytes(3, 1, 9)
    assert [(damage.start, damage.end) for damage in holed.log.damaged_ranges()] == [(3, 7)]


def test_offsets_right_before_them_may_hold_nothing(store: Store) -> None:
    store.append(b"0")
    store.log.append_lost(4, 5, EPOCH, store.now_ms)
    store.flush()
    store.kill_and_open()
    assert offsets(store) == [(0, 1), (-4, -5)]
    assert store.log.log_end_offset == 5


def test_a_lookup_by_time_may_have_been_for_them(store: Store) -> None:
    store.append(b"0", timestamp_ms=100)
    store.log.append_lost(1, 2, EPOCH, store.now_ms)
    store.append(b"2", timestamp_ms=300)
    extent = store.log.batch_since(100, 3)
    assert extent is not None and extent.next_offset == 1
    with pytest.raises(DamagedBatch, match="offsets 1 to 1"):
        store.log.batch_since(200, 3)


@pytest.mark.parametrize("reopen", [False, True])
def test_copies_have_room_one_behind_the_other(holed: Store, reopen: bool) -> None:
    first, second, third = made(holed, 3), made(holed, 4, 2), made(holed, 6)
    assert holed.log.repair(first) is Repair.UNKNOWN, "it may be something else than what is committed"
    assert holed.log.repair(second, belongs_there=True) is Repair.UNKNOWN, "it is not its turn"
    for copy in (first, second, third):
        if reopen:
            holed.kill_and_open()
        assert holed.log.repair(copy, belongs_there=True) is Repair.DONE
        assert holed.log.repair(copy, belongs_there=True) is Repair.NOT_NEEDED
    assert holed.log.damaged_ranges() == []
    assert holed.is_whole
    holed.append(b"9")
    holed.flush()
    holed.kill_and_open()
    assert holed.read_sound() == holed.appended and not holed.report.findings
    holed.close_and_open()
    assert holed.read_sound() == holed.appended and not holed.report.findings
    extent = holed.log.batch_since(50, 9)
    assert extent is not None and extent.next_offset == 4


def test_at_the_very_end_there_is_room_as_well(store: Store) -> None:
    store.append(b"0")
    store.log.append_lost(1, 3, EPOCH, store.now_ms)
    store.kill_and_open()
    assert store.log.repair(made(store, 1), belongs_there=True) is Repair.DONE
    store.append(b"3")
    assert store.log.repair(made(store, 2), belongs_there=True) is Repair.DONE
    store.flush()
    store.kill_and_open()
    assert store.is_whole and store.log.log_end_offset == 4


def test_a_disk_that_has_no_room_to_go_on_behind_them_makes_some_later(store: Store) -> None:
    store.append(b"0")
    is_full = ("pwritev", store.catalog_path(2))
    store.files.fails = lambda kind, path: errno.ENOSPC if (kind, path) == is_full else 0
    store.log.append_lost(1, 2, EPOCH, store.now_ms)
    assert store.log.log_end_offset == 2 and store.log.active.is_lost
    store.log.leave_lost_end()
    assert store.log.repair(made(store, 1), belongs_there=True) is Repair.UNKNOWN, "there is still no room"
    store.files.fails = lambda kind, path: 0
    store.flush()
    store.log.leave_lost_end()
    assert store.log.repair(made(store, 1), belongs_there=True) is Repair.DONE
    store.append(b"2")
    store.flush()
    store.kill_and_open()
    assert store.is_whole


def test_what_does_not_end_where_they_do_is_not_taken(holed: Store) -> None:
    assert holed.log.repair(made(holed, 3, 5), belongs_there=True) is Repair.UNKNOWN
    assert offsets(holed) == WITH_HOLE


def test_a_crash_before_the_row_leaves_them_lost(holed: Store) -> None:
    copy = made(holed, 3, 4)
    holed.files.fails = lambda kind, path: errno.EIO if kind == "pwritev" and path.endswith("0003.catalog") else 0
    with pytest.raises(OSError, match="EIO"):
        holed.log.repair(copy, belongs_there=True)
    holed.files.fails = lambda kind, path: 0
    holed.kill_and_open()
    assert offsets(holed) == WITH_HOLE
    assert holed.log.repair(copy, belongs_there=True) is Repair.DONE
    assert holed.is_whole


def test_a_torn_row_of_a_copy_is_made_again(holed: Store) -> None:
    assert holed.log.repair(made(holed, 3, 4), belongs_there=True) is Repair.DONE
    holed.log.close(holed.log.log_end_offset)
    holed.harm_row(1, 3)
    holed.open()
    assert holed.is_whole


@pytest.mark.parametrize("at", [2, 3, 5, 7])
def test_a_truncation_before_or_within_them_keeps_what_lies_before(holed: Store, at: int) -> None:
    holed.log.truncate_to(at, high_watermark=at, now_ms=holed.now_ms)
    assert holed.log.log_end_offset == at
    expected = [(0, 1), (1, 2), (2, 3), (-3, -at)]
    assert offsets(holed) == expected[: at if at < 3 else 3 if at == 3 else 4]
    holed.append(b"new")
    holed.flush()
    holed.kill_and_open()
    assert holed.log.log_end_offset == at + 1
    assert offsets(holed)[-1] == (at, at + 1)


@pytest.mark.parametrize("at", [2, 3, 5, 7, 9])
def test_a_deletion_goes_across_them(holed: Store, at: int) -> None:
    holed.log.delete_records(at)
    holed.flush()
    assert [(d.start, d.end) for d in holed.log.damaged_ranges()] == ([(3, 7)] if at < 7 else [])
    holed.kill_and_open()
    assert holed.log.log_start_offset == at
    shown = [extent for extent in WITH_HOLE if abs(extent[1]) > at]
    assert offsets(holed) == shown
    if 3 <= at < 7:
        assert holed.log.repair(made(holed, 3, 4), belongs_there=True) is Repair.DONE
        assert holed.log.read(at, 1, 9).next_offset == 7


def test_several_in_a_row_have_a_segment_each(store: Store) -> None:
    store.log.append_lost(0, 2, EPOCH, store.now_ms)
    store.log.append_lost(2, 3, EPOCH + 1, store.now_ms)
    store.epoch = EPOCH + 1
    store.append(b"3")
    store.flush()
    store.kill_and_open()
    assert offsets(store) == [(0, -2), (-2, -3), (3, 4)]
    assert store.log.repair(made(store, 0, 2), belongs_there=True) is Repair.DONE
    assert store.log.repair(made(store, 2), belongs_there=True) is Repair.DONE
    store.kill_and_open()
    assert store.is_whole


@pytest.mark.parametrize("left", ["its bytes", "no bytes"])
@pytest.mark.parametrize("goes_on", ["before", "behind", "after another start"])
def test_a_lost_end_has_room_for_what_was_there(store: Store, left: str, goes_on: str) -> None:
    """Batch 1 and its row have rotted. The row of batch 2, which is torn, says that they were durable."""
    store.append(b"0", b"1")
    store.flush()
    store.append(b"2")
    for offset in (1, 2):
        store.harm_batch(offset)
    store.harm_row(2)
    if left == "no bytes":
        store.cut(store.log_path(), len(store.appended[0]))
    copy = store.appended[1]
    del store.appended[2]
    store.kill_and_open()
    assert offsets(store) == [(0, 1), (-1, -2)]
    if goes_on == "after another start":
        store.kill_and_open()
        assert offsets(store) == [(0, 1), (-1, -2)]
    if goes_on != "behind":
        store.append(b"2")
    store.log.leave_lost_end()
    assert store.log.repair(copy, belongs_there=True) is Repair.DONE
    store.append(b"4")
    store.flush()
    for _ in range(2):
        assert store.is_whole and not store.log.damaged_ranges()
        store.kill_and_open()
        assert not store.report.findings
