"""Opening a log on disks that refuse, and what opening costs."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.conftest import DIRECTORY, Store, WatchedFiles
from tests.unit.storage.torn import check_goes_on, harm
from tidelog.model.errors import InternalError, LogOffline, Overloaded
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import FaultRates
from tidelog.storage.metainfo import NAMES
from tidelog.storage.rows import ROW_BYTES, Kind

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
    store.flush()
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
        store.flush()
        store.append(b"not acknowledged")
        disk.medium.faults = FaultRates(sync_error=1.0)
        store.flush()
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
    store.flush()
    store.log.mark()
    store.log.delete_records(1)
    store.append(b"c")
    store.close_and_open()
    kinds = [row.kind for row in store.segment().rows(1) if row is not None]
    assert kinds == [Kind.BATCH, Kind.BATCH, Kind.MARK, Kind.DELETE_RECORDS, Kind.BATCH, Kind.MARK]
    assert store.is_whole


def dir_syncs_of_opening(store: Store) -> int:
    store.files.forget()
    store.kill_and_open()
    return store.files.counts["sync_dir"]


def test_names_that_a_flush_made_durable_are_not_fsynced_again(torn: Store) -> None:
    assert dir_syncs_of_opening(torn) == 0
    assert torn.files.counts["sync"] == 2, "what follows the mark is"


def test_the_names_of_a_new_segment_are_fsynced_if_no_mark_vouches_for_them(store: Store) -> None:
    store.append(b"a")
    store.flush()
    store.log.roll(store.now_ms)
    store.append(b"b")
    assert dir_syncs_of_opening(store) == 1
    assert store.is_whole


def test_a_removal_of_the_last_segment_that_was_interrupted_is_made_durable(store: Store) -> None:
    store.append(b"a", b"b")
    store.flush()
    store.append(b"c")
    store.log.roll(store.now_ms)
    store.append(b"d")
    for path in (store.catalog_path(3), store.log_path(3)):
        store.files.inner.remove(path)
    assert dir_syncs_of_opening(store) == 1
    assert store.log.log_end_offset == 3
