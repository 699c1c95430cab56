"""Appending, flushing, rolling, cutting, reading: one log, on both disks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.unit.storage.conftest import Store, WatchedFiles
from tidelog.model.errors import DiskFull, InternalError, LogOffline, Overloaded
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.partition_log import ROWS_LEFT_MAX, LogSettings

Faults = Callable[[str, str], int]


def failing(kind: str, suffix: str, number: int) -> Faults:
    """Fails each operation of a kind on files whose names end so."""
    return lambda what, path: number if what == kind and path.endswith(suffix) else 0


# -- append and flush -----------------------------------------------------------------------------------------------


def test_an_append_is_one_write_per_file_however_many_batches_it_gathers(store: Store) -> None:
    store.files.forget()
    store.log.append(store.gather(*[b"v"] * 100), store.now_ms)
    assert store.files.counts == {"pwritev": 2}
    assert store.files.by_path["pwritev", store.log_path()] == 1
    assert store.log.log_end_offset == 100


def test_a_flush_is_one_fsync_per_dirty_file_however_many_appends_it_covers(store: Store) -> None:
    for _ in range(10):
        store.append(b"v")
    store.files.forget()
    store.flush()
    assert store.files.counts == {"sync": 2}
    assert not store.log.is_dirty


def test_a_flush_after_a_roll_also_covers_the_seal_and_the_names(store: Store) -> None:
    store.append(b"v")
    store.flush()
    store.log.roll(store.now_ms)
    store.append(b"v")
    store.files.forget()
    store.flush()
    assert store.files.counts == {"sync": 3, "sync_dir": 1}
    assert store.files.by_path["sync", store.log_path(0)] == 0


def test_what_is_appended_during_a_flush_waits_for_the_next(store: Store) -> None:
    store.append(b"a")
    flush = store.log.begin_flush()
    store.append(b"b")
    flush.run()
    store.log.end_flush(flush, None)
    assert (store.log.durable_offset, store.log.log_end_offset) == (1, 2)
    assert store.log.is_dirty
    store.flush()
    assert store.log.durable_offset == 2


def test_the_handle_that_saw_a_write_is_the_one_that_is_flushed(store: Store) -> None:
    store.close_and_open()
    store.opened._open_max = 1  # each further file would push the others out
    store.append(b"v")
    store.opened.get(f"{store.log.directory}/metainfo.0")
    store.opened.get(f"{store.log.directory}/metainfo.1")
    store.files.forget()
    store.flush()
    assert store.files.counts == {"sync": 2}, "a file was opened anew before its fsync"


def test_handles_are_let_go_after_their_flush(store: Store) -> None:
    store.opened._open_max = 1
    for _ in range(5):
        store.append(b"v")
        store.log.roll(store.now_ms)
        store.flush()
    store.log.read(0, 1, 1)
    assert len(store.opened) == 1


def test_a_log_that_ends_in_a_later_epoch_goes_offline_alone(store: Store) -> None:
    """No checksum covers the epoch in a batch, from which a lost row is made again."""
    store.epoch = 8
    store.append(b"a")
    store.epoch = 2
    with pytest.raises(LogOffline, match="ends in leader epoch 8, and the next batch is of epoch 2"):
        store.append(b"b")
    assert store.log.log_end_offset == 1
    assert list(store.read_sound()) == [0], "reads go on"


@pytest.mark.parametrize("kind", ["sync", "sync_dir"])
def test_a_failed_fsync_is_final(store: Store, kind: str) -> None:
    store.append(b"a")
    store.flush()
    store.log.roll(store.now_ms)
    store.append(b"b")
    store.files.fails = failing(kind, "", errno.EIO)
    store.flush()
    store.files.fails = lambda kind, path: 0
    assert store.log.durable_offset == 1
    assert not store.log.is_dirty, "somebody would fsync again"
    with pytest.raises(LogOffline, match=r"fsync failed: .*EIO.*check the disk and restart"):
        store.append(b"c")
    store.files.forget()
    store.log.close(1)
    assert store.files.counts["sync"] == 0
    assert list(store.read_sound()) == [0, 1]  # reads go on


def test_a_flush_that_ends_after_the_log_went_offline_covers_nothing(store: Store) -> None:
    store.append(b"a")
    flush = store.log.begin_flush()
    store.files.fails = failing("pwritev", ".log", errno.EIO)
    with pytest.raises(InternalError):
        store.append(b"b")
    store.log.end_flush(flush, None)
    assert store.log.durable_offset == 0


# -- writes that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log", ".catalog"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_refuses_and_leaves_nothing_behind(store: Store, suffix: str, number: int) -> None:
    store.append(b"kept")
    before = [store.content(path) for path in (store.log_path(), store.catalog_path())]
    store.files.fails = failing("pwritev", suffix, number)
    with pytest.raises(DiskFull, match="nothing was appended"):
        store.append(b"refused")
    store.files.fails = lambda kind, path: 0
    assert [store.content(path) for path in (store.log_path(), store.catalog_path())] == before
    assert store.log.log_end_offset == 1

    store.append(b"there is room again")
    store.kill_and_open()
    assert store.is_whole
    assert store.report.findings == []


def test_however_much_of_an_append_found_room_nothing_is_left_behind() -> None:
    disk = SimDisk(1)
    store = Store(WatchedFiles(disk))
    store.append(b"kept")
    store.flush()
    paths = (store.log_path(), store.catalog_path())
    before, used = [store.content(path) for path in paths], disk.medium.used_bytes
    for room in range(0, 500, 7):
        disk.medium.capacity_bytes = used + room
        batches = store.gather(b"v", b"w")
        with suppress(DiskFull):
            store.log.append(batches, store.now_ms)
            break
        assert [store.content(path) for path in paths] == before
    assert room > 300
    assert store.log.log_end_offset == 3


@pytest.mark.parametrize("suffix", [".log", ".catalog"])
def test_any_other_failed_write_leaves_the_outcome_open_and_the_log_offline(store: Store, suffix: str) -> None:
    store.append(b"kept")
    store.files.fails = failing("pwritev", suffix, errno.EIO)
    with pytest.raises(InternalError, match="the outcome is unknown"):
        store.append(b"unknown")
    store.files.fails = lambda kind, path: 0
    with pytest.raises(LogOffline):
        store.append(b"later")
    assert list(store.read_sound()) == [0]


def test_an_undo_that_fails_leaves_the_outcome_open(store: Store) -> None:
    store.append(b"kept")
    store.files.fails = lambda kind, path: {"pwritev": errno.ENOSPC, "truncate": errno.EIO}.get(kind, 0)
    with pytest.raises(InternalError, match="the outcome is unknown"):
        store.append(b"unknown")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_shortage_of_descriptors_refuses_an_append_and_harms_nothing(store: Store, number: int) -> None:
    store.append(b"kept")
    store.flush()
    store.opened.close_all()
    store.files.fails = failing("open", ".catalog", number)
    with pytest.raises(Overloaded, match="raise the limit of open files"):
        store.append(b"refused")
    with pytest.raises(Overloaded):
        store.log.read(0, 1, 1)
    store.files.fails = lambda kind, path: 0
    assert store.log.offline_reason is None
    store.append(b"accepted")
    assert store.is_whole


@pytest.mark.parametrize("suffix", ["1.log", "1.catalog"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_roll_that_cannot_make_its_files_is_as_if_it_had_not_been_tried(
    store: Store, suffix: str, number: int
) -> None:
    store.append(b"kept")
    store.flush()
    names = store.files.list(store.log.directory)
    store.files.fails = failing("open", suffix, number)
    with pytest.raises((DiskFull, Overloaded)):
        store.log.roll(store.now_ms)
    store.files.fails = lambda kind, path: 0
    assert store.files.list(store.log.directory) == names
    store.append(b"same segment")
    assert len(store.log.segments) == 1
    store.flush()
    store.log.roll(store.now_ms)
    store.append(b"next segment")
    store.kill_and_open()
    assert store.is_whole
    assert store.report.findings == []


# -- roll ------------------------------------------------------------------------------------------------------------


def test_a_segment_is_rolled_by_size_before_the_next_append(store: Store) -> None:
    store.log.settings = LogSettings(segment_bytes=1, segment_ms=1 << 40)
    store.append(b"a", b"b", b"c")
    assert [segment.base_offset for segment in store.log.segments] == [0, 1, 2]
    assert store.is_whole


def test_a_segment_is_rolled_by_age_if_there_is_anything_in_it(store: Store) -> None:
    store.log.settings = LogSettings(segment_bytes=1 << 30, segment_ms=1000)
    store.now_ms += 5000
    store.append(b"a")
    assert len(store.log.segments) == 1
    store.now_ms += 1000
    store.append(b"b")
    assert [segment.base_offset for segment in store.log.segments] == [0, 1]


def test_rolling_an_empty_segment_changes_nothing(store: Store) -> None:
    store.log.roll(store.now_ms)
    store.append(b"a")
    store.log.roll(store.now_ms)
    store.log.roll(store.now_ms)
    assert [segment.base_offset for segment in store.log.segments] == [0, 1]
    store.flush()
    store.kill_and_open()
    assert store.is_whole
    assert store.report.findings == []


def test_a_segment_is_rolled_before_it_has_too_many_rows_to_open_quickly(store: Store) -> None:
    store.log.settings = LogSettings(segment_bytes=1 << 30, segment_ms=1 << 40, segment_rows_max=3)
    for n in range(8):
        store.append(b"value %d" % n)
    assert [segment.base_offset for segment in store.log.segments] == [0, 3, 6]


# -- close -------------------------------------------------------------------------------------------------------------


def test_a_clean_stop_makes_all_durable_and_says_so(store: Store) -> None:
    store.append(b"a", b"b")
    store.close_and_open()
    assert store.log.durable_offset == 2
    assert store.report.findings == []
    assert store.report.high_watermark == 2


def test_a_clean_stop_leaves_little_to_read_for_the_next_start(store: Store) -> None:
    store.log.append(store.gather(*[b"v"] * (ROWS_LEFT_MAX + 1)), store.now_ms)
    store.log.close(0)
    store.files.forget()
    store.open()
    assert len(store.log.segments) == 2
    assert store.files.bytes_read < 10_000
    assert store.log.log_end_offset == ROWS_LEFT_MAX + 1
    store.close_and_open()
    assert len(store.log.segments) == 2, "an empty segment is not rolled"


@pytest.mark.parametrize("kind", ["pwritev", "sync", "open"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_stop_on_a_failing_disk_ends_and_harms_nothing(store: Store, kind: str, number: int) -> None:
    store.append(b"a")
    store.flush()
    store.append(b"b")
    if kind == "open":
        store.flush()
        store.opened.close_all()
    store.files.fails = lambda what, path: number if what == kind else 0
    with suppress(OSError, Overloaded):
        store.log.close(2)
    store.files.fails = lambda kind, path: 0
    assert len(store.opened) == 0
    store.open()
    assert store.is_whole
    assert store.log.log_end_offset == 2
