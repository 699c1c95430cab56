"""`truncate_to`: all below the offset stays, however damaged the rows around it are; nothing beyond comes back."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from tests.unit.storage.conftest import Store, WatchedFiles
from tidelog.model.errors import DamagedBatch, InternalError, LogOffline, OffsetOutOfRange
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.metainfo import MetainfoStore


def truncate(store: Store, offset: int) -> None:
    """As at the start of a new leader epoch."""
    store.log.truncate_to(offset, high_watermark=min(1, offset), now_ms=store.now_ms)
    store.epoch += 1
    for base in [base for base in store.appended if base >= store.log.log_end_offset]:
        del store.appended[base]


@pytest.mark.parametrize("offset", [0, 1, 4, 5, 6, 9, 10])
def test_everything_from_the_offset_on_goes(store: Store, offset: int) -> None:
    for n in range(10):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
    store.flush()
    truncate(store, offset)
    assert (store.log.log_end_offset, store.log.durable_offset) == (offset, offset)
    assert store.is_whole
    store.append(b"of the new epoch")
    assert store.is_whole
    store.kill_and_open()
    assert store.is_whole
    assert store.report.findings == []


def test_the_batch_that_holds_the_offset_goes_whole(store: Store) -> None:
    store.append(b"a", records=4)
    store.append(b"b", records=4)
    store.flush()
    truncate(store, 6)
    assert store.log.log_end_offset == 4
    assert store.is_whole


def test_unflushed_batches_below_the_offset_become_durable(store: Store) -> None:
    store.append(b"a")
    store.log.roll(store.now_ms)
    store.append(b"b", b"c")
    store.files.forget()
    truncate(store, 2)
    assert store.files.by_path["sync", store.log_path(0)] == 1
    assert store.log.durable_offset == 2


def test_truncating_at_the_end_does_nothing_at_all(store: Store) -> None:
    store.append(b"a")
    store.files.forget()
    truncate(store, 1)
    assert not store.files.counts


def test_the_offset_must_be_in_the_log(store: Store) -> None:
    store.append(b"a", b"b", b"c")
    store.flush()
    store.log.delete_records(1)
    store.flush()
    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRange, match="the log holds 1 to 3"):
            truncate(store, offset)


def test_epochs_and_producers_are_those_of_what_is_left(store: Store) -> None:
    store.append(b"a", producer=(7, 0, 0))
    store.epoch = 2
    store.append(b"b", producer=(7, 0, 1))
    store.epoch = 3
    store.append(b"c", producer=(7, 0, 2))
    store.flush()
    truncate(store, 2)
    assert store.log.lineage == [(1, 0), (2, 1)]
    assert store.log.producers.check(7, 0, 2, 1) is None
    truncate(store, 0)
    assert store.log.lineage == []
    assert len(store.log.producers) == 0


def test_the_high_watermark_is_the_callers_and_never_beyond_the_end(store: Store) -> None:
    store.append(b"a", b"b", b"c")
    store.flush()
    for offset, expected in ((2, 2), (1, 1)):
        store.log.truncate_to(offset, high_watermark=2, now_ms=0)
        loaded = MetainfoStore(store.files, store.log.directory, store.log.identity).load()
        assert loaded is not None
        assert (loaded.info.high_watermark, loaded.info.end_offset) == (expected, offset)


HARMED = [
    (offset, bad_batch, mask)
    for offset in range(6)
    for bad_batch in (None, 1, 2)
    for mask in product([False, True], repeat=5)
]
"""Where to cut, one damaged batch or none, and which of five rows are damaged."""
FEW = 5
"""One in so many is tried each time: of each offset and each batch other rows, as 5 shares no factor with 3 and 32."""


@pytest.mark.parametrize(
    "harmed",
    [
        pytest.param(HARMED[::FEW], id="a few"),
        pytest.param([one for n, one in enumerate(HARMED) if n % FEW], id="the rest", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("is_at_seam", [False, True])
def test_no_damage_to_rows_takes_a_good_batch_below_the_offset_along(
    is_at_seam: bool, harmed: list[tuple[int, int | None, tuple[bool, ...]]]
) -> None:
    """Every subset of five damaged rows, and one damaged batch or none, with each offset to cut at."""
    for offset, bad_batch, mask in harmed:
        store = Store(WatchedFiles(SimDisk(1)))
        for n in range(5):
            store.append(b"value %d" % n)
        store.log.mark()
        if is_at_seam:
            store.log.roll(store.now_ms)
            store.append(b"value 5")
        store.close_and_open()
        if bad_batch is not None:
            store.harm_batch(bad_batch)
        for slot, is_bad in enumerate(mask, 1):
            if is_bad:
                store.harm_row(slot)
        expected = {base: data for base, data in store.read_sound().items() if base < offset}
        truncate(store, offset)
        assert store.log.log_end_offset == offset
        assert store.read_sound() == expected
        store.append(b"of the new epoch")
        expected[offset] = store.appended[offset]
        assert store.read_sound() == expected
        store.kill_and_open()
        assert store.read_sound() == expected
        assert store.log.log_end_offset == offset + 1


def test_offsets_that_were_lost_below_the_cut_stay_lost(store: Store) -> None:
    store.append(*[b"v"] * 6)
    store.close_and_open()
    for slot, offset in ((3, 2), (4, 3), (5, 4)):
        store.harm_batch(offset)
        store.harm_row(slot)
    store.kill_and_open()
    assert list(store.read_sound()) == [0, 1, 5]
    truncate(store, 4)
    assert store.log.log_end_offset == 4
    with pytest.raises(DamagedBatch, match="offsets 2 to 3"):
        store.log.read(2, 1, 4)
    store.append(b"new")
    store.kill_and_open()
    assert list(store.read_sound()) == [0, 1, 4]


def test_a_cut_through_lost_offsets_keeps_those_below_it_lost(store: Store) -> None:
    store.append(*[b"v"] * 6)
    store.close_and_open()
    store.log.close(6)
    store.files.inner.remove(store.log_path())
    store.files.inner.remove(store.catalog_path())
    store.files.inner.open(store.log_path(), create=True).close()
    store.open()
    assert store.read_sound() == {}
    truncate(store, 4)
    store.append(b"new")
    for _ in range(2):
        assert store.log.log_end_offset == 5
        assert list(store.read_sound()) == [4]
        with pytest.raises(DamagedBatch, match="offsets 0 to 3 "):
            store.log.read(0, 1, 5)
        store.kill_and_open()


def test_readers_find_what_was_appended_in_the_place_of_what_went(store: Store) -> None:
    """Hints of where an offset was would lead astray: the batches are shaped otherwise now."""
    store.append(*[b"v"] * 10)
    store.flush()
    for offset in range(10):
        store.log.read(offset, 1, 10)
    truncate(store, 2)
    store.append(b"w", records=8)
    for offset in range(2, 10):
        assert store.log.read(offset, 1, 10).data == store.appended[2]


@pytest.mark.parametrize("kind", ["pwritev", "sync", "remove", "truncate", "sync_dir"])
def test_a_truncation_that_fails_takes_the_log_offline(store: Store, kind: str) -> None:
    store.append(b"a", b"b")
    store.log.roll(store.now_ms)
    store.append(b"c")
    store.flush()
    store.files.fails = lambda what, path: errno.EIO if what == kind else 0
    with pytest.raises(OSError, match="EIO"):
        store.log.truncate_to(1, high_watermark=1, now_ms=store.now_ms)
    store.files.fails = lambda kind, path: 0
    with pytest.raises(LogOffline, match="truncation failed"):
        store.append(b"d")
    store.kill_and_open()
    assert store.log.log_end_offset >= 1
    assert 0 in store.read_sound()


def test_a_truncation_that_a_crash_cuts_short_is_done_not_done_or_done_again() -> None:
    """A crash at each operation: what is below the offset is there, what is beyond is either sound or gone."""
    ends = set()
    for operation in range(1, 30):
        for seed in range(12):
            disk = SimDisk(seed)
            store = Store(WatchedFiles(disk))
            for n in range(6):
                if n in (2, 4):
                    store.log.roll(store.now_ms)
                store.append(b"value %d" % n)
                store.flush()  # each row says that those before it were durable
            disk.crash_at(operation)
            try:
                store.log.truncate_to(1, high_watermark=1, now_ms=store.now_ms)
            except Crashed:
                pass
            else:
                continue
            store.files.inner = disk.crash()
            store.open()
            assert store.report.damage == [], (operation, seed, store.report)
            found = store.read_sound()
            assert list(found) == list(range(store.log.log_end_offset))
            assert found[0] == store.appended[0]
            ends.add(store.log.log_end_offset)
            truncate(store, 1)
            assert list(store.read_sound()) == [0]
    assert {1, 2, 4, 6} <= ends


def test_an_append_after_an_unknown_outcome_is_refused_before_a_truncation(store: Store) -> None:
    store.append(b"a")
    store.files.fails = lambda kind, path: errno.EIO if kind == "pwritev" else 0
    with pytest.raises(InternalError):
        store.append(b"b")
    store.files.fails = lambda kind, path: 0
    with pytest.raises(LogOffline):
        truncate(store, 0)


def test_batches_of_older_epochs_are_kept_though_their_rows_are_damaged(store: Store) -> None:
    for n in range(5):
        store.epoch = n + 1
        store.append(b"value %d" % n)
    store.close_and_open()
    for slot in range(1, 6):
        store.harm_row(slot)
    truncate(store, 3)
    assert store.log.lineage == [(1, 0), (2, 1), (3, 2)]
    assert store.log.tail.epoch == 3
    assert store.is_whole


@pytest.mark.parametrize("cut", [0, 2, 3, 4])
def test_what_follows_may_be_of_a_lower_epoch_and_takes_sequences_that_no_row_had(store: Store, cut: int) -> None:
    for epoch, count in ((1, 2), (4, 3)):
        store.epoch = epoch
        store.append(*[b"v"] * count)
    store.log.roll(store.now_ms)
    store.append(b"v")
    store.flush()
    used = store.log.tail.sequence
    for restart in (None, store.kill_and_open, store.close_and_open):
        truncate(store, cut)
        if restart is not None:
            restart()
        assert store.report.findings == []
        store.epoch = max(store.log.tail.epoch, 3)
        store.append(b"lower", b"lower")
        assert store.log.active.first_sequence >= used
        used = store.log.tail.sequence
        store.flush()
    store.kill_and_open()
    assert store.is_whole
    assert store.log.tail.sequence >= used


def test_a_truncation_writes_zeros_over_what_it_drops(store: Store) -> None:
    """Under the name that they had, and before their space is given back."""
    store.append(b"kept", b"dropped")
    store.log.roll(store.now_ms)
    store.append(b"dropped, too")
    store.flush()
    store.files.forget()
    truncate(store, 1)
    for path in (store.log_path(0), store.log_path(2)):
        assert (store.files.by_path["pwritev", path], store.files.by_path["sync", path] > 0) == (1, True)


def test_metainfo_of_before_a_cut_is_not_stored_after_it(store: Store) -> None:
    """A checkpoint of the high watermark that waits for the disk thread while a truncation runs there."""
    store.append(b"a", b"b", b"c")
    store.flush()
    for _ in range(2):
        stale = store.log.metainfo(3)
        truncate(store, store.log.log_end_offset - 1)
        store.log.store_metainfo(stale)
    stale = store.log.metainfo(1)
    store.log.start_over(0, now_ms=0)
    store.appended.clear()
    store.log.store_metainfo(stale)
    store.kill_and_open()
    assert store.report.findings == []
    assert store.log.log_end_offset == 0
    store.log.store_metainfo(store.log.metainfo(0))


def test_a_truncation_with_one_handle_to_spare(store: Store) -> None:
    store.handles_max = 1
    store.kill_and_open()
    for n in range(9):
        if n in (3, 6):
            store.log.roll(store.now_ms)
        store.append(b"value %d" % n)
        store.flush()
    truncate(store, 2)
    store.append(b"w")
    store.kill_and_open()
    assert store.is_whole
