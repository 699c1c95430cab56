"""A damaged batch gets its bytes back from a copy, if it is the very same; a damaged row, from its batch."""

from __future__ import annotations

import errno

import pytest

from tests.scrubbing import scrub_piece
from tests.unit.storage.conftest import IDENTITY, Store
from tidelog.model.batch_header import assign_offsets, split_batches
from tidelog.model.errors import DamagedBatch, InvalidBatch, LogOffline, OffsetOutOfRange
from tidelog.storage.damage import RANGES_MAX, DamageList
from tidelog.storage.repair import Repair
from tidelog.storage.rows import ROW_BYTES, RowCodec
from tidelog.storage.segment import Damage
from tidelog.storage.trails import read_checkpoint

TEN = range(10)


@pytest.fixture
def ten(store: Store) -> Store:
    """Batches 0 to 9, five a segment, closed and opened."""
    for n in TEN:
        if n == 5:
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    return store


def ranges(store: Store) -> list[tuple[int, int]]:
    return [(damage.start, damage.end) for damage in store.log.damaged_ranges()]


def scrub(store: Store) -> int:
    """One whole round; how many bad rows it met."""
    bad_rows = 0
    for _ in range(1000):
        step = scrub_piece(store.log, 100)
        bad_rows += step.bad_rows
        if step.has_finished:
            return bad_rows
    raise AssertionError("a round never ends")


# -- batches ---------------------------------------------------------------------------------------------------------


def test_a_damaged_batch_is_put_back_in_its_place(ten: Store) -> None:
    ten.harm_batch(2)
    with pytest.raises(DamagedBatch, match="offsets 2 to 2"):
        ten.log.read(2, 1, 10)
    (damage,) = ten.log.damaged_ranges()
    assert (damage.start, damage.end, damage.epoch) == (2, 3, 1)
    assert ten.log.repair(ten.appended[2]) is Repair.DONE
    assert ten.log.damaged_ranges() == []
    assert ten.is_whole
    ten.kill_and_open()
    assert ten.report.findings == []
    assert ten.is_whole


def test_a_repair_is_durable_and_writes_nothing_else(ten: Store) -> None:
    ten.harm_batch(7, 5)
    before = {name: ten.content(name) for name in (ten.log_path(), ten.catalog_path(), ten.catalog_path(5))}
    ten.files.forget()
    assert ten.log.repair(ten.appended[7]) is Repair.DONE
    assert ten.files.by_path["pwritev", ten.log_path(5)] == ten.files.by_path["sync", ten.log_path(5)] == 1
    assert (ten.files.counts["pwritev"], ten.files.counts["sync"]) == (1, 1)
    assert before == {name: ten.content(name) for name in before}


def test_of_two_damaged_batches_each_is_its_own(ten: Store) -> None:
    ten.harm_batch(2)
    ten.harm_batch(3)
    scrub(ten)
    assert ranges(ten) == [(2, 3), (3, 4)]
    assert ten.log.repair(ten.appended[3]) is Repair.DONE
    assert ranges(ten) == [(2, 3)]
    with pytest.raises(DamagedBatch):
        ten.log.read(2, 1, 10)
    assert ten.log.read(3, 1, 10).data == ten.appended[3]


def test_another_batch_is_not_put_there(ten: Store) -> None:
    """Of another epoch, of other bytes, of another offset: all of them sound."""
    ten.harm_batch(2)
    for data, offset, epoch in ((ten.appended[2], 2, 2), (ten.appended[3], 2, 1), (ten.appended[2], 3, 1)):
        (batch,) = split_batches(data, batch_bytes_max=1 << 20)
        other = assign_offsets(batch, offset, epoch).data
        assert ten.log.repair(other) is Repair.DIFFERENT
    assert ten.read_sound().keys() == set(TEN) - {2}


