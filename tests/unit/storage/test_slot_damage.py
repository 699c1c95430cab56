"""A slot store of which something is damaged or missing: what it knows of its slots, and when it has forgotten."""

from __future__ import annotations

import pytest
from xxhash import xxh3_128_digest

from tests.unit.storage.slot_place import IDENTITY, SMALL, Place
from tidelog.model.errors import DamagedBatch, LogOffline
from tidelog.model.ports import Files
from tidelog.storage.metainfo import NAMES
from tidelog.storage.rows import ROW_BYTES, Kind, RowCodec, Tail, name_of
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_entries import EntryKind, Head, name_for, named_head


@pytest.fixture
def place(files: Files) -> Place:
    return Place(files)


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


@pytest.mark.parametrize("has_name", [False, True])
def test_a_damaged_identity_leaves_its_name_or_position_and_number(place: Place, *, has_name: bool) -> None:
    place.store.put(1, 5, b"identity", b"payload")
    place.store.put(2, 6, b"another", None)
    place.store.close()
    place.harm(place.paths(".log")[0], b"identity")
    if not has_name:
        place.harm(place.paths(".catalog")[0], b"identi")
    place.open()
    assert place.slots() == {1: (5, b"identity" if has_name else None, True), 2: (6, b"another", False)}
    assert not place.stored.is_amnesiac


def test_a_damaged_entry_does_not_bring_back_what_it_replaced(place: Place) -> None:
    place.store.put(1, 5, b"older", b"payload")
    place.store.put(1, 6, b"newer", b"another")
    place.store.close()
    place.harm(place.paths(".log")[0], b"newer")
    place.open()
    assert place.slots() == {1: (6, b"newer", True)}


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


def test_an_entry_counts_as_rewritten_when_its_slot_is_whole_behind_it_or_below_the_floor(place: Place) -> None:
    first = place.store.put(1, 5, b"below", b"payload") - 1
    floors = [place.store.set_floor(2, b"older floor") - 1, place.store.set_floor(2, b"newer floor") - 1]
    again = [place.store.put(2, number, b"again", b"payload %d" % number) - 1 for number in (5, 6)]
    place.store.close()
    for lost in (b"below", b"older floor", b"payload 5", b"payload 6"):
        place.harm(place.paths(".log")[0], lost)
    place.open()
    is_rewritten = [place.store.is_rewritten(at, at + 1) for at in (first, *floors, *again)]
    assert is_rewritten == [True, True, False, False, False], "the newest of slot 2 is faulty"
    assert not place.store.is_rewritten(first, floors[-1] + 1)


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
    place.store.store_metainfo(b"promised")()
    place.opened.close_all()
    for path in place.paths(".log") + place.paths(".catalog"):
        place.remove(path)
    for _ in range(2):
        place.kill_and_open()
        assert place.stored.is_amnesiac
        assert place.stored.metainfo == b"promised"


@pytest.mark.parametrize("has_entries", [True, False])
def test_lost_metainfo_is_amnesia_and_nothing_is_written_over_it(place: Place, *, has_entries: bool) -> None:
    place.store.store_metainfo(b"promised")()
    if has_entries:
        place.store.put(0, 1, b"identity", None)
        place.flush()
    place.opened.close_all()
    for name in NAMES:
        place.harm(f"metadata/{name}", b"incarnation")
    for _ in range(2):
        place.files.forget()
        place.kill_and_open()
        assert place.stored.is_amnesiac
        assert place.stored.metainfo is None
        assert place.files.counts["pwritev"] == place.files.counts["remove"] == 0
        with pytest.raises(LogOffline, match="metainfo"):
            place.store.put(1, 1, b"identity", None)


