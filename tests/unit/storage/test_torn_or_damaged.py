"""Opening a log after a crash: each row of the torn-or-damaged table, and what the mark protects.

Logs are alone here, if nothing else is said: nobody else could say what lay at their end.
"""

from __future__ import annotations

from itertools import product

import pytest

from tests.unit.storage.conftest import ALL, IDENTITY, SETTLED, Store
from tests.unit.storage.torn import check_goes_on, harm, position_of, slot_of
from tidelog.model.errors import DamagedBatch
from tidelog.storage.partition_log import LogSettings
from tidelog.storage.repair import Repair
from tidelog.storage.rows import ROW_BYTES, RowCodec
from tidelog.storage.scan import BadEnd


@pytest.mark.parametrize("offset", range(ALL))
@pytest.mark.parametrize(("batch", "row"), [(False, False), (False, True), (True, False), (True, True)])
def test_each_row_of_the_table(torn: Store, offset: int, batch: bool, row: bool) -> None:
    harm(torn, offset, batch=batch, row=row)
    torn.open()
    if not batch:
        assert torn.is_whole
        assert torn.log.log_end_offset == ALL
    elif offset < SETTLED:
        assert set(torn.read_sound()) == set(range(ALL)) - {offset}
        assert torn.log.log_end_offset == ALL
        with pytest.raises(DamagedBatch):
            torn.log.read(offset, 1, ALL)
    else:
        assert set(torn.read_sound()) == set(range(offset))
        assert torn.log.log_end_offset == offset
        assert torn.report.bytes_cut == position_of(torn, ALL) - position_of(torn, offset)
        assert torn.report.rows_cut == ALL - offset
        assert "never acknowledged as far as this replica can tell" in torn.report.findings[-1]
    check_goes_on(torn)


@pytest.mark.parametrize("offset", range(ALL))
@pytest.mark.parametrize("what", ["row", "batch"])
def test_an_unreadable_sector_is_damage_like_any_other(torn: Store, offset: int, what: str) -> None:
    start = position_of(torn, offset)
    bad = {
        "row": (torn.catalog_path(), slot_of(offset) * ROW_BYTES, slot_of(offset) * ROW_BYTES + 1),
        "batch": (torn.log_path(), start + 5, start + 6),
    }
    torn.files.bad_sectors.append(bad[what])
    torn.open()
    if what == "row":
        assert torn.is_whole
    elif offset < SETTLED:
        assert set(torn.read_sound()) == set(range(ALL)) - {offset}
    else:
        assert torn.log.log_end_offset == offset


@pytest.mark.parametrize("bad", list(product([False, True], repeat=4)))
def test_any_mix_of_damage_below_the_mark_costs_exactly_the_bad_batches(torn: Store, bad: tuple[bool, ...]) -> None:
    """All rows damaged, and any of the batches: what the log itself still tells is kept."""
    for offset, is_bad in enumerate(bad):
        harm(torn, offset, batch=is_bad, row=True)
    torn.open()
    found = set(torn.read_sound())
    first_bad = next((n for n, is_bad in enumerate(bad) if is_bad), SETTLED)
    assert found >= set(range(first_bad)) | {4, 5, 6}
    assert found <= set(range(ALL)) - {n for n, is_bad in enumerate(bad) if is_bad}
    assert torn.log.log_end_offset == ALL
    check_goes_on(torn)


def test_what_was_durable_is_not_forgotten_though_only_a_torn_batch_bears_witness(torn: Store) -> None:
    """Batch 3 is lost with its row, and the batch whose row says that 3 was durable is torn: 3 is lost, not free."""
    harm(torn, 3, batch=True, row=True)
    harm(torn, 4, batch=True, row=False)
    torn.open()
    assert set(torn.read_sound()) == {0, 1, 2}
    assert torn.log.log_end_offset == 4, "an acknowledged offset would be given out again"
    with pytest.raises(DamagedBatch, match="offsets 3 to 3 "):
        torn.log.read(3, 1, 4)
    assert len(torn.content(torn.log_path())) == position_of(torn, ALL), "the bytes are kept: something may be left"
    check_goes_on(torn)


def test_a_clean_stop_puts_everything_below_the_mark(store: Store) -> None:
    store.append(*[b"value %d" % n for n in range(ALL)])
    store.close_and_open()
    for offset in (2, 6):
        harm(store, offset, batch=True, row=True)
    store.kill_and_open()
    assert set(store.read_sound()) == {0, 1, 3, 4, 5}
    assert store.log.log_end_offset == ALL
    check_goes_on(store)


def test_a_mark_protects_the_last_batch_of_an_idle_log(store: Store) -> None:
    """Scenario T5: the last entry is bad, its row is sound, and it was committed."""
    store.append(b"value 0", b"value 1")
    store.flush()
    store.files.forget()
    store.log.mark()
    store.log.mark()
    assert store.files.counts == {"pwritev": 1}, "one small write, no fsync"
    assert not store.log.is_dirty
    store.opened.close_all()
    harm(store, 1, batch=True, row=False)
    store.open()
    assert store.log.log_end_offset == 2
    with pytest.raises(DamagedBatch):
        store.log.read(1, 1, 2)
    check_goes_on(store)