def test_what_is_no_batch_is_refused(ten: Store) -> None:
    ten.harm_batch(2)
    for data in (b"", ten.appended[2][:-1], ten.appended[2][:-1] + b"?"):
        with pytest.raises(InvalidBatch):
            ten.log.repair(data)
    with pytest.raises(OffsetOutOfRange):
        (batch,) = split_batches(ten.appended[2], batch_bytes_max=1 << 20)
        ten.log.repair(assign_offsets(batch, 10, 1).data)


def test_a_sound_batch_is_left_alone(ten: Store) -> None:
    ten.files.forget()
    assert ten.log.repair(ten.appended[2]) is Repair.NOT_NEEDED
    assert ten.files.counts["pwritev"] == 0


def test_a_lost_file_is_filled_again_batch_by_batch_in_any_order(ten: Store) -> None:
    ten.log.close(10)
    ten.files.inner.remove(ten.log_path())
    ten.open()
    scrub(ten)
    assert ranges(ten) == [(n, n + 1) for n in range(5)]
    for n in (3, 0, 4, 1, 2):
        assert ten.log.repair(ten.appended[n]) is Repair.DONE
    assert ranges(ten) == []
    ten.close_and_open()
    assert ten.report.findings == []
    assert ten.is_whole


def test_an_unreadable_sector_is_repaired_by_writing_it(ten: Store) -> None:
    ten.files.bad_sectors = [(ten.log_path(), 100, 120)]
    scrub(ten)
    assert ranges(ten)
    (start, _), *_ = ranges(ten)
    ten.files.bad_sectors = []  # as a drive does that remaps it
    ten.harm_batch(start)
    assert ten.log.repair(ten.appended[start]) is Repair.DONE
    assert scrub(ten) == 0
    assert ten.is_whole


def test_if_row_and_batch_are_both_lost_a_copy_proves_nothing(ten: Store) -> None:
    ten.harm_batch(2)
    ten.harm_row(1 + 2)
    scrub(ten)
    assert ranges(ten) == [(2, 3)]
    assert ten.log.repair(ten.appended[2]) is Repair.UNKNOWN
    assert ranges(ten) == [(2, 3)]
    assert ten.read_sound().keys() == set(TEN) - {2}


