"""Opening a log: each row of the torn-or-damaged table, each crash state, each file that can be missing."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from tests.unit.storage.conftest import DIRECTORY, IDENTITY, Store, WatchedFiles
from tidelog.model.batch_header import assign_offsets
from tidelog.model.errors import DamagedBatch, InternalError, LogOffline, Overloaded
from tidelog.sim.disk import SimDisk
from tidelog.sim.faults import FaultRates
from tidelog.storage.metainfo import NAMES, MetainfoStore
from tidelog.storage.rows import ROW_BYTES, Kind, RowCodec, Tail

# Offsets 0 to 3 below D, 4 to 6 at D or beyond: committed, perhaps, but nothing on the disk says so.
SETTLED, ALL = 4, 7


@pytest.fixture
def torn(store: Store) -> Store:
    """A log whose process died with D at row 1 + SETTLED, and no metainfo of that."""
    store.append(*[b"value %d" % n for n in range(SETTLED)])
    store.commit()
    for n in range(SETTLED, ALL):
        store.append(b"value %d" % n)
    store.opened.close_all()
    return store


def slot_of(offset: int) -> int:
    return 1 + offset


def position_of(store: Store, offset: int) -> int:
    return sum(len(store.appended[n]) for n in range(offset))


def harm(store: Store, offset: int, *, batch: bool, row: bool) -> None:
    if batch:
        store.overwrite(store.log_path(), position_of(store, offset) + 65, b"\xff\x00\xff")
    if row:
        store.harm_row(slot_of(offset))


def check_goes_on(store: Store) -> None:
    """Whatever was found: the log can be written, and says the same when it is opened again."""
    before, end = store.read_sound(), store.log.log_end_offset
    store.append(b"goes on")
    before[end] = store.appended[end]
    store.kill_and_open()
    assert store.read_sound() == before
    assert store.log.log_end_offset == end + 1
    store.commit()
    store.close_and_open()
    assert store.read_sound() == before
    assert store.report.findings == []


# -- the table ---------------------------------------------------------------------------------------------------------


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
    store.commit()
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


# -- files that are cut, padded, missing -------------------------------------------------------------------------------


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
        store.commit()
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
    store.cut(store.log_path(), len(store.content(store.log_path())) - 1)
    store.open()
    assert (len(store.read_sound()), store.log.log_end_offset) == (5, 20)
    assert store.report.damage == []
    check_goes_on(store)


def test_rows_left_over_from_before_a_truncation_are_told_by_their_epoch(store: Store) -> None:
    """F51: an old block comes back, with a row that fits in all but its epoch, and with its batch."""
    store.append(b"value 0", b"value 1", b"value 2")
    store.commit()
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


# -- other people's files ----------------------------------------------------------------------------------------------


def strangers_files(store: Store, value: bytes) -> tuple[bytes, bytes]:
    """Log and catalog of another partition, with the same offsets, sizes and epoch as ours."""
    codec = RowCodec(IDENTITY._replace(partition=4))
    tail = Tail(0, 0, 1, 0, 0, -1, 0)
    rows, log = codec.checkpoint(tail, [], []), b""
    for n in range(9):
        batch = assign_offsets(store.batch(value + b" %d" % n), n, 1)
        tail = tail._replace(sequence=n + 1, durable=n)
        rows.append(codec.batch(tail, batch.header, batch.data))
        log += bytes(batch.data)
        tail = tail._replace(offset=n + 1, file_position=len(log))
    return log, b"".join(rows)


def test_another_partitions_catalog_is_set_aside(torn: Store) -> None:
    _, catalog = strangers_files(torn, b"alien")
    torn.overwrite(torn.catalog_path(), 0, catalog)
    torn.open()
    assert torn.is_whole
    assert torn.log.log_end_offset == ALL
    assert torn.report.findings[0] == f"{torn.catalog_path()} belongs to another log and is set aside"
    assert torn.content(f"{torn.catalog_path()}.stranger-1") == catalog
    check_goes_on(torn)


def test_another_partitions_segment_is_set_aside_whole(store: Store) -> None:
    """F50: its batches would pass for ours, offset by offset."""
    store.append(*[b"value %d" % n for n in range(ALL)])
    store.close_and_open()
    store.log.close(ALL)
    for n in (1, 2):
        log, catalog = strangers_files(store, b"alien")
        for path, content in ((store.log_path(), log), (store.catalog_path(), catalog)):
            store.files.inner.open(path, create=True).close()
            store.cut(path, 0)
            store.overwrite(path, 0, content)
        store.open()
        assert store.read_sound() == {}
        assert (store.log.log_start_offset, store.log.log_end_offset) == (0, ALL)
        with pytest.raises(DamagedBatch, match="offsets 0 to 6 "):
            store.log.read(0, 1, ALL)
        assert store.content(f"{store.log_path()}.stranger-{n}") == log
        store.log.close(ALL)


def test_a_strangers_log_whose_catalog_was_set_aside_alone_cannot_happen(store: Store) -> None:
    """Killed between the two renames: the catalog is still there to tell."""
    store.append(b"a")
    store.close_and_open()
    store.log.close(1)
    log, catalog = strangers_files(store, b"alien")
    store.overwrite(store.log_path(), 0, log)
    store.overwrite(store.catalog_path(), 0, catalog)
    renames = 0

    def fails(kind: str, path: str) -> int:
        nonlocal renames
        renames += kind == "rename"
        return errno.EIO if kind == "rename" and renames == 2 else 0

    store.files.fails = fails
    store.open()
    store.files.fails = lambda kind, path: 0
    store.kill_and_open()
    assert store.read_sound() == {}


def test_swapped_catalogs_are_made_again(store: Store) -> None:
    for n in range(6):
        if n == 3:
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    first, second = store.content(store.catalog_path(0)), store.content(store.catalog_path(3))
    store.log.close(6)
    for path, content in ((store.catalog_path(0), second), (store.catalog_path(3), first)):
        store.cut(path, 0)
        store.overwrite(path, 0, content)
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 6


def test_a_segment_that_is_there_twice_is_there_once(store: Store) -> None:
    for n in range(6):
        if n == 3:
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.close_and_open()
    store.log.close(6)
    for source, target in ((store.log_path(0), store.log_path(3)), (store.catalog_path(0), store.catalog_path(3))):
        store.cut(target, 0)
        store.overwrite(target, 0, store.content(source))
    store.open()
    assert set(store.read_sound()) == {0, 1, 2}
    assert store.log.log_end_offset == 6
    with pytest.raises(DamagedBatch, match="offsets 3 to 5 "):
        store.log.read(3, 1, 6)


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
    store.commit()
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
    store.commit()
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
    store.commit()
    store.log.roll(store.now_ms)
    store.append(*[b"c"] * batches)
    if is_deleted_before:
        store.log.delete_prefix(2)
        store.log.store_metainfo(store.log.metainfo(2))
    store.opened.close_all()
    store.cut(store.catalog_path(2), 0)
    store.open()
    assert store.is_whole
    store.append(b"d")
    store.commit()
    store.log.delete_prefix(2)
    store.commit()
    assert not store.files.inner.exists(store.log_path(0))
    for _ in range(2):
        store.kill_and_open()
        assert dict(store.log.lineage)[2] <= 2
        assert store.log.producers.check(9, 0, 1, 1) == (1, 1)
        assert store.is_whole


# -- disks that refuse -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "sync_dir", "pwritev", "truncate"])
def test_what_cannot_be_made_durable_can_be_read_and_not_written(torn: Store, kind: str) -> None:
    harm(torn, 5, batch=True, row=False)
    torn.files.inner.remove(f"{DIRECTORY}/{NAMES[1]}")
    torn.files.fails = lambda what, path: errno.EIO if what == kind else 0
    torn.open()
    torn.files.fails = lambda kind, path: 0
    assert set(torn.read_sound()) == {0, 1, 2, 3, 4}
    with pytest.raises(LogOffline):
        torn.append(b"v")
    torn.kill_and_open()
    assert set(torn.read_sound()) == {0, 1, 2, 3, 4}
    check_goes_on(torn)


def test_a_disk_that_turned_read_only_can_be_read_by_the_next_process() -> None:
    """F34."""
    disk = SimDisk(1)
    store = Store(WatchedFiles(disk))
    store.append(b"a", b"b")
    store.commit()
    disk.medium.read_only = True
    store.kill_and_open()
    assert store.is_whole
    with pytest.raises((LogOffline, InternalError)):
        store.append(b"c")


def test_a_shortage_of_descriptors_fails_the_opening_and_harms_nothing(torn: Store) -> None:
    before = {name: torn.content(f"{DIRECTORY}/{name}") for name in torn.files.list(DIRECTORY)}
    for failing in range(1, 12):
        torn.files.forget()

        def fails(kind: str, path: str, failing: int = failing) -> int:
            return errno.EMFILE if kind == "open" and torn.files.counts["open"] >= failing else 0

        torn.files.fails = fails
        try:
            torn.open()
        except Overloaded:
            torn.files.fails = lambda kind, path: 0
            assert {name: torn.content(f"{DIRECTORY}/{name}") for name in torn.files.list(DIRECTORY)} == before
        else:
            break
        torn.opened.close_all()
    assert failing > 3
    torn.files.fails = lambda kind, path: 0
    assert torn.is_whole


def test_what_a_failed_fsync_left_in_the_cache_is_written_again() -> None:
    """Scenario T16: the fsync failed, the pages are clean, the process restarts, reads them, and syncs with success."""
    for seed in range(30):
        disk = SimDisk(seed)
        store = Store(WatchedFiles(disk))
        store.append(b"acknowledged")
        store.commit()
        store.append(b"not acknowledged")
        disk.medium.faults = FaultRates(sync_error=1.0)
        store.commit()
        assert store.log.offline_reason is not None
        disk.medium.faults = FaultRates()
        store.kill_and_open()
        end, found = store.log.log_end_offset, store.read_sound()
        assert 0 in found
        store.files.inner = disk.crash()
        store.open()
        assert store.log.log_end_offset == end, "what was shown once is gone"
        assert store.read_sound() == found


# -- cost --------------------------------------------------------------------------------------------------------------


def cost_of_opening(segments: int, batches: int, value_bytes: int) -> tuple[int, int]:
    """How many reads, and how many bytes, it takes to open a log of this shape after a clean stop."""
    store = Store(WatchedFiles(SimDisk(1)))
    for _ in range(segments):
        store.append(*[b"v" * value_bytes] * batches)
        store.log.roll(store.now_ms)
    store.append(b"v")
    store.log.close(store.log.log_end_offset)
    store.files.forget()
    store.open()
    assert len(store.log.segments) == segments + 1
    return store.files.counts["pread"], store.files.bytes_read


def test_opening_takes_work_for_each_segment_and_none_for_what_is_in_it() -> None:
    small = cost_of_opening(10, batches=2, value_bytes=10)
    assert cost_of_opening(10, batches=200, value_bytes=10) == small
    assert cost_of_opening(10, batches=2, value_bytes=10_000) == small
    reads, size = cost_of_opening(30, batches=2, value_bytes=10)
    assert reads - small[0] == 20 * 2
    assert size - small[1] == 20 * 2 * ROW_BYTES


def test_opening_after_a_clean_stop_writes_and_syncs_nothing(store: Store) -> None:
    store.append(b"a")
    store.log.close(1)
    store.files.forget()
    store.open()
    assert set(store.files.counts) <= {"list", "open", "pread"}


def test_opening_a_long_active_segment_reads_its_rows_once_and_its_batches_not_at_all(store: Store) -> None:
    store.append(*[b"v" * 1000] * 500)
    store.log.close(500)
    store.files.forget()
    store.open()
    assert store.files.by_path["pread", store.log_path()] == 0
    assert store.files.bytes_read < 1.2 * 500 * ROW_BYTES


def test_rows_of_all_kinds_are_passed_when_opening(store: Store) -> None:
    store.append(b"a", b"b")
    store.commit()
    store.log.mark()
    store.log.delete_prefix(1)
    store.append(b"c")
    store.close_and_open()
    kinds = [row.kind for row in store.segment().rows(1) if row is not None]
    assert kinds == [Kind.BATCH, Kind.BATCH, Kind.MARK, Kind.DELETE_PREFIX, Kind.BATCH, Kind.MARK]
    assert store.is_whole
