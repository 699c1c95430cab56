"""A slot store by its rules: what is given back, what is written, what is noticed."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from xxhash import xxh3_128_digest

from tests.unit.storage.conftest import WatchedFiles
from tidelog.config.errors import ConfigError
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import DamagedBatch, DiskFull, InternalError, LogOffline
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.storage.dump import dump_batches, dump_rows
from tidelog.storage.loader import load_log
from tidelog.storage.log_manager import METADATA, METADATA_LOG, LogManager
from tidelog.storage.metainfo import NAMES, MetainfoStore
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings
from tidelog.storage.slot_entries import FLOOR_NUMBER
from tidelog.storage.slot_store import FACTS_BYTES_MAX, JOURNAL_SETTINGS, SlotStore, StoredSlot, StoredSlots
from tidelog.storage.verify import verify

IDENTITY = PartitionId(TopicId("0" * 32), 0)
SMALL = LogSettings(segment_bytes=2_000, segment_ms=1 << 60)


class Place:
    """One store on a disk, restartable as a process is."""

    def __init__(self, files: Files, settings: LogSettings = JOURNAL_SETTINGS) -> None:
        self.files = WatchedFiles(files)
        self.settings = settings
        self._starts = 0
        self.store: SlotStore
        self.stored: StoredSlots
        self.open()

    def open(self) -> None:
        self._starts += 1
        self.opened = OpenFiles(self.files, 16)
        self.store, self.stored = SlotStore.open(
            self.opened, "metadata", IDENTITY, self.settings, new_incarnation=f"start-{self._starts}", now_ms=5
        )

    def kill_and_open(self) -> None:
        self.opened.close_all()
        self.open()

    def close_and_open(self) -> None:
        self.store.close()
        self.open()

    def commit(self) -> None:
        commit = self.store.begin_commit()
        commit.run()
        self.store.end_commit(commit, None)

    def slots(self) -> dict[int, tuple[int, bytes | None, bool]]:
        return {slot.position: (slot.number, slot.identity, slot.is_faulty) for slot in self.stored.slots}

    def log_bytes(self) -> int:
        return self.store.journal.log_bytes

    def paths(self, suffix: str) -> list[str]:
        return [f"metadata/{name}" for name in self.files.list("metadata") if name.endswith(suffix)]

    def harm(self, path: str, find: bytes) -> None:
        """Damages some bytes of a file, found by what is there."""
        file = self.files.inner.open(path)
        content = file.pread(file.size(), 0)
        file.pwritev([b"\xff\xff"], content.rindex(find))
        file.close()

    def remove(self, path: str) -> None:
        self.files.inner.remove(path)


@pytest.fixture
def place(files: Files) -> Place:
    return Place(files)


# -- slots -------------------------------------------------------------------------------------------------------------


def test_a_new_store_is_empty(place: Place) -> None:
    assert (place.stored.facts, place.stored.floor, place.stored.slots) == (None, None, [])
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
        StoredSlot(3, 9, b"of an empty payload", is_faulty=False),
        StoredSlot(4, 65537, b"an append", is_faulty=False),
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


def test_a_put_is_visible_at_once_and_durable_after_its_commit(place: Place) -> None:
    first = place.store.put(0, 1, b"a", b"payload")
    assert place.store.payload(0) == b"payload"
    commit = place.store.begin_commit()
    second = place.store.put(1, 1, b"b", None)
    commit.run()
    place.store.end_commit(commit, None)
    assert first <= place.store.durable_end < second
    place.commit()
    assert place.store.durable_end == second
    assert not place.store.is_dirty


def test_many_puts_share_their_fsyncs(place: Place) -> None:
    place.store.put(0, 1, b"a", None)
    place.commit()
    place.files.forget()
    for position in range(100):
        place.store.put(position, 1, b"identity", b"payload")
    place.commit()
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
    place.commit()
    place.harm(place.paths(".log")[0], b"payload")
    with pytest.raises(DamagedBatch):
        place.store.payload(1)
    place.store.put(1, 5, b"identity", b"a payload")
    assert place.store.payload(1) == b"a payload"
    place.close_and_open()
    assert place.slots() == {1: (5, b"identity", False)}
    assert place.store.payload(1) == b"a payload"


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_damaged_payload_makes_its_slot_faulty(place: Place) -> None:
    place.store.put(1, 5, b"identity", b"a payload")
    place.store.put(2, 5, b"another", b"sound")
    place.store.close()
    place.harm(place.paths(".log")[0], b"payload")
    place.open()
    assert place.slots() == {1: (5, b"identity", True), 2: (5, b"another", False)}
    assert not place.stored.is_amnesiac
    with pytest.raises(DamagedBatch):
        place.store.payload(1)


def test_a_damaged_identity_leaves_position_and_number(place: Place) -> None:
    place.store.put(1, 5, b"identity", b"payload")
    place.store.put(2, 6, b"another", None)
    place.store.close()
    place.harm(place.paths(".log")[0], b"identity")
    place.open()
    assert place.slots() == {1: (5, None, True), 2: (6, b"another", False)}
    assert not place.stored.is_amnesiac


def test_a_damaged_entry_does_not_bring_back_what_it_replaced(place: Place) -> None:
    place.store.put(1, 5, b"older", b"payload")
    place.store.put(1, 6, b"newer", b"another")
    place.store.close()
    place.harm(place.paths(".log")[0], b"newer")
    place.open()
    assert place.slots() == {1: (6, None, True)}


def test_of_a_slot_stored_twice_under_one_number_the_first_is_good_enough(place: Place) -> None:
    """What is accepted is stored again when it is learned, and that is not durable at once."""
    place.store.put(1, 5, b"accepted", b"payload")
    place.store.put(1, 5, b"learned", b"payload")
    place.store.close()
    place.harm(place.paths(".log")[0], b"learned")
    place.open()
    assert place.slots() == {1: (5, b"accepted", False)}
    assert place.store.payload(1) == b"payload"
    place.store.put(1, 5, b"learned", b"payload")
    place.close_and_open()
    assert place.slots() == {1: (5, b"learned", False)}


def test_damage_to_what_was_replaced_does_not_matter(place: Place) -> None:
    place.store.put(1, 5, b"older", b"payload")
    place.store.put(1, 6, b"newer", b"another")
    place.store.close()
    place.harm(place.paths(".log")[0], b"older")
    place.open()
    assert place.slots() == {1: (6, b"newer", False)}


def test_a_damaged_floor_is_amnesia_unless_a_newer_one_is_there(place: Place) -> None:
    place.store.set_floor(1, b"older floor")
    place.store.set_floor(2, b"newer floor")
    place.store.close()
    place.harm(place.paths(".log")[0], b"older floor")
    place.open()
    assert place.stored.floor == (2, b"newer floor")
    assert not place.stored.is_amnesiac
    place.store.close()
    place.harm(place.paths(".log")[0], b"newer floor")
    place.open()
    assert place.stored.is_amnesiac
    assert "floor at position 2" in place.stored.report.findings[-1]


def test_a_journal_that_is_missing_is_amnesia_also_if_it_was_empty(place: Place) -> None:
    place.store.store_facts(b"promised")()
    place.opened.close_all()
    for path in place.paths(".log") + place.paths(".catalog"):
        place.remove(path)
    for _ in range(2):
        place.kill_and_open()
        assert place.stored.is_amnesiac
        assert place.stored.facts == b"promised"


@pytest.mark.parametrize("has_entries", [True, False])
def test_lost_facts_are_amnesia_and_nothing_is_written_over_them(place: Place, *, has_entries: bool) -> None:
    place.store.store_facts(b"promised")()
    if has_entries:
        place.store.put(0, 1, b"identity", None)
        place.commit()
    place.opened.close_all()
    for name in NAMES:
        place.harm(f"metadata/{name}", b"incarnation")
    for _ in range(2):
        place.files.forget()
        place.kill_and_open()
        assert place.stored.is_amnesiac
        assert place.stored.facts is None
        assert place.files.counts["pwritev"] == place.files.counts["remove"] == 0
        with pytest.raises(LogOffline, match="metainfo"):
            place.store.put(1, 1, b"identity", None)


def test_lost_facts_of_a_journal_with_entries_are_amnesia_if_the_files_are_gone(place: Place) -> None:
    place.store.put(0, 1, b"identity", None)
    place.store.close()
    for name in NAMES:
        place.remove(f"metadata/{name}")
    place.open()
    assert place.stored.is_amnesiac


def test_an_empty_directory_is_a_new_store(place: Place) -> None:
    place.store.put(0, 1, b"identity", None)
    place.store.close()
    place.files.inner.remove_tree("metadata")
    place.open()
    assert not place.stored.is_amnesiac
    assert place.stored.slots == []
    assert place.store.incarnation == "start-2"


def test_a_last_segment_that_is_missing_is_noticed_after_a_kill(files: Files) -> None:
    """Its first commit has noted it; a seal alone does not say that something followed."""
    place = Place(files, SMALL)
    for position in range(3):
        place.store.put(position, 1, b"identity", bytes(2_500))
        place.commit()
    place.opened.close_all()
    assert len(place.paths(".log")) == 3
    place.remove(place.paths(".log")[-1])
    place.remove(place.paths(".catalog")[-1])
    place.open()
    assert place.stored.is_amnesiac


def test_a_log_of_records_is_refused(files: Files) -> None:
    log, _ = load_log(OpenFiles(files, 16), "metadata", IDENTITY, SMALL, new_incarnation="x", now_ms=0)
    log.append(split_batches(encode_batch([(1, None, b"record")], leader_epoch=0), batch_bytes_max=1000), 0)
    log.close(0)
    with pytest.raises(ConfigError, match="slot store"):
        Place(files)


# -- facts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [b"\0", bytes(range(256)) * 8])
def test_facts_are_given_back(place: Place, facts: bytes) -> None:
    place.store.store_facts(b"older")()
    place.store.store_facts(facts)()
    for _ in range(2):
        place.close_and_open()
        assert place.stored.facts == facts
    assert len(facts) <= FACTS_BYTES_MAX


@pytest.mark.parametrize("name", NAMES)
def test_one_copy_of_the_facts_is_enough(place: Place, name: str) -> None:
    place.store.store_facts(b"facts")()
    place.opened.close_all()
    place.harm(f"metadata/{name}", b"incarnation")
    place.open()
    assert place.stored.facts == b"facts"
    assert not place.stored.is_amnesiac


def test_facts_do_nothing_before_they_are_run(place: Place) -> None:
    store = place.store.store_facts(b"facts")
    place.kill_and_open()
    assert place.stored.facts is None
    store()
    place.kill_and_open()
    assert place.stored.facts == b"facts"


def test_a_commit_that_notes_a_new_segment_keeps_facts_that_were_stored_meanwhile(files: Files) -> None:
    place = Place(files, SMALL)
    place.store.put(0, 1, b"identity", bytes(2_500))
    place.commit()
    place.store.put(1, 1, b"identity", None)
    commit = place.store.begin_commit()
    place.store.store_facts(b"facts")()
    commit.run()
    place.store.end_commit(commit, None)
    place.kill_and_open()
    assert place.stored.facts == b"facts"


# -- floor and space ---------------------------------------------------------------------------------------------------


def test_slots_below_the_floor_are_not_given_back(place: Place) -> None:
    for position in range(5):
        place.store.put(position, 1, b"identity", None)
    place.store.set_floor(3, b"the floor")
    place.close_and_open()
    assert place.stored.floor == (3, b"the floor")
    assert sorted(place.slots()) == [3, 4]


def test_space_is_given_back_once_the_deletion_is_durable(files: Files) -> None:
    place = Place(files, SMALL)
    for position in range(20):
        place.store.put(position, 1, b"identity", bytes(1_500))
    place.store.set_floor(18, b"the floor")
    place.commit()
    place.store.delete_below(18)
    assert len(place.paths(".log")) > 5, "the order is not durable yet"
    place.commit()
    assert len(place.paths(".log")) <= 3
    assert place.log_bytes() < 6_000
    place.close_and_open()
    assert sorted(place.slots()) == [18, 19]
    assert place.stored.floor == (18, b"the floor")


def scattered(files: Files) -> Place:
    """Segments that are nearly all dead but for a slot each: whole, learned, faulty, without payload; and the floor."""
    place = Place(files, SMALL)
    for position in range(100, 104):
        place.store.put(position, 1, b"identity %d" % position, b"payload %d" % position if position < 102 else None)
        place.store.put(position - 100, 1, b"dead", bytes(2_500))
    place.store.put(101, 2, b"learned", b"payload 101")
    place.store.put(103, 2, b"to come", None, digest=b"digest")
    place.store.set_floor(50, b"the floor")
    for _ in range(4):
        place.store.put(60, 1, b"replaced", bytes(2_500))
    place.store.put(60, 1, b"last", None)
    place.commit()
    return place


def test_what_lives_in_old_segments_is_moved(files: Files) -> None:
    place = scattered(files)
    place.store.delete_below(50)
    start = place.store.journal.log_start_offset
    place.commit()
    assert place.store.journal.log_start_offset > start + 10, "only after the moved slots are durable"
    place.commit()
    assert len(place.paths(".log")) == 1
    expected = {
        60: (1, b"last", False),
        100: (1, b"identity 100", False),
        101: (2, b"learned", False),
        102: (1, b"identity 102", False),
        103: (2, b"to come", True),
    }
    for _ in range(2):
        assert (place.store.payload(100), place.store.payload(101)) == (b"payload 100", b"payload 101")
        place.kill_and_open()
        assert (place.slots(), place.stored.floor) == (expected, (50, b"the floor"))


def test_what_is_damaged_is_moved_as_far_as_it_is_known(files: Files) -> None:
    place = scattered(files)
    place.harm(place.paths(".log")[0], b"payload 100")
    place.harm(place.paths(".log")[2], b"identity 102")
    place.store.delete_below(50)
    place.commit()
    place.commit()
    with pytest.raises(DamagedBatch):
        place.store.payload(100)
    place.kill_and_open()
    assert len(place.paths(".log")) == 1
    assert place.slots()[100] == (1, b"identity 100", True)
    assert place.slots()[102] == (1, None, True)
    assert not place.stored.is_amnesiac


def test_segments_that_are_mostly_alive_stay(files: Files) -> None:
    place = Place(files, SMALL)
    for position in range(10):
        place.store.put(position, 1, b"identity", bytes(1_500))
    place.store.set_floor(0, b"the floor")
    place.commit()
    size = place.log_bytes()
    place.store.delete_below(0)
    assert place.log_bytes() == size
    assert not place.store.is_dirty


def test_a_full_disk_costs_no_slot(files: Files) -> None:
    place = scattered(files)
    place.files.fails = lambda kind, path: errno.ENOSPC if kind == "pwritev" else 0
    with pytest.raises(DiskFull):
        place.store.put(200, 1, b"identity", None)
    place.store.delete_below(50)
    assert len(place.paths(".log")) > 5
    place.files.fails = lambda kind, path: 0
    place.kill_and_open()
    assert sorted(place.slots()) == [60, 100, 101, 102, 103]
    place.store.delete_below(50)
    place.commit()
    place.commit()
    assert len(place.paths(".log")) == 1
    place.kill_and_open()
    assert sorted(place.slots()) == [60, 100, 101, 102, 103]


# -- the disk fails ----------------------------------------------------------------------------------------------------


def test_a_failed_fsync_is_final(place: Place) -> None:
    place.store.put(0, 1, b"identity", b"payload")
    commit = place.store.begin_commit()
    place.store.end_commit(commit, OSError(errno.EIO, "EIO"))
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
    """A put runs out of space while a commit is under way, and cutting it off again fails: the kernel has let go of
    pages that the commit's own fsyncs say yes to."""
    before = MetainfoStore(place.files, "metadata", IDENTITY).load()
    place.store.put(0, 1, b"identity", b"payload")
    commit = place.store.begin_commit()
    place.files.fails = lambda kind, path: {"pwritev": errno.ENOSPC, "sync": errno.EIO}.get(kind, 0)
    with pytest.raises(InternalError):
        place.store.put(1, 1, b"identity", b"payload")
    place.files.fails = lambda kind, path: 0
    commit.run()
    place.store.end_commit(commit, None)
    assert place.store.durable_end == 0
    assert MetainfoStore(place.files, "metadata", IDENTITY).load() == before


# -- tools -------------------------------------------------------------------------------------------------------------


def test_a_manager_opens_and_closes_it(files: Files) -> None:
    for start in range(2):
        manager = LogManager(files, open_max=16, new_incarnation=lambda: "drawn")
        store, stored = manager.open_slots(5)
        assert len(stored.slots) == start
        store.put(0, 1, b"identity", b"payload")
        store.store_facts(b"facts")()
        assert manager.logs[METADATA_LOG] is store.journal
        assert manager.close({}) == []
    assert files.exists(f"{METADATA}/{NAMES[0]}")


def test_it_verifies_as_a_log(place: Place) -> None:
    for position in range(50):
        place.store.put(position, 1, b"identity", b"payload %d" % position)
    place.commit()
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
