"""`start_over`: everything goes, and the log goes on, empty, wherever it is told to."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.conftest import DIRECTORY, IDENTITY, Store, WatchedFiles
from tidelog.model.errors import InvalidBatch, LogOffline
from tidelog.model.ids import PartitionId
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.handover import HANDOVER
from tidelog.storage.metainfo import MetainfoStore
from tidelog.storage.rows import ROW_BYTES, RowCodec


def fill(store: Store) -> None:
    """Offsets 3 to 9 in three segments, of epochs 4 and 5, with a deletion that is not carried out yet."""
    store.epoch = 4
    for n in range(10):
        if n in (2, 5):
            store.log.roll(store.now_ms)
        store.epoch = 4 if n < 7 else 5
        store.append(b"value %d" % n, producer=(7, 0, n))
    store.flush()
    store.log.delete_records(3)


def start_over(store: Store, offset: int) -> None:
    store.log.start_over(offset, now_ms=store.now_ms)
    store.appended.clear()


@pytest.mark.parametrize("offset", [0, 2, 3, 5, 7, 10, 11, 1 << 40])
@pytest.mark.parametrize("is_committed", [False, True])
def test_the_log_is_empty_and_goes_on_anywhere_with_any_epoch(store: Store, offset: int, is_committed: bool) -> None:
    fill(store)
    if is_committed:
        store.flush()
    start_over(store, offset)
    log = store.log
    assert (log.log_start_offset, log.durable_offset, log.log_end_offset) == (offset, offset, offset)
    assert (log.lineage, len(log.producers)) == ([], 0)
    assert not log.is_dirty
    names = [name for name in store.files.inner.list(DIRECTORY) if not name.startswith("metainfo")]
    assert names == [f"{offset:020}.catalog", f"{offset:020}.log"]
    store.kill_and_open()
    assert store.report.findings == []
    assert (store.log.log_start_offset, store.log.log_end_offset) == (offset, offset)
    store.epoch = 1
    store.append(b"a", b"b")
    store.flush()
    assert store.is_whole
    store.close_and_open()
    assert store.report.findings == []
    assert store.is_whole
    assert store.log.lineage == [(1, offset)]


def test_the_high_watermark_is_where_it_starts(store: Store) -> None:
    fill(store)
    start_over(store, 40)
    loaded = MetainfoStore(store.files, store.log.directory, store.log.identity).load()
    assert loaded is not None
    assert (loaded.info.high_watermark, loaded.info.log_start_offset, loaded.info.end_offset) == (40, 40, 40)
    assert not loaded.info.restarts


def test_what_lies_ahead_is_not_overwritten_before_it_goes(store: Store) -> None:
    """A follower far behind may have much to drop, of which nothing can come back."""
    fill(store)
    store.flush()
    store.files.forget()
    start_over(store, 10)
    assert not any(kind == "pwritev" and path.endswith(".log") for kind, path in store.files.by_path)
    fill_again = store.log.log_end_offset
    store.append(b"x", b"y")
    store.flush()
    store.files.forget()
    start_over(store, fill_again + 1)
    assert store.files.by_path["pwritev", store.log_path(fill_again)] == 1


@pytest.mark.parametrize("kind", ["pwritev", "sync", "remove", "open", "sync_dir"])
def test_if_it_fails_the_log_is_offline_and_the_next_opening_ends_it(store: Store, kind: str) -> None:
    fill(store)
    store.flush()
    writes = 0

    def fails(what: str, path: str) -> int:
        nonlocal writes
        writes += what == kind and "metainfo" not in path
        return errno.EIO if writes and what == kind and "metainfo" not in path else 0

    store.files.fails = fails
    with pytest.raises(OSError, match="EIO"):
        start_over(store, 40)
    store.files.fails = lambda kind, path: 0
    with pytest.raises(LogOffline, match="starting over"):
        store.append(b"d")
    store.kill_and_open()
    assert store.report.damage == []
    assert (store.log.log_start_offset, store.log.log_end_offset) == (40, 40)


def test_a_truncation_into_a_batch_that_the_log_starts_within_drops_all(store: Store) -> None:
    store.append(b"a", b"b", records=4)
    store.flush()
    store.log.delete_records(6)
    store.flush()
    store.log.truncate_to(7, high_watermark=6, now_ms=store.now_ms)
    assert (store.log.log_start_offset, store.log.log_end_offset) == (6, 6)
    store.appended.clear()
    store.append(b"c")
    store.kill_and_open()
    assert store.is_whole
    assert store.log.log_start_offset == 6


def test_a_full_disk_does_not_keep_a_follower_from_starting_over() -> None:
    disk = SimDisk(3)
    store = Store(WatchedFiles(disk))
    fill(store)
    store.flush()
    disk.medium.capacity_bytes = disk.medium.used_bytes
    start_over(store, 40)
    store.append(b"x")
    assert store.is_whole


def test_a_truncation_on_a_full_disk_is_done_and_appends_wait_for_room() -> None:
    disk = SimDisk(3)
    store = Store(WatchedFiles(disk))
    fill(store)
    store.flush()
    disk.medium.capacity_bytes = disk.medium.used_bytes
    store.log.truncate_to(6, high_watermark=6, now_ms=store.now_ms)
    for base in range(6, 10):
        del store.appended[base]
    assert store.log.log_end_offset == 6
    store.epoch = 4
    store.append(b"x")  # what was cut made room
    store.flush()
    store.kill_and_open()
    assert store.is_whole


def test_a_crash_between_the_decision_and_its_end_ends_it_at_the_next_opening() -> None:
    ends = set()
    for operation in range(1, 40):
        disk = SimDisk(operation)
        store = Store(WatchedFiles(disk))
        fill(store)
        store.flush()
        disk.crash_at(operation)
        try:
            store.log.start_over(40, now_ms=0)
        except Crashed:
            store.files.inner = disk.crash()
            store.open()
            assert store.report.damage == []
            assert store.is_whole or store.log.log_start_offset == store.log.log_end_offset == 40
            ends.add(store.log.log_end_offset)
    assert ends == {10, 40}


# -- producers --------------------------------------------------------------------------------------------------------


def leader_of(files: WatchedFiles, start: int = 8) -> Store:
    """The leader's segments begin at 0, 6 and 8; the records below `start` are deleted. Producer 7 has written so much
    since that memory holds nothing of what is deleted."""
    store = Store(files)
    for n in range(6):
        store.append(b"early", producer=(7, 0, n))
    store.log.roll(store.now_ms)
    store.append(b"other", producer=(8, 0, 0))
    store.append(b"keyed", producer=(9, 0, 77))
    store.log.roll(store.now_ms)
    for n in range(6, 12):
        store.append(b"late", producer=(7, 0, n))
    store.flush()
    store.log.delete_records(start)
    store.flush()
    return store


def filled_from(leader: Store, files: WatchedFiles) -> Store:
    """A follower that starts over where the leader's log begins."""
    follower = Store(files)
    follower.append(b"of no use", producer=(7, 0, 0))
    follower.flush()
    start = leader.log.log_start_offset
    codec = RowCodec(IDENTITY)
    rows = codec.pack_producers(leader.log.producers_before(start, leader.now_ms))
    follower.log.start_over(start, now_ms=follower.now_ms, producers=codec.parse_producers(rows))
    follower.appended.clear()
    return follower


