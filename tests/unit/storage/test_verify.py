"""`verify`, `dump` and reading without writing."""

from __future__ import annotations

import errno
import json

import pytest

from tests.unit.storage.conftest import DIRECTORY, IDENTITY, Store
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import LogOffline, NotFound
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.dump import dump_batches, dump_rows
from tidelog.storage.log_manager import METADATA_LOG, log_directory, stored_logs
from tidelog.storage.metainfo import NAMES
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.read_only import ReadOnlyFiles, open_read_only
from tidelog.storage.scan import BadEnd
from tidelog.storage.verify import STEP_BYTES, Step, verify


def fill(store: Store) -> None:
    """Offsets 0 to 9 in three segments, with a producer, two epochs and a mark."""
    for n in range(10):
        if n in (4, 7):
            store.log.roll(store.now_ms)
        store.epoch = 1 + n // 5
        store.append(b"value %d" % n, producer=(9, 0, n))
    store.flush()


def damage(log: PartitionLog) -> set[int]:
    return {n for step in verify(log) if step.damage for n in range(step.damage.start, step.damage.end)}


def contents(store: Store) -> dict[str, bytes]:
    return {name: store.content(f"{DIRECTORY}/{name}") for name in store.files.inner.list(DIRECTORY)}


# -- verify ------------------------------------------------------------------------------------------------------------


def test_a_sound_log_is_verified_to_its_end(store: Store) -> None:
    fill(store)
    steps = list(verify(store.log))
    assert steps[-1].next_offset == 10
    assert steps[-1].bytes_done == steps[-1].bytes_total == store.log.log_bytes
    assert [step for step in steps if step.damage or step.bad_rows] == []


def test_each_damaged_batch_and_row_is_found(store: Store) -> None:
    fill(store)
    store.close_and_open()
    store.harm_batch(1)
    store.harm_batch(8, base_offset=7)
    for slot, base in ((0, 4), (1, 4), (3, 0)):
        store.harm_row(slot, base)
    steps = list(verify(store.log))
    assert damage(store.log) == {1, 8}
    assert sum(step.bad_rows for step in steps) == 3
    assert steps[-1].next_offset == 10
    assert steps[-1].bytes_done < steps[-1].bytes_total


def test_a_lost_batch_with_its_row_and_missing_files_are_found(store: Store) -> None:
    fill(store)
    store.close_and_open()
    store.harm_batch(2)
    store.harm_row(3)
    store.log.close(10)
    for path in (store.log_path(4), store.catalog_path(4)):
        store.files.inner.remove(path)
    store.open()
    assert damage(store.log) == {2, 4, 5, 6}


def test_an_empty_log_is_sound(store: Store) -> None:
    assert list(verify(store.log)) == []


