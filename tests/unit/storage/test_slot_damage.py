"""A slot store of which something is damaged or missing: what it knows of its slots, and when it has forgotten."""

from __future__ import annotations

import pytest

from tests.unit.storage.slot_place import SMALL, Place
from tidelog.model.errors import DamagedBatch, LogOffline
from tidelog.model.ports import Files
from tidelog.storage.metainfo import NAMES
from tidelog.storage.rows import ROW_BYTES
from tidelog.storage.scan import BadEnd


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
        place.flush()
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


def test_of_the_last_entry_position_and_number_are_left_where_its_head_has_rotted(place: Place) -> None:
    kept_end(place, b"last", b"other")
    place.harm(place.paths(".log")[0], b"last")
    place.kill_and_open()
    assert place.slots()[3] == (7, b"other", False)
    assert place.slots()[2] == (7, None, True)


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
        file.pwritev([b"\xff\xff"], file.size() - 2 * ROW_BYTES + 40)
        file.close()
    for _ in range(2):
        place.kill_and_open()
        assert place.slots() == {1: (3, b"first", False), 2: (7, b"last", False)}
        assert not place.stored.is_amnesiac
