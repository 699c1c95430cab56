"""Opening a log: what metainfo, checkpoints and rolls cut short leave of high watermark, epochs and producers."""

from __future__ import annotations

import pytest

from tests.unit.storage.conftest import DIRECTORY, IDENTITY, Store
from tests.unit.storage.torn import check_goes_on
from tidelog.storage.metainfo import NAMES, MetainfoStore
from tidelog.storage.rows import ROW_BYTES

# -- metainfo, epochs, producers ---------------------------------------------------------------------------------------


def test_a_lost_high_watermark_is_never_a_reason_to_cut(store: Store) -> None:
    """Scenario T15: both copies of metainfo are gone."""
    store.append(b"a", b"b")
    store.close_and_open()
    assert store.report.high_watermark == 2
    store.log.close(2)
    for name in NAMES:
        store.overwrite(f"{DIRECTORY}/{name}", 20, b"\xff" * 8)
    store.open()
    assert store.report.high_watermark == 0
    assert store.log.incarnation == "start-3"
    assert "new incarnation" in store.report.findings[0]
    assert store.is_whole
    store.kill_and_open()
    assert store.log.incarnation == "start-3"
    assert store.report.findings == []


@pytest.mark.parametrize("name", NAMES)
def test_one_bad_copy_of_metainfo_is_mended_and_said(store: Store, name: str) -> None:
    store.append(b"a")
    store.close_and_open()
    store.log.close(1)
    store.overwrite(f"{DIRECTORY}/{name}", 20, b"\xff" * 8)
    store.open()
    assert store.log.incarnation == "start-1"
    assert store.report.findings == ["one metainfo copy was bad or old and is written again"]
    loaded = MetainfoStore(store.files, DIRECTORY, IDENTITY).load()
    assert loaded is not None
    assert (loaded.bad_copies, loaded.info.high_watermark) == (0, 1)


@pytest.mark.parametrize("harmed", [(), (0,), (1,), (0, 1), (0, 1, 2)])
def test_epochs_and_producers_come_from_the_newest_sound_checkpoint(store: Store, harmed: tuple[int, ...]) -> None:
    for n in range(9):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.epoch = 1 + n // 2
        store.append(b"v", producer=(5 + n % 2, 0, n // 2))
    lineage, producers = list(store.log.lineage), dict(store.log.producers.items())
    store.close_and_open()
    for slot in harmed:
        store.harm_row(slot, base_offset=6)
    store.kill_and_open()
    assert store.log.lineage == lineage == [(1, 0), (2, 2), (3, 4), (4, 6), (5, 8)]
    assert {key: state.batches for key, state in store.log.producers.items()} == {
        key: state.batches for key, state in producers.items()
    }


@pytest.mark.parametrize("rows", range(8))
def test_half_a_checkpoint_is_none(store: Store, rows: int) -> None:
    for n in range(6):
        store.epoch = 1 + n // 2
        store.append(b"v", producer=(n, 0, 0))
    lineage, producers = list(store.log.lineage), [key for key, _ in store.log.producers.items()]
    store.log.roll(store.now_ms)
    store.close_and_open()
    store.log.close(6)
    store.cut(store.catalog_path(6), rows * ROW_BYTES)
    store.open()
    assert store.log.lineage == lineage
    assert [key for key, _ in store.log.producers.items()] == producers


def test_epochs_and_producers_are_the_same_though_rows_had_to_be_made_again(torn: Store) -> None:
    torn.open()
    torn.epoch = 3
    torn.append(b"v", producer=(9, 0, 0))
    torn.append(b"v", producer=(9, 0, 1))
    lineage = list(torn.log.lineage)
    torn.opened.close_all()
    torn.cut(torn.catalog_path(), 0)
    torn.open()
    assert torn.log.lineage == lineage == [(1, 0), (3, 7)]
    assert torn.log.producers.check(9, 0, 1, 1) == (8, 8)


# -- a roll cut short --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seal", ["sound", "zero", "absent"])
@pytest.mark.parametrize("header", ["sound", "zero", "absent", "no file"])
def test_a_roll_cut_short_loses_nothing(store: Store, seal: str, header: str) -> None:
    """A crash right after a roll: any part of it may have reached the disk."""
    store.append(b"a", b"b", b"c")
    store.flush()
    store.log.roll(store.now_ms)
    store.opened.close_all()
    if seal == "zero":
        store.overwrite(store.catalog_path(0), 4 * ROW_BYTES, bytes(ROW_BYTES))
    elif seal == "absent":
        store.cut(store.catalog_path(0), 4 * ROW_BYTES)
    if header == "zero":
        store.overwrite(store.catalog_path(3), 0, bytes(2 * ROW_BYTES))
    elif header == "absent":
        store.cut(store.catalog_path(3), 0)
    elif header == "no file":
        store.files.inner.remove(store.catalog_path(3))
        store.files.inner.remove(store.log_path(3))
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 3
    check_goes_on(store)


def test_batches_behind_a_roll_are_kept_though_the_seal_did_not_make_it(store: Store) -> None:
    store.append(b"a", b"b")
    store.flush()
    store.log.roll(store.now_ms)
    store.append(b"c", b"d")
    store.opened.close_all()
    store.overwrite(store.catalog_path(0), 3 * ROW_BYTES, bytes(ROW_BYTES))
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 4
    check_goes_on(store)


@pytest.mark.parametrize("batches", [0, 2])
@pytest.mark.parametrize("is_deleted_before", [False, True])
def test_epochs_and_producers_outlive_the_deletion_of_all_older_segments(
    store: Store, batches: int, is_deleted_before: bool
) -> None:
    """A crash right after a roll may leave the new segment without its checkpoint; those that know may be deleted."""
    store.append(b"a", producer=(9, 0, 0))
    store.epoch = 2
    store.append(b"b", producer=(9, 0, 1))
    store.flush()
    store.log.roll(store.now_ms)
    store.append(*[b"c"] * batches)
    if is_deleted_before:
        store.log.delete_records(2)
        store.log.store_metainfo(store.log.metainfo(2))
    store.opened.close_all()
    store.cut(store.catalog_path(2), 0)
    store.open()
    assert store.is_whole
    store.append(b"d")
    store.flush()
    store.log.delete_records(2)
    store.flush()
    assert not store.files.inner.exists(store.log_path(0))
    for _ in range(2):
        store.kill_and_open()
        assert dict(store.log.lineage)[2] <= 2
        assert store.log.producers.check(9, 0, 1, 1) == (1, 1)
        assert store.is_whole
