"""Opening a log of which files are cut, padded, missing, or come from before."""

from __future__ import annotations

import pytest

from tests.unit.storage.conftest import ALL, DIRECTORY, SETTLED, Store
from tests.unit.storage.torn import check_goes_on, position_of
from tidelog.model.errors import DamagedBatch
from tidelog.storage.metainfo import NAMES
from tidelog.storage.rows import ROW_BYTES


@pytest.mark.parametrize("cut", range(0, 8 * ROW_BYTES + 1, 32))
def test_a_catalog_cut_anywhere_is_made_again_from_the_log(torn: Store, cut: int) -> None:
    torn.cut(torn.catalog_path(), cut)
    torn.open()
    assert torn.is_whole
    assert torn.log.log_end_offset == ALL
    check_goes_on(torn)


def test_a_log_cut_anywhere_loses_what_was_cut_and_nothing_else(torn: Store) -> None:
    size = position_of(torn, ALL)
    catalog = torn.content(torn.catalog_path())
    content = torn.content(torn.log_path())
    for cut in range(0, size + 1, 19):
        torn.overwrite(torn.log_path(), 0, content)
        torn.cut(torn.log_path(), cut)
        torn.overwrite(torn.catalog_path(), 0, catalog)
        for name in NAMES:
            torn.files.inner.remove(f"{DIRECTORY}/{name}")
        torn.open()
        whole = sum(position_of(torn, n + 1) <= cut for n in range(ALL))
        assert set(torn.read_sound()) == set(range(whole)), cut
        assert torn.log.log_end_offset == max(whole, SETTLED)
        torn.opened.close_all()


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x7d\x10\x01\x04"])
@pytest.mark.parametrize("suffix", ["log", "catalog"])
def test_garbage_behind_the_end_never_parses(torn: Store, suffix: str, filler: bytes) -> None:
    """F39: files come back longer than they were, with zeros or worse."""
    path = torn.log_path() if suffix == "log" else torn.catalog_path()
    torn.overwrite(path, len(torn.content(path)), filler * 1000)
    torn.open()
    assert torn.is_whole
    assert torn.log.log_end_offset == ALL
    check_goes_on(torn)


@pytest.mark.parametrize("suffixes", [(".log",), (".catalog",), (".log", ".catalog")])
@pytest.mark.parametrize("base", [0, 3, 6])
def test_missing_files_cost_what_was_in_the_log_file(store: Store, base: int, suffixes: tuple[str, ...]) -> None:
    for n in range(9):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    store.log.close(9)
    for suffix in suffixes:
        store.files.inner.remove(f"{DIRECTORY}/{base:020}{suffix}")
    store.open()
    lost = set(range(base, base + 3)) if ".log" in suffixes else set()
    assert set(store.read_sound()) == set(range(9)) - lost
    assert (store.log.log_start_offset, store.log.log_end_offset) == (0, 9)
    if lost:
        with pytest.raises(DamagedBatch):
            store.log.read(base + 1, 1, 9)
    store.append(b"goes on")
    store.kill_and_open()
    assert set(store.read_sound()) == set(range(10)) - lost


def test_all_segments_missing_is_not_a_new_log(store: Store) -> None:
    store.append(b"a", b"b")
    store.close_and_open()
    store.log.close(2)
    for path in (store.log_path(), store.catalog_path()):
        store.files.inner.remove(path)
    store.open()
    assert (store.log.log_start_offset, store.log.log_end_offset) == (0, 2)
    assert store.report.findings[0] == "all segments are missing; offsets up to 2 are lost"
    with pytest.raises(DamagedBatch, match="offsets 0 to 1 "):
        store.log.read(0, 1, 2)


@pytest.mark.parametrize("witness", ["the third segment", "metainfo"])
def test_a_lost_catalog_in_mid_log_does_not_take_what_follows_along(store: Store, witness: str) -> None:
    """The end of one segment and the whole catalog of the next are lost; the third was durable all the same."""
    for n in range(9):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
        store.flush()
    store.log.store_metainfo(store.log.metainfo(9))
    store.opened.close_all()
    if witness == "metainfo":
        store.cut(store.catalog_path(6), 0)
    else:
        for name in NAMES:
            store.files.inner.remove(f"{DIRECTORY}/{name}")
    store.cut(store.catalog_path(3), 0)
    store.cut(store.catalog_path(0), 3 * ROW_BYTES)
    store.overwrite(store.log_path(0), len(store.appended[0]) * 2, bytes(len(store.appended[2])))
    store.open()
    assert set(store.read_sound()) == set(range(9)) - {2}
    assert store.log.log_end_offset == 9


def test_a_log_file_longer_than_its_segment_does_not_swallow_the_next(store: Store) -> None:
    for n in range(6):
        if n == 3:
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    store.log.close(6)
    first, second = store.content(store.log_path(0)), store.content(store.log_path(3))
    store.overwrite(store.log_path(0), len(first), second)
    store.cut(store.catalog_path(0), 0)
    store.open()
    assert [segment.base_offset for segment in store.log.segments] == [0, 3]
    assert store.is_whole


def test_what_is_written_after_a_loss_is_not_taken_for_durable(store: Store) -> None:
    """One LOST row stands for many, so what comes next gets numbers that were durable before."""
    store.append(*[b"value"] * 20)
    store.close_and_open()
    store.log.close(20)
    size = len(store.appended[0])
    store.cut(store.log_path(), 5 * size)
    store.cut(store.catalog_path(), 6 * ROW_BYTES)
    store.open()
    assert (len(store.read_sound()), store.log.log_end_offset) == (5, 20)
    store.append(b"torn")
    store.opened.close_all()
    store.cut(store.log_path(20), len(store.content(store.log_path(20))) - 1)
    store.open()
    assert (len(store.read_sound()), store.log.log_end_offset) == (5, 20)
    assert store.report.damage == []
    check_goes_on(store)


def test_rows_left_over_from_before_a_truncation_are_told_by_their_epoch(store: Store) -> None:
    """F51: an old block comes back, with a row that fits in all but its epoch, and with its batch."""
    store.append(b"value 0", b"value 1", b"value 2")
    store.flush()
    catalog, log = store.content(store.catalog_path()), store.content(store.log_path())
    store.log.truncate_to(1, high_watermark=1, now_ms=store.now_ms)
    del store.appended[1], store.appended[2]
    store.epoch = 2
    store.append(b"value I")
    store.opened.close_all()
    store.overwrite(store.catalog_path(), 3 * ROW_BYTES, catalog[3 * ROW_BYTES :])
    end = len(store.content(store.log_path()))
    store.overwrite(store.log_path(), end, log[end:])
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 2