def test_a_step_is_bounded(store: Store) -> None:
    store.append(*[bytes(STEP_BYTES // 4)] * 20)
    store.flush()
    before = 0
    for step in verify(store.log):
        assert step.bytes_done - before <= STEP_BYTES
        before = step.bytes_done
        store.files.forget()
    assert before == store.log.log_bytes


def test_a_log_that_lives_on_is_verified_as_it_is_at_each_step(store: Store) -> None:
    def act(step: Step) -> None:
        if step.next_offset == 4:
            store.append(b"appended meanwhile")
            store.flush()
        if step.next_offset == 7:
            store.log.delete_records(8)
            store.flush()

    fill(store)
    reached = 0
    for step in verify(store.log):
        assert step.damage is None
        act(step)
        reached = step.next_offset
    assert reached == 10


def test_a_log_that_is_truncated_meanwhile_is_not_damaged(store: Store) -> None:
    fill(store)
    for step in verify(store.log):
        assert step.damage is None
        if step.next_offset == 4:
            store.log.truncate_to(5, high_watermark=5, now_ms=store.now_ms)


def test_verifying_writes_nothing(store: Store) -> None:
    fill(store)
    store.close_and_open()
    store.harm_batch(1)
    store.harm_row(1)
    store.files.forget()
    list(verify(store.log))
    assert set(store.files.counts) <= {"open", "pread"}


# -- reading without writing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["none", "torn", "row", "header", "metainfo", "catalog", "log", "segment"])
def test_a_log_opened_for_reading_shows_what_a_start_would_make_of_it(store: Store, harm: str) -> None:
    store.bad_end = BadEnd.KEEP  # a tool does not know whether there are other replicas
    fill(store)
    store.append(b"not committed")
    store.opened.close_all()
    if harm == "torn":
        store.overwrite(store.log_path(7), len(store.content(store.log_path(7))) - 3, b"\0\0")
    elif harm == "row":
        store.harm_row(2)
    elif harm == "header":
        store.harm_row(0, base_offset=7)
    elif harm == "metainfo":
        store.overwrite(f"{DIRECTORY}/{NAMES[0]}", 30, b"\xff")
    elif harm != "none":
        store.files.inner.remove(store.log_path(4)) if harm != "catalog" else None
        store.files.inner.remove(store.catalog_path(4)) if harm != "log" else None
    before = contents(store)
    store.files.forget()
    log, report = open_read_only(store.files, DIRECTORY, IDENTITY)
    steps = [step.next_offset for step in verify(log)]
    found = {
        batch.header.base_offset: bytes(batch.data)
        for dumped, data in dump_batches(log)
        for batch in iter_batches(data)
    }
    with pytest.raises(LogOffline):
        log.append(store.gather(b"v"), 0)
    log.close(0)
    assert contents(store) == before
    assert set(store.files.counts) <= {"open", "pread", "list"}

    store.open()
    assert found == store.read_sound()
    assert (log.log_start_offset, log.log_end_offset) == (store.log.log_start_offset, store.log.log_end_offset)
    assert log.lineage == store.log.lineage
    assert report.findings == store.report.findings
    assert steps == [step.next_offset for step in verify(store.log)]


def test_there_must_be_a_log(files: Files) -> None:
    with pytest.raises(NotFound, match="there is no log in topics/x"):
        open_read_only(files, "topics/x", IDENTITY)


def test_nothing_can_be_changed_through_read_only_files(files: Files) -> None:
    files.make_dirs("d")
    files.open("d/f", create=True).pwritev([b"content"], 0)
    guarded = ReadOnlyFiles(files)
    file, absent = guarded.open("d/f"), guarded.open("d/g", create=True)
    for change in (
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
        file.sync,
        lambda: absent.pwritev([b"x"], 0),
        lambda: guarded.make_dirs("e"),
        lambda: guarded.remove("d/f"),
        lambda: guarded.remove_tree("d"),
        lambda: guarded.rename("d/f", "d/g"),
        lambda: guarded.sync_dir("d"),
        lambda: guarded.lock("lock"),
    ):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EROFS):
            change()
    guarded.make_dirs("d")
    assert guarded.list("d") == files.list("d") == ["f"]
    assert (file.pread(100, 0), file.size()) == (b"content", 7)
    assert (absent.pread(100, 0), absent.size()) == (b"", 0)
    with pytest.raises(FileNotFoundError):
        guarded.open("d/g")
    file.close()
    absent.close()


# -- dump --------------------------------------------------------------------------------------------------------------


def test_rows_are_dumped_as_they_lie_in_the_files(store: Store) -> None:
    fill(store)
    store.log.delete_records(1)
    store.log.close(10)
    store.harm_row(2)
    dumped = list(dump_rows(store.files, DIRECTORY, IDENTITY))
    assert [" ".join(item.kind for item in dumped if item.file == f"{base:020}.catalog") for base in (0, 4, 7)] == [
        "HEADER BATCH DAMAGED BATCH BATCH SEAL",
        "HEADER LINEAGE PRODUCER BATCH BATCH BATCH SEAL",
        "HEADER LINEAGE LINEAGE PRODUCER BATCH BATCH BATCH DELETE_RECORDS MARK",
    ]
    assert dumped[1].fields["base_offset"] == 0
    assert dumped[-2].fields["log_start_offset"] == 1
    for item in dumped:
        assert json.loads(json.dumps(item.as_json()))["kind"] == item.kind
        assert str(item).startswith(f"{item.file} @{item.position} {item.kind}")


def test_batches_are_dumped_with_their_headers_and_damage_between_them(store: Store) -> None:
    fill(store)
    store.close_and_open()
    store.harm_batch(5, base_offset=4)
    dumped = list(dump_batches(store.log))
    assert [item.kind for item, _ in dumped] == ["BATCH"] * 5 + ["DAMAGE"] + ["BATCH"] * 4
    first, data = dumped[0]
    assert (first.file, first.position) == (f"{0:020}.log", 0)
    assert first.fields["record_count"] == 1
    assert first.fields["compression"] == "none"
    (batch,) = iter_batches(data)
    assert [record.value for record in decode_batch(batch)] == [b"value 0"]
    assert dumped[5][0].fields["start"] == 5
    json.dumps([item.as_json() for item, _ in dumped])


def test_the_logs_of_a_directory_are_found(files: Files) -> None:
    topic = TopicId("ab" * 16)
    for partition in (0, 2, 10):
        files.make_dirs(log_directory(PartitionId(topic, partition)))
    files.make_dirs("metadata")
    files.make_dirs(f"topics/{topic}/notes")
    assert list(stored_logs(files).values()) == [METADATA_LOG, *(PartitionId(topic, n) for n in (0, 2, 10))]
    assert list(stored_logs(files))[1] == f"topics/{topic}/0"
