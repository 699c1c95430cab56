"""A slot store by its rules: what is given back, what is written."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from xxhash import xxh3_128_digest

from tests.unit.storage.slot_place import IDENTITY, SMALL, Place
from tidelog.config.errors import ConfigError
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import DamagedBatch, InternalError, LogOffline
from tidelog.model.ports import Files
from tidelog.storage.dump import dump_batches, dump_rows
from tidelog.storage.loader import load_log
from tidelog.storage.log_manager import METADATA, METADATA_LOG, LogManager
from tidelog.storage.metainfo import NAMES, MetainfoStore
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.slot_entries import FLOOR_NUMBER
from tidelog.storage.slot_store import METAINFO_BYTES_MAX, StoredSlot
from tidelog.storage.verify import verify


@pytest.fixture
def place(files: Files) -> Place:
    return Place(files)


# -- slots -------------------------------------------------------------------------------------------------------------


def test_a_new_store_is_empty(place: Place) -> None:
    assert (place.stored.metainfo, place.stored.floor, place.stored.slots) == (None, None, [])
    assert not place.stored.is_amnesiac
    assert place.store.incarnation == "start-1"


@pytest.mark.parametrize("end", [Place.close_and_open, Place.kill_and_open])
def test_what_was_put_is_given_back(place: Place, end: Callable[[Place], None]) -> None:
    place.store.put(4, 65537, b"an append", b"payload")
    place.store.put(2, 65538, b"a nop", None)
    place.store.put(3, 9, b"of an empty payload", b"")
    end(place)
    assert place.stored.slots == [
        StoredSlot(2, 65538, b"a nop", is_faulty=False),
        StoredSlot(3, 9, b"of an empty payload", is_faulty=False, digest=xxh3_128_digest(b"")),
        StoredSlot(4, 65537, b"an append", is_faulty=False, digest=xxh3_128_digest(b"payload")),
    ]
    assert (place.store.payload(4), place.store.payload(3)) == (b"payload", b"")
    assert place.store.incarnation == "start-1"
    assert place.stored.report.findings == []


def test_a_later_put_replaces_an_earlier_one(place: Place) -> None:
    place.store.put(1, 5, b"first", b"one")
    place.store.put(1, 6, b"second", b"two")
    assert place.store.payload(1) == b"two"
    place.close_and_open()
    assert place.slots() == {1: (6, b"second", False)}
    assert place.store.payload(1) == b"two"


def test_a_put_is_visible_at_once_and_durable_after_its_flush(place: Place) -> None:
    first = place.store.put(0, 1, b"a", b"payload")
    assert place.store.payload(0) == b"payload"
    flush = place.store.begin_flush()
    second = place.store.put(1, 1, b"b", None)
    flush.run()
    place.store.end_flush(flush, None)
    assert first <= place.store.durable_end < second
    place.flush()
    assert place.store.durable_end == second
    assert not place.store.is_dirty


def test_many_puts_share_their_fsyncs(place: Place) -> None:
    place.store.put(0, 1, b"a", None)
    place.flush()
    place.files.forget()
    for position in range(100):
        place.store.put(position, 1, b"identity", b"payload")
    place.flush()
    assert place.files.counts["sync"] == 2


# -- payloads ----------------------------------------------------------------------------------------------------------


def test_a_payload_that_is_stored_is_not_written_again(place: Place) -> None:
    payload = bytes(10_000)
    place.store.put(1, 5, b"accepted", payload)
    size = place.log_bytes()
    place.store.put(1, 5, b"learned", payload)
    assert place.log_bytes() < size + 500
    place.close_and_open()
    assert place.slots() == {1: (5, b"learned", False)}
    assert place.store.payload(1) == payload


def test_a_digest_stands_for_the_payload_that_is_stored(place: Place) -> None:
    place.store.put(1, 5, b"accepted", b"payload", digest=b"digest")
    assert place.store.has_payload(1, b"digest")
    assert not place.store.has_payload(2, b"digest")
    place.store.put(1, 6, b"learned", None, digest=b"digest")
    place.close_and_open()
    assert place.slots() == {1: (6, b"learned", False)}
    assert place.store.payload(1) == b"payload"


def test_a_value_that_comes_back_finds_its_payload(place: Place) -> None:
    place.store.put(1, 5, b"first", b"one", digest=b"1")
    place.store.put(1, 6, b"second", b"two", digest=b"2")
    place.kill_and_open()
    assert (place.store.payload(1, b"1"), place.store.payload(1, b"2")) == (b"one", b"two")
    place.store.put(1, 7, b"first again", None, digest=b"1")
    assert place.store.payload(1) == b"one"
    place.kill_and_open()
    assert place.slots() == {1: (7, b"first again", False)}
    assert place.store.payload(1) == b"one"


def test_a_slot_without_its_payload_is_faulty_until_it_comes(place: Place) -> None:
    place.store.put(1, 5, b"identity", None, digest=b"digest")
    with pytest.raises(DamagedBatch):
        place.store.payload(1)
    place.close_and_open()
    assert place.slots() == {1: (5, b"identity", True)}
    place.store.put(1, 5, b"identity", b"payload", digest=b"digest")
    place.close_and_open()
    assert place.slots() == {1: (5, b"identity", False)}
    assert place.store.payload(1) == b"payload"


def test_a_payload_that_turns_out_damaged_is_written_again_when_it_comes(place: Place) -> None:
    place.store.put(1, 5, b"identity", b"a payload")
    place.flush()
    place.harm(place.paths(".log")[0], b"payload")
    with pytest.raises(DamagedBatch):
        place.store.payload(1)
    place.store.put(1, 5, b"identity", b"a payload")
    assert place.store.payload(1) == b"a payload"
    place.close_and_open()
    assert place.slots() == {1: (5, b"identity", False)}
    assert place.store.payload(1) == b"a payload"


# -- metainfo ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metainfo", [b"\0", bytes(range(256)) * 8])
def test_metainfo_is_given_back(place: Place, metainfo: bytes) -> None:
    place.store.store_metainfo(b"older")()
    place.store.store_metainfo(metainfo)()
    for _ in range(2):
        place.close_and_open()
        assert place.stored.metainfo == metainfo
    assert len(metainfo) <= METAINFO_BYTES_MAX


@pytest.mark.parametrize("name", NAMES)
def test_one_copy_of_the_metainfo_is_enough(place: Place, name: str) -> None:
    place.store.store_metainfo(b"metainfo")()
    place.opened.close_all()
    place.harm(f"metadata/{name}", b"incarnation")
    place.open()
    assert place.stored.metainfo == b"metainfo"
    assert not place.stored.is_amnesiac


def test_storing_metainfo_does_nothing_before_it_is_run(place: Place) -> None:
    store = place.store.store_metainfo(b"metainfo")
    place.kill_and_open()
    assert place.stored.metainfo is None
    store()
    place.kill_and_open()
    assert place.stored.metainfo == b"metainfo"


def test_a_flush_that_notes_a_new_segment_keeps_metainfo_that_was_stored_meanwhile(files: Files) -> None:
    place = Place(files, SMALL)
    place.store.put(0, 1, b"identity", bytes(2_500))
    place.flush()
    place.store.put(1, 1, b"identity", None)
    flush = place.store.begin_flush()
    place.store.store_metainfo(b"metainfo")()
    flush.run()
    place.store.end_flush(flush, None)
    place.kill_and_open()
    assert place.stored.metainfo == b"metainfo"


# -- the disk fails ----------------------------------------------------------------------------------------------------


def test_a_failed_fsync_is_final(place: Place) -> None:
    place.store.put(0, 1, b"identity", b"payload")
    flush = place.store.begin_flush()
    place.store.end_flush(flush, OSError(errno.EIO, "EIO"))
    assert place.store.offline_reason is not None
    assert not place.store.is_dirty
    with pytest.raises(LogOffline):
        place.store.put(1, 1, b"identity", None)


def test_a_failed_write_leaves_the_slot_as_it_was_told(place: Place) -> None:
    place.store.put(0, 1, b"identity", b"payload")
    place.files.fails = lambda kind, path: errno.EIO if kind == "pwritev" else 0
    with pytest.raises(InternalError):
        place.store.put(0, 2, b"another", b"other")
    assert place.store.payload(0) == b"payload"


def test_fsyncs_after_a_failed_one_are_not_believed(place: Place) -> None:
    """A put runs out of space while a flush is under way, and cutting it off again fails: the kernel has let go of
    pages that the flush's own fsyncs say yes to."""
    before = MetainfoStore(place.files, "metadata", IDENTITY).load()
    place.store.put(0, 1, b"identity", b"payload")
    flush = place.store.begin_flush()
    place.files.fails = lambda kind, path: {"pwritev": errno.ENOSPC, "sync": errno.EIO}.get(kind, 0)
    with pytest.raises(InternalError):
        place.store.put(1, 1, b"identity", b"payload")
    place.files.fails = lambda kind, path: 0
    flush.run()
    place.store.end_flush(flush, None)
    assert place.store.durable_end == 0
    assert MetainfoStore(place.files, "metadata", IDENTITY).load() == before