def test_lost_metainfo_of_a_journal_with_entries_is_amnesia_if_the_files_are_gone(place: Place) -> None:
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
    """Its first flush has noted it; a seal alone does not say that something followed."""
    place = Place(files, SMALL)
    for position in range(3):
        place.store.put(position, 1, b"identity", bytes(2_500))
        place.flush()
    place.opened.close_all()
    assert len(place.paths(".log")) == 3
    place.remove(place.paths(".log")[-1])
    place.remove(place.paths(".catalog")[-1])
    place.open()
    assert place.stored.is_amnesiac


# -- the end of a journal, where no mark says what was durable ---------------------------------------------------------


def kept_end(place: Place, *values: bytes) -> None:
    """A slot that a mark protects, and one for each of these values, durable, behind it; all in a store that keeps what
    has a sound row."""
    place.bad_end = BadEnd.KEEP
    place.store.put(1, 3, b"first", b"payload")
    place.flush()
    place.store.mark()
    for position, value in enumerate(values, 2):
        place.store.put(position, 7, value, b"payload %d" % position)
    place.flush()


def test_the_last_entry_that_rots_is_a_faulty_slot(place: Place) -> None:
    kept_end(place, b"last")
    place.harm(place.paths(".log")[0], b"payload 2")
    for _ in range(2):
        place.kill_and_open()
        assert place.slots() == {1: (3, b"first", False), 2: (7, b"last", True)}
        assert not place.stored.is_amnesiac
    place.store.put(2, 8, b"newer", b"another")
    place.flush()
    place.kill_and_open()
    assert place.slots()[2] == (8, b"newer", False)


def test_the_last_entry_is_known_by_name_where_its_head_has_rotted(place: Place) -> None:
    kept_end(place, b"last", b"other")
    place.harm(place.paths(".log")[0], b"last")
    for _ in range(2):
        place.kill_and_open()
        assert place.slots()[3] == (7, b"other", False)
        assert place.slots()[2] == (7, b"last", True)
        assert place.stored.slots[1].digest == xxh3_128_digest(b"payload 2")


def test_an_entry_without_payload_loses_nothing_with_its_head(place: Place) -> None:
    kept_end(place, b"last")
    place.store.put(3, 8, b"a barrier", None)
    place.flush()
    place.harm(place.paths(".log")[0], b"a barrier")
    place.kill_and_open()
    assert place.slots()[3] == (8, b"a barrier", False)


def test_a_name_goes_with_an_entry_that_is_moved(files: Files) -> None:
    place = Place(files, SMALL)
    place.bad_end = BadEnd.KEEP
    place.store.put(9, 3, b"moved", b"small")
    for position in range(12):
        place.store.put(position if position < 9 else position + 1, 3, b"identity", bytes(900))
    place.flush()
    place.store.set_floor(9, b"floor")
    place.flush()
    place.store.delete_below(9)
    place.flush()
    place.flush()
    path = place.paths(".log")[-1]
    assert len(place.paths(".log")[0]) and place.store.journal.log_start_offset > 0
    place.harm(path, b"moved")
    place.kill_and_open()
    assert place.slots()[9] == (3, b"moved", True)


def test_position_and_number_are_left_of_an_entry_that_has_lost_its_name_as_well(place: Place) -> None:
    kept_end(place, b"last", b"other")
    place.store.mark()
    place.harm(place.paths(".log")[0], b"last")
    place.harm(place.paths(".catalog")[0], b"last")
    place.kill_and_open()
    assert place.slots()[2] == (7, None, True)
    assert place.slots()[3] == (7, b"other", False)


