"""Reading a log: by offset and by time, whole or damaged; and what it costs."""

from __future__ import annotations

import re

import pytest

from tests.unit.storage.conftest import Store
from tidelog.model.errors import DamagedBatch, OffsetOutOfRange
from tidelog.storage.rows import ROW_BYTES
from tidelog.storage.segment import HINTS_MAX


def fill(store: Store, *, seams: tuple[int, ...] = (4, 7), batches: int = 10) -> int:
    """Offsets 0 to 9 in three segments, each a batch of one record. Returns the size of a batch."""
    for n in range(batches):
        if n in seams:
            store.log.roll(store.now_ms)
        store.append(b"value %04d" % n)
    store.flush()
    return len(store.appended[0])


# -- by offset ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(10))
def test_a_read_begins_with_the_batch_that_holds_the_offset(store: Store, offset: int) -> None:
    size = fill(store)
    extent = store.log.read(offset, 1, 10)
    assert extent.data == store.appended[offset]
    assert extent.next_offset == offset + 1
    assert len(extent.data) == size


def test_an_offset_within_a_batch_gives_the_whole_batch(store: Store) -> None:
    store.append(b"a", b"b", records=5)
    extent = store.log.read(7, 1, 10)
    assert extent.data == store.appended[5]
    assert extent.next_offset == 10