# -- tools -------------------------------------------------------------------------------------------------------------


def test_a_manager_opens_and_closes_it(files: Files) -> None:
    for start in range(2):
        manager = LogManager(files, open_max=16, new_incarnation=lambda: "drawn")
        store, stored = manager.open_slots(5)
        assert len(stored.slots) == start
        store.put(0, 1, b"identity", b"payload")
        store.store_metainfo(b"metainfo")()
        assert manager.logs[METADATA_LOG] is store.journal
        assert manager.close({}) == []
    assert files.exists(f"{METADATA}/{NAMES[0]}")


def test_it_verifies_as_a_log(place: Place) -> None:
    for position in range(50):
        place.store.put(position, 1, b"identity", b"payload %d" % position)
    place.flush()
    assert not any(step.damage or step.bad_rows for step in verify(place.store.journal))
    place.harm(place.paths(".log")[0], b"payload 7")
    assert [step.damage.start for step in verify(place.store.journal) if step.damage] == [7]


def test_it_is_dumped_with_what_its_entries_say(place: Place) -> None:
    records = bytes(encode_batch([(1, None, b"of the metadata log")]))
    place.store.put(3, 65537, b"\1\2", records)
    place.store.put(3, 65537, b"\3\4", records)
    place.store.put(4, 65538, b"\5", b"no batch")
    place.store.set_floor(3, b"\6")
    found = list(dump_batches(place.store.journal))
    digest = xxh3_128_digest(records).hex()
    assert [(dumped.kind, dumped.fields) for dumped, _ in found] == [
        (
            "SLOT",
            {
                "base_offset": 0, "position": 3, "number": 65537, "identity": "0102", "payload_digest": digest,
                "payload_bytes": len(records),
            },
        ),
        ("REFERENCE", {"base_offset": 1, "position": 3, "number": 65537, "identity": "0304", "payload_digest": digest}),
        (
            "SLOT",
            {
                "base_offset": 2, "position": 4, "number": 65538, "identity": "05",
                "payload_digest": xxh3_128_digest(b"no batch").hex(), "payload_bytes": 8,
            },
        ),
        ("FLOOR", {"base_offset": 3, "position": 3, "floor": "06"}),
    ]  # fmt: skip
    assert [data for _, data in found] == [records, b"", b"no batch", b""]
    rows = [dumped.fields for dumped in dump_rows(place.files, "metadata", IDENTITY) if dumped.kind == "BATCH"]
    assert [(fields["position"], fields["number"]) for fields in rows] == [
        (3, 65537), (3, 65537), (4, 65538), (3, FLOOR_NUMBER),
    ]  # fmt: skip


def test_a_log_of_records_is_refused(files: Files) -> None:
    log, _ = load_log(OpenFiles(files, 16), "metadata", IDENTITY, SMALL, new_incarnation="x", now_ms=0)
    log.append(split_batches(encode_batch([(1, None, b"record")], leader_epoch=0), batch_bytes_max=1000), 0)
    log.close(0)
    with pytest.raises(ConfigError, match="slot store"):
        Place(files)