@pytest.mark.parametrize("damaged", [(0,), (2,), (4,), (2, 3), (1, 2), (3, 4), (1, 2, 3, 4), (0, 1, 2, 3, 4, 5)])
def test_a_damaged_name_is_made_again_from_its_entry(place: Place, damaged: tuple[int, ...]) -> None:
    values = [b"first", b"second", b"third"]
    for position, value in enumerate(values):
        place.store.put(position, 7, value, b"payload of it")
    place.flush()
    catalog, body = place.paths(".catalog")[0], place.store.journal.active.body_slot
    for slot in damaged:
        file = place.files.inner.open(catalog)
        file.pwritev([b"\xff\xff"], (body + slot) * ROW_BYTES + 50)
        file.close()
    place.store.journal.mend(0)
    for value in values:
        place.harm(place.paths(".log")[0], value)
    place.bad_end = BadEnd.KEEP
    place.kill_and_open()
    assert place.slots() == {position: (7, value, True) for position, value in enumerate(values)}


def test_the_names_that_are_made_again_are_those_of_values(place: Place) -> None:
    """The second entry under one number, which says that a value is chosen, has no name."""
    place.store.put(1, 7, b"accepted", b"payload")
    place.store.put(1, 7, b"learned", b"payload")
    place.store.put(2, 7, b"other", b"another")
    place.flush()
    catalog, body = place.paths(".catalog")[0], place.store.journal.active.body_slot
    before = list(place.store.journal.active.rows(body))
    file = place.files.inner.open(catalog)
    for slot in range(2, 4):
        file.pwritev([b"\xff\xff"], (body + slot) * ROW_BYTES + 50)
    file.close()
    assert [row is None for row in place.store.journal.active.rows(body)] == [False, False, True, True, False]
    place.store.journal.mend(0)
    made = list(place.store.journal.active.rows(body))
    assert None not in before
    assert [row and row._replace(durable=0) for row in made] == [row and row._replace(durable=0) for row in before]


def test_an_entry_at_the_end_that_a_power_cut_tore_with_its_name_ends_the_journal(place: Place) -> None:
    kept_end(place, b"last")
    place.harm(place.paths(".log")[0], b"last")
    place.harm(place.paths(".catalog")[0], b"last")
    place.kill_and_open()
    assert place.slots() == {1: (3, b"first", False)}
    assert not place.stored.is_amnesiac


def test_what_is_too_long_for_a_row_has_no_name(place: Place) -> None:
    place.bad_end = BadEnd.KEEP
    place.store.put(2, 7, b"long".ljust(39, b"."), b"payload")
    place.flush()
    place.harm(place.paths(".log")[0], b"long")
    place.kill_and_open()
    assert place.slots() == {2: (7, None, True)}


@pytest.mark.parametrize("digest_bytes", [0, 16])
def test_a_name_says_what_the_head_says(digest_bytes: int) -> None:
    codec = RowCodec(IDENTITY)
    head = Head(EntryKind.REFERENCE, 5, 7, bytes(range(1, digest_bytes + 1)), bytes(38))
    row = codec.body(codec.name(Tail(1, 1, 0, 9, 100, -1, 0), name_for(head)))
    assert row is not None
    assert (row.first_offset, row.next_offset, row.end_position, row.kind) == (9, 9, 100, Kind.NAME)
    assert named_head(name_of(row), 5, 7) == head


@pytest.mark.parametrize("is_floor", [False, True])
def test_what_has_no_sound_row_ends_the_journal_and_is_no_amnesia(place: Place, *, is_floor: bool) -> None:
    """A power cut has torn a write of several entries; or a floor, which nobody could give again."""
    kept_end(place, b"last")
    if is_floor:
        place.store.set_floor(1, b"floor content")
    else:
        place.store.put(3, 7, b"torn", b"floor content")
    place.store.put(4, 7, b"behind", b"payload of behind")
    place.flush()
    place.harm(place.paths(".log")[0], b"floor content")
    if not is_floor:
        catalog = place.paths(".catalog")[0]
        file = place.files.inner.open(catalog)
        file.pwritev([b"\xff\xff"], file.size() - 3 * ROW_BYTES + 40)
        file.close()
    for _ in range(2):
        place.kill_and_open()
        assert place.slots() == {1: (3, b"first", False), 2: (7, b"last", False)}
        assert not place.stored.is_amnesiac