def test_what_is_deleted_at_the_leader_is_recognised_in_a_log_that_begins_there(store: Store) -> None:
    follower = filled_from(leader_of(WatchedFiles(SimDisk(4))), store.files)
    for reopen in (None, follower.kill_and_open, follower.close_and_open):
        if reopen is not None:
            reopen()
        producers = follower.log.producers
        assert producers.check(8, 0, 0, 1) == (6, 6)
        assert producers.check(9, 0, 77, 1) == (7, 7)
        assert producers.check(7, 0, 5, 1) == (5, 5)
        assert producers.check(7, 0, 0, 1) == (None, None)
        assert producers.check(7, 0, 6, 1) is None
    assert not store.files.inner.exists(f"{DIRECTORY}/{HANDOVER}")
    for n in range(6, 12):
        follower.append(b"late", producer=(7, 0, n))
    follower.log.roll(follower.now_ms)
    follower.kill_and_open()
    assert follower.log.producers.check(7, 0, 0, 1) == (None, None)
    assert follower.log.producers.check(8, 0, 0, 1) == (6, 6)


def test_it_is_as_of_the_start_also_within_a_segment() -> None:
    follower = filled_from(leader_of(WatchedFiles(SimDisk(4)), start=7), WatchedFiles(SimDisk(5)))
    assert follower.log.producers.check(8, 0, 0, 1) == (6, 6)
    assert follower.log.producers.check(9, 0, 77, 1) is None