def test_what_an_unclean_start_has_made_durable_is_marked_when_idle(torn: Store) -> None:
    torn.open()
    torn.log.mark()
    torn.opened.close_all()
    harm(torn, 6, batch=True, row=True)
    torn.open()
    assert torn.log.log_end_offset == ALL


# -- logs that are not alone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(ALL))
@pytest.mark.parametrize(("batch", "row"), [(False, False), (False, True), (True, False), (True, True)])
def test_each_row_of_the_table_with_other_replicas(torn: Store, offset: int, batch: bool, row: bool) -> None:
    torn.bad_end = BadEnd.KEEP
    harm(torn, offset, batch=batch, row=row)
    torn.open()
    is_nameless = batch and row and offset >= SETTLED
    assert torn.log.log_end_offset == (offset if is_nameless else ALL)
    assert set(torn.read_sound()) == set(range(torn.log.log_end_offset)) - ({offset} if batch else set())
    known = [(damage.start, damage.end, damage.epoch) for damage in torn.log.damaged_ranges()]
    if batch and offset >= SETTLED and not is_nameless:
        assert known == [(offset, offset + 1, 1)], "found at once: it may not be committed"
    check_stays(torn)


def check_stays(store: Store) -> None:
    """The log keeps what it kept, damage too, when it is opened again in any way, and written to."""
    sound, end = store.read_sound(), store.log.log_end_offset
    store.kill_and_open()
    assert (store.read_sound(), store.log.log_end_offset) == (sound, end)
    store.bad_end = BadEnd.TRUNCATE if end == ALL and len(sound) == ALL else BadEnd.KEEP
    store.append(b"goes on")
    sound[end] = store.appended[end]
    store.flush()
    store.kill_and_open()
    assert (store.read_sound(), store.log.log_end_offset) == (sound, end + 1)


def test_the_last_batch_rots_before_anything_says_that_it_was_durable(store: Store) -> None:
    """Scenario T5 to the letter: no mark, no row behind it; others know, and a copy puts it back."""
    store.bad_end = BadEnd.KEEP
    store.append(b"value 0", b"value 1")
    store.flush()
    store.opened.close_all()
    harm(store, 1, batch=True, row=False)
    store.open()
    assert store.log.log_end_offset == 2
    assert store.log.repair(store.appended[1]) is Repair.DONE
    assert store.is_whole
    store.kill_and_open()
    assert store.is_whole
    assert not store.log.damage


def test_a_batch_that_lost_its_row_as_well_ends_the_log(store: Store) -> None:
    """A power cut took the first sectors of a write of many rows, and some of their batches."""
    store.bad_end = BadEnd.KEEP
    store.append(b"durable")
    store.flush()
    store.log.append(batches := store.gather(*[b"value %d" % n for n in range(12)]), store.now_ms)
    store.appended |= {batch.header.base_offset: bytes(batch.data) for batch in batches}
    store.opened.close_all()
    for offset in range(1, 8):
        store.harm_row(slot_of(offset))
    harm(store, 3, batch=True, row=False)
    harm(store, 12, batch=True, row=False)
    store.open()
    assert store.log.log_end_offset == 3, "nobody could name what lay there, to ask others about it"
    assert not store.log.damaged_ranges()
    assert set(store.read_sound()) == {0, 1, 2}
    check_goes_on(store)


def test_a_torn_end_without_any_row_is_truncated(torn: Store) -> None:
    torn.bad_end = BadEnd.KEEP
    for offset in (5, 6):
        harm(torn, offset, batch=True, row=True)
    torn.open()
    assert set(torn.read_sound()) == set(range(5))
    assert torn.log.log_end_offset == 5
    check_goes_on(torn)


def test_an_unreadable_batch_at_the_end_is_kept(torn: Store) -> None:
    torn.bad_end = BadEnd.KEEP
    start = position_of(torn, ALL - 1)
    torn.files.bad_sectors.append((torn.log_path(), start + 5, start + 6))
    torn.open()
    assert torn.log.offline_reason is None, "what cannot be read cannot be written again, either"
    assert torn.log.log_end_offset == ALL
    torn.files.bad_sectors.clear()
    torn.kill_and_open()
    assert torn.is_whole


def test_a_row_beyond_the_next_segment_does_not_count(store: Store) -> None:
    """It does not fit: what it describes is somewhere else."""
    store.bad_end = BadEnd.KEEP
    store.settings = LogSettings(segment_bytes=1, segment_ms=1 << 40)
    store.open()
    store.append(b"value 0", b"value 1", b"value 2")
    row = store.segment(0).row(1)
    assert row is not None
    stray = row._replace(sequence=2, base_offset=1, file_position=row.end_position, last_offset_delta=5)
    store.opened.close_all()
    store.overwrite(store.catalog_path(0), 2 * ROW_BYTES, RowCodec(IDENTITY).pack(stray))
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 3