@pytest.mark.parametrize(("bytes_max", "batches"), [(0, 1), (1, 1), (2, 1), (199, 1), (200, 2), (299, 2), (300, 3)])
def test_a_read_takes_as_many_batches_as_fit_and_at_least_one(store: Store, bytes_max: int, batches: int) -> None:
    size = fill(store)
    extent = store.log.read(0, bytes_max * size // 100, 10)
    assert extent.data == b"".join(store.appended[n] for n in range(batches))
    assert extent.next_offset == batches


def test_a_read_at_the_end_of_what_is_committed_looks_into_no_file(store: Store) -> None:
    fill(store)
    store.files.forget()
    for end_offset in (5, 10):
        assert store.log.read_passing(end_offset, 1 << 20, end_offset).extent == (b"", end_offset, None)
    assert store.log.read_passing(8, 1 << 20, 5).extent == (b"", 8, None)
    assert not store.files.counts
    with pytest.raises(OffsetOutOfRange):
        store.log.read_passing(11, 1 << 20, 10)


def test_one_read_stays_in_one_segment(store: Store) -> None:
    fill(store)
    offsets, offset = [], 0
    while offset < 10:
        offset = store.log.read(offset, 1 << 20, 10).next_offset
        offsets.append(offset)
    assert offsets == [4, 7, 10]


@pytest.mark.parametrize("end_offset", range(11))
def test_nothing_beyond_the_given_end_is_read(store: Store, end_offset: int) -> None:
    fill(store)
    found, offset = b"", 0
    while True:
        extent = store.log.read(offset, 1 << 20, end_offset)
        if not extent.data:
            break
        found, offset = found + extent.data, extent.next_offset
    assert offset == end_offset
    assert found == b"".join(store.appended[n] for n in range(end_offset))


def test_a_batch_that_straddles_the_end_is_not_read(store: Store) -> None:
    store.append(b"a", b"b", records=5)
    assert store.log.read(0, 1 << 20, 9).next_offset == 5
    assert store.log.read(5, 1 << 20, 9).data == b""


@pytest.mark.parametrize("offset", [-1, 2, 11, 1 << 62])
def test_an_offset_that_is_not_in_the_log_is_told_what_is(store: Store, offset: int) -> None:
    fill(store)
    store.log.delete_records(3)
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is out of range: the log holds 3 to 10") as caught:
        store.log.read(offset, 1, 10)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (3, 10)


@pytest.mark.parametrize("offset", range(3, 11))
def test_has_bytes_counts_what_lies_below_the_end(store: Store, offset: int) -> None:
    size = fill(store)
    store.log.delete_records(3)
    for end_offset in range(offset, 11):
        held = (end_offset - offset) * size
        assert store.log.has_bytes(offset, held, end_offset) == (held > 0)
        assert not store.log.has_bytes(offset, held + 1, end_offset)


# -- by time -----------------------------------------------------------------------------------------------------------


def since(store: Store, timestamp_ms: int, end_offset: int | None = None) -> int | None:
    extent = store.log.batch_since(timestamp_ms, store.log.log_end_offset if end_offset is None else end_offset)
    return None if extent is None else extent.next_offset - 1


@pytest.mark.parametrize("seams", [(), (2,), (3, 5)])
def test_the_first_batch_with_that_timestamp_or_later(store: Store, seams: tuple[int, ...]) -> None:
    timestamps = [100, 90, 300, 200, 300, 250, 400]
    for n, timestamp in enumerate(timestamps):
        if n in seams:
            store.log.roll(store.now_ms)
        store.append(b"v", timestamp_ms=timestamp)
    for wanted in range(80, 410, 5):
        expected = next((n for n, timestamp in enumerate(timestamps) if timestamp >= wanted), None)
        assert since(store, wanted) == expected, wanted
        for end in range(8):
            assert since(store, wanted, end) == (expected if expected is not None and expected < end else None)


@pytest.mark.parametrize("start", range(7))
def test_deleted_batches_are_not_found_and_hide_none(store: Store, start: int) -> None:
    timestamps = [500, 90, 300, 200, 300, 250, 400]
    for timestamp in timestamps:
        store.append(b"v", timestamp_ms=timestamp)
    store.flush()
    store.log.delete_records(start)
    for wanted in range(80, 510, 10):
        expected = next((n for n in range(start, 7) if timestamps[n] >= wanted), None)
        assert since(store, wanted) == expected, (start, wanted)


def test_a_batch_is_found_by_its_newest_record(store: Store) -> None:
    store.append(b"v", records=3, timestamp_ms=100)
    store.append(b"v", records=3, timestamp_ms=200)
    assert since(store, 101) == 5
    assert since(store, 100) == 2


def test_damage_where_the_answer_may_have_been_is_said(store: Store) -> None:
    for n in range(6):
        store.append(b"v", timestamp_ms=100 * n)
    store.close_and_open()
    store.harm_row(1 + 3)
    store.harm_batch(3)
    with pytest.raises(DamagedBatch, match="offsets 3 to 3 "):
        store.log.batch_since(250, 6)
    assert since(store, 200) == 2
    assert since(store, 401) == 5


def test_files_missing_right_before_the_answer_are_said(store: Store) -> None:
    for n in range(9):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.append(b"v", timestamp_ms=100 * n)
    store.close_and_open()
    store.log.close(9)
    store.files.inner.remove(store.log_path(3))
    store.files.inner.remove(store.catalog_path(3))
    store.open()
    assert since(store, 200) == 2
    for wanted in (201, 500, 600):
        with pytest.raises(DamagedBatch, match="offsets 3 to 5 "):
            store.log.batch_since(wanted, 9)
    store.log.delete_records(6)
    assert since(store, 300) == 6
    assert since(store, 700) == 7


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["flip", "zero", "cut", "unreadable"])
@pytest.mark.parametrize("offset", [0, 3, 5, 9])
def test_a_damaged_batch_harms_itself_alone(store: Store, kind: str, offset: int) -> None:
    size = fill(store)
    store.close_and_open()
    base = max(base for base in (0, 4, 7) if base <= offset)
    position = (offset - base) * size
    path = store.log_path(base)
    if kind == "flip":
        (byte,) = store.content(path)[position + 70 : position + 71]
        store.overwrite(path, position + 70, bytes([byte ^ 4]))
    elif kind == "zero":
        store.overwrite(path, position, bytes(size))
    elif kind == "cut":
        store.cut(path, position + size // 2)
    else:
        store.files.bad_sectors.append((path, position + 10, position + 20))
    found = store.read_sound()
    lost = {offset} if kind != "cut" else {n for n in range(offset, 10) if max(b for b in (0, 4, 7) if b <= n) == base}
    assert set(range(10)) - set(found) == lost
    with pytest.raises(
        DamagedBatch, match=f"offsets {offset} to {offset} of partition {re.escape(str(store.log.identity))} "
    ):
        store.log.read(offset, 1, 10)


def test_a_read_ends_before_damage_and_the_next_one_names_it(store: Store) -> None:
    fill(store, seams=())
    store.close_and_open()
    store.harm_batch(4)
    extent = store.log.read(1, 1 << 20, 10)
    assert extent.next_offset == 4
    assert extent.data == b"".join(store.appended[n] for n in (1, 2, 3))
    with pytest.raises(DamagedBatch, match=r"does not match its catalog row.*not affected.*`tidelog log accept-loss`"):
        store.log.read(4, 1 << 20, 10)
    store.log.name = "flights-3"
    with pytest.raises(DamagedBatch, match="offsets 4 to 4 of partition flights-3 are damaged"):
        store.log.read(4, 1 << 20, 10)
    assert store.log.read(5, 1 << 20, 10).next_offset == 10


def test_a_damaged_row_costs_nothing_while_its_batch_is_sound(store: Store) -> None:
    fill(store, seams=())
    store.close_and_open()
    for slot in (1, 2, 5, 9, 10):
        store.harm_row(slot)
    assert store.is_whole
    assert store.log.read(0, 1 << 20, 10).next_offset == 10


def test_no_row_left_is_still_no_loss(store: Store) -> None:
    fill(store, seams=())
    store.close_and_open()
    for slot in range(12):
        store.harm_row(slot)
    assert store.is_whole


@pytest.mark.parametrize("bad_rows", [(5,), (4, 5), (5, 6), (4, 5, 6)])
def test_a_batch_and_its_row_both_damaged_are_the_only_loss(store: Store, bad_rows: tuple[int, ...]) -> None:
    """The rows beside it cannot be told from it, once they are damaged, too, unless the batches lead to them."""
    fill(store, seams=())
    store.close_and_open()
    store.harm_batch(4)
    for slot in bad_rows:
        store.harm_row(slot)
    found = store.read_sound()
    assert {n for n in range(10) if n not in found} == ({4} if 6 not in bad_rows else {4, 5})


def test_damage_beyond_the_given_end_is_not_met(store: Store) -> None:
    fill(store, seams=())
    store.close_and_open()
    for offset in (6, 9):
        store.harm_batch(offset)
        store.harm_row(offset + 1)
    assert store.log.read(2, 1 << 20, 6).next_offset == 6
    assert store.log.read(6, 1 << 20, 6).data == b""
    assert not store.log.has_bytes(6, 1, 6)
    assert store.log.has_bytes(6, 1, 7), "a reader must be woken to be told"


def test_swapped_log_files_give_no_wrong_bytes(store: Store) -> None:
    fill(store, seams=(4,), batches=8)
    store.close_and_open()
    first, second = store.content(store.log_path(0)), store.content(store.log_path(4))
    store.overwrite(store.log_path(0), 0, second)
    store.overwrite(store.log_path(4), 0, first)
    assert store.read_sound() == {}


def test_a_misdirected_batch_does_not_pass_for_another(store: Store) -> None:
    """The copy of one batch over two others, rows gone: it verifies, and is not at home there."""
    size = fill(store, seams=())
    store.close_and_open()
    store.overwrite(store.log_path(), 2 * size, store.appended[4])
    for slot in (3, 4, 5):
        store.harm_row(slot)
    assert set(store.read_sound()) == {0, 1, 5, 6, 7, 8, 9}


def test_missing_files_in_the_middle_are_the_only_loss(store: Store) -> None:
    fill(store)
    store.close_and_open()
    store.log.close(10)
    for path in (store.log_path(4), store.catalog_path(4)):
        store.files.inner.remove(path)
    store.open()
    assert set(store.read_sound()) == {0, 1, 2, 3, 7, 8, 9}
    with pytest.raises(DamagedBatch, match="offsets 5 to 6 "):
        store.log.read(5, 1, 10)
    assert store.log.read(4, 1, 4).data == b""


# -- cost --------------------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_on_where_it_stopped_does_not_search(store: Store) -> None:
    """Two reads of the disk: a piece of the catalog, and the batches."""
    size = fill(store, seams=(), batches=200)
    store.close_and_open()
    offset = store.log.read(0, 5 * size, 200).next_offset
    for _ in range(30):
        store.files.forget()
        offset = store.log.read(offset, 5 * size, 200).next_offset
        assert store.files.counts == {"pread": 2}
    assert offset == 155


def test_a_reader_at_the_end_does_not_search_either(store: Store) -> None:
    for n in range(2 * HINTS_MAX):
        store.append(b"v")
        store.files.forget()
        assert store.log.read(n, 1, n + 1).next_offset == n + 1
        assert store.files.counts == {"pread": 2}


def test_a_search_costs_logarithmically_many_small_reads(store: Store) -> None:
    fill(store, seams=(), batches=1000)
    store.close_and_open()
    for offset in (0, 1, 499, 998):
        store.files.forget()
        store.log.read(offset, 1, 1000)
        assert store.files.counts["pread"] <= 2 + 10
        assert store.files.bytes_read < 50 * ROW_BYTES
    store.files.forget()
    store.log.batch_since(1, 1000)
    assert store.files.counts["pread"] <= 2 * (2 + 10)


def test_an_unreadable_sector_fails_the_gathered_read_and_costs_one_batch(store: Store) -> None:
    size = fill(store, seams=())
    store.close_and_open()
    store.files.bad_sectors.append((store.log_path(), 4 * size, 5 * size))
    assert store.log.read(0, 1 << 20, 10).next_offset == 4
    assert store.log.read(5, 1 << 20, 10).next_offset == 10
    store.files.bad_sectors.append((store.catalog_path(), 3 * ROW_BYTES, 4 * ROW_BYTES))
    assert set(store.read_sound()) == {0, 1, 2, 3, 5, 6, 7, 8, 9}