def test_without_a_sound_checkpoint_memory_tells_what_it_has() -> None:
    leader = leader_of(WatchedFiles(SimDisk(4)))
    leader.harm_row(1, 8)
    follower = filled_from(leader, WatchedFiles(SimDisk(5)))
    assert follower.log.producers.check(8, 0, 0, 1) == (6, 6)
    assert follower.log.producers.check(7, 0, 5, 1) is None


def test_a_truncation_that_drops_all_knows_what_was_deleted(store: Store) -> None:
    store.append(b"a", producer=(7, 0, 0))
    store.append(b"b", records=4, producer=(8, 0, 0))
    store.flush()
    store.log.delete_records(3)
    store.flush()
    store.log.truncate_to(4, high_watermark=3, now_ms=store.now_ms)
    assert store.log.log_start_offset == store.log.log_end_offset == 3
    assert store.log.producers.check(7, 0, 0, 1) == (0, 0)
    assert store.log.producers.check(8, 0, 0, 4) is None


def test_rows_that_are_damaged_or_of_another_partition_are_refused() -> None:
    leader = leader_of(WatchedFiles(SimDisk(4)))
    codec = RowCodec(IDENTITY)
    rows = codec.pack_producers(leader.log.producers_before(8, leader.now_ms))
    assert len(rows) == 3 * ROW_BYTES and len(codec.parse_producers(rows)) == 3
    with pytest.raises(InvalidBatch, match="128 bytes into"):
        codec.parse_producers(rows[: 2 * ROW_BYTES - 1])
    with pytest.raises(InvalidBatch):
        codec.parse_producers(rows[:40] + b"\xff" + rows[41:])
    with pytest.raises(InvalidBatch):
        RowCodec(PartitionId(IDENTITY.topic_id, 4)).parse_producers(rows)


def test_a_crash_at_any_operation_costs_the_old_log_or_nothing() -> None:
    leader = leader_of(WatchedFiles(SimDisk(4)))
    ends = []
    for operation in range(1, 60):
        disk = SimDisk(operation)
        follower = Store(WatchedFiles(disk))
        follower.append(b"of no use", producer=(7, 0, 0))
        follower.flush()
        before = disk.operations
        disk.crash_at(operation)
        known = leader.log.producers_before(8, leader.now_ms)
        try:
            follower.log.start_over(8, now_ms=0, producers=known)
        except Crashed:
            follower.files.inner = disk.crash()
        else:
            follower.files.inner = disk.crash()
            assert disk.operations - before < operation
        follower.open()
        ends.append(follower.log.log_end_offset)
        if ends[-1] == 8:
            assert follower.log.producers.check(8, 0, 0, 1) == (6, 6), operation
            assert follower.log.producers.check(7, 0, 0, 1) == (None, None), operation
            follower.close_and_open()
            assert len(follower.log.producers) == 3
        else:
            assert ends[-1] == 1 and follower.log.producers.check(8, 0, 0, 1) is None
        assert not follower.files.inner.exists(f"{DIRECTORY}/{HANDOVER}")
    assert set(ends) == {1, 8} and ends == sorted(ends)


def test_a_full_disk_keeps_no_follower_from_starting_over_with_producers() -> None:
    disk = SimDisk(3)
    follower = Store(WatchedFiles(disk))
    fill(follower)
    follower.flush()
    disk.medium.capacity_bytes = disk.medium.used_bytes
    leader = leader_of(WatchedFiles(SimDisk(4)))
    follower.log.start_over(8, now_ms=0, producers=leader.log.producers_before(8, leader.now_ms))
    follower.kill_and_open()
    assert follower.log.producers.check(8, 0, 0, 1) == (6, 6)