def lose(ten: Store, n: int) -> None:
    """A batch, and its row."""
    base = 5 * (n // 5)
    ten.harm_batch(n, base)
    ten.harm_row(ten.segment(base).body_slot + n - base, base)


@pytest.mark.parametrize("lost", [(2,), (2, 3), (4,), (0,), (0, 1, 2, 3, 4), (9,), (8, 9)])
def test_what_is_committed_there_fills_in_what_is_lost_with_its_row(ten: Store, lost: tuple[int, ...]) -> None:
    for n in lost:
        lose(ten, n)
    scrub(ten)
    assert ranges(ten)
    for n in lost:
        assert ten.log.repair(ten.appended[n], belongs_there=True) is Repair.DONE
        assert ten.log.read(n, 1, 10).data == ten.appended[n]
    assert ranges(ten) == []
    assert scrub(ten) == 0
    ten.kill_and_open()
    assert ten.report.findings == []
    assert ten.is_whole


def test_of_a_run_of_lost_batches_the_one_that_is_still_there_is_found_again(ten: Store) -> None:
    ten.harm_batch(2)
    for n in (2, 3):
        ten.harm_row(1 + n)
    scrub(ten)
    assert ranges(ten) == [(2, 4)]
    assert ten.log.repair(ten.appended[2], belongs_there=True) is Repair.DONE
    scrub(ten)
    assert ten.is_whole


def test_what_does_not_fit_there_is_not_filled_in(ten: Store) -> None:
    """Of another size, of another epoch, or not the next one."""
    for n in (2, 7, 8):
        lose(ten, n)
    scrub(ten)
    before = [ten.content(ten.log_path(base)) for base in (0, 5)]
    longer = assign_offsets(ten.batch(b"a longer value"), 2, 1).data
    (batch,) = split_batches(ten.appended[2], batch_bytes_max=1 << 20)
    for data in (longer, assign_offsets(batch, 2, 2).data, ten.appended[8]):
        assert ten.log.repair(data, belongs_there=True) is Repair.UNKNOWN
    assert before == [ten.content(ten.log_path(base)) for base in (0, 5)]


@pytest.mark.parametrize("kind", ["pwritev", "sync"])
def test_a_repair_that_fails_takes_the_log_offline(ten: Store, kind: str) -> None:
    ten.harm_batch(2)
    ten.files.fails = lambda what, path: errno.EIO if what == kind else 0
    with pytest.raises(OSError, match="EIO"):
        ten.log.repair(ten.appended[2])
    ten.files.fails = lambda kind, path: 0
    with pytest.raises(LogOffline, match="repair failed"):
        ten.log.repair(ten.appended[2])
    ten.kill_and_open()
    assert ten.log.repair(ten.appended[2]) in (Repair.DONE, Repair.NOT_NEEDED)
    assert ten.is_whole


def test_damage_that_is_cut_off_is_forgotten(ten: Store) -> None:
    for offset, base in ((1, 0), (3, 0), (8, 5)):
        ten.harm_batch(offset, base)
    scrub(ten)
    assert ranges(ten) == [(1, 2), (3, 4), (8, 9)]
    ten.log.truncate_to(8, high_watermark=0, now_ms=0)
    assert ranges(ten) == [(1, 2), (3, 4)]
    ten.log.delete_records(2)
    assert ranges(ten) == [(3, 4)]
    ten.log.start_over(20, now_ms=0)
    assert ranges(ten) == []


# -- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [(1,), (3,), (2, 3, 4), (5,), (1, 2, 3, 4, 5), (6,), (5, 6)])
def test_the_scrubber_makes_damaged_rows_again(ten: Store, slots: tuple[int, ...]) -> None:
    """The last slot is the seal's."""
    before = ten.content(ten.catalog_path())
    assert len(before) == 7 * ROW_BYTES
    for slot in slots:
        ten.harm_row(slot)
    assert scrub(ten) == len(slots)
    assert scrub(ten) == 0
    assert ten.log.damaged_ranges() == []
    assert ten.is_whole
    ten.kill_and_open()
    assert ten.report.findings == []
    assert ten.is_whole


@pytest.mark.parametrize("base_offset", [0, 5])
def test_the_scrubber_writes_a_damaged_header_anew(ten: Store, base_offset: int) -> None:
    """The header is as it was: the checkpoint of the second segment is still there, and counts."""
    segment = ten.segment(base_offset)
    before = read_checkpoint(RowCodec(IDENTITY), segment)
    assert before is not None
    ten.harm_row(0, base_offset)
    assert scrub(ten) == 1
    assert scrub(ten) == 0
    assert read_checkpoint(RowCodec(IDENTITY), segment) == before
    ten.kill_and_open()
    assert ten.report.findings == []
    assert ten.is_whole


def test_a_header_without_a_sound_checkpoint_says_so(ten: Store) -> None:
    ten.harm_row(0, 5)
    ten.harm_row(1, 5)
    assert scrub(ten) == 2
    assert scrub(ten) == 0
    assert read_checkpoint(RowCodec(IDENTITY), ten.segment(5)) is None, "what the checkpoint said is not made up"
    ten.kill_and_open()
    assert ten.report.findings == []
    assert ten.is_whole


@pytest.mark.parametrize("is_full", [False, True])
def test_what_a_damaged_checkpoint_said_is_kept_in_a_new_segment(store: Store, *, is_full: bool) -> None:
    """The segments that it stood for are deleted: the open log alone knows it."""
    for n in TEN:
        if n == 5:
            store.log.roll(store.now_ms)
        store.epoch = 1 + n // 3
        store.append(b"v", producer=(n, 0, 0))
    store.flush()
    store.log.delete_records(5)
    store.flush()
    store.close_and_open()
    lineage, producers = list(store.log.lineage), dict(store.log.producers.items())
    assert lineage[0] == (1, 0) and len(producers) == 10
    for slot in (1, 4):
        store.harm_row(slot, 5)
    if is_full:
        store.files.fails = lambda kind, path: errno.ENOSPC if kind == "pwritev" else 0
    assert scrub(store) == 2
    store.files.fails = lambda kind, path: 0
    assert len(store.log.segments) == (1 if is_full else 2)
    assert scrub(store) == (2 if is_full else 0)
    store.flush()
    store.kill_and_open()
    assert store.log.lineage == lineage
    assert {key: state.batches for key, state in store.log.producers.items()} == {
        key: state.batches for key, state in producers.items()
    }
    assert store.is_whole
    assert scrub(store) == 0


def test_a_row_in_the_last_segment_is_made_again(ten: Store) -> None:
    slot = ten.log.active.body_slot
    ten.harm_row(slot + 1, 5)
    assert ten.log.repair(ten.appended[6]) is Repair.NOT_NEEDED
    assert scrub(ten) == 0
    ten.append(b"more")
    ten.kill_and_open()
    assert ten.is_whole


def test_a_row_whose_batch_is_lost_is_not_made_up(ten: Store) -> None:
    ten.harm_batch(2)
    ten.harm_row(1 + 2)
    ten.harm_row(1 + 3)
    for _ in range(2):
        assert scrub(ten) == 2
    assert ranges(ten) == [(2, 4)]


def test_a_scrub_reads_no_more_than_it_was_given_but_for_one_step(ten: Store) -> None:
    ten.files.forget()
    steps = 0
    while not scrub_piece(ten.log, 1).has_finished:
        steps += 1
    assert steps == 12, "the rows of two segments, and ten batches"
    assert [scrub_piece(ten.log, 1 << 30).has_finished for _ in range(5)] == [False] * 4 + [True]


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_piece_that_is_read_while_the_log_is_cut_accuses_nobody(ten: Store, *, is_anew: bool) -> None:
    """As on the disk thread, while the event loop goes on."""
    scrub_piece(ten.log, 1)
    piece = ten.log.scrubber.begin(1 << 30)
    assert piece is not None
    if is_anew:
        ten.log.start_over(0, now_ms=0)
    else:
        ten.log.truncate_to(2, high_watermark=0, now_ms=0)
    ten.append(*[b"something else"] * 5)
    piece.run()
    assert piece.suspects
    ten.log.scrubber.end(piece)
    assert ranges(ten) == []
    ten.flush()
    scrub(ten)
    assert ranges(ten) == []


def test_who_listens_is_told_of_each_damage_once(ten: Store) -> None:
    told: list[int] = []
    ten.log.damage.on_change = lambda: told.append(len(ranges(ten)))
    ten.harm_batch(2)
    ten.harm_batch(7, 5)
    for _ in range(2):
        scrub(ten)
    assert told == [1, 2]


def test_a_scrub_goes_on_through_appends_rolls_deletions_and_truncations(ten: Store) -> None:
    scrub_piece(ten.log, 1)
    ten.log.delete_records(6)
    ten.log.roll(ten.now_ms)
    ten.append(b"x")
    ten.log.truncate_to(8, high_watermark=0, now_ms=0)
    scrub(ten)
    assert scrub(ten) == 0
    assert ranges(ten) == []


# -- the list --------------------------------------------------------------------------------------------------------


def test_known_damage_never_overlaps_and_the_newest_finding_counts() -> None:
    known = DamageList()
    for start, end in ((10, 20), (5, 8), (12, 14), (0, 1), (7, 11)):
        known.note(Damage(start, end, "x"))
    assert [(d.start, d.end) for d in known.ranges()] == [(0, 1), (5, 7), (7, 11), (11, 12), (12, 14), (14, 20)]
    known.forget(6, 13)
    assert [(d.start, d.end) for d in known.ranges()] == [(0, 1), (5, 6), (13, 14), (14, 20)]
    known.clip(1, 14)
    assert [(d.start, d.end) for d in known.ranges()] == [(5, 6), (13, 14)]


def test_the_list_is_bounded() -> None:
    known = DamageList()
    for n in range(RANGES_MAX + 5):
        known.note(Damage(n, n + 1, "x"))
    assert len(known.ranges()) == RANGES_MAX
