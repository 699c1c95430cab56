"""A slot store gives space back: below its floor, and where segments are mostly dead."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.slot_place import SMALL, Place
from tidelog.model.errors import DamagedBatch, DiskFull
from tidelog.model.ports import Files


def test_slots_below_the_floor_are_not_given_back(files: Files) -> None:
    place = Place(files)
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
    place.flush()
    place.store.delete_below(18)
    assert len(place.paths(".log")) > 5, "the order is not durable yet"
    place.flush()
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
    place.flush()
    return place


def test_what_lives_in_old_segments_is_moved(files: Files) -> None:
    place = scattered(files)
    place.store.delete_below(50)
    start = place.store.journal.log_start_offset
    place.flush()
    assert place.store.journal.log_start_offset > start + 10, "only after the moved slots are durable"
    place.flush()
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
    place.harm(place.paths(".catalog")[2], b"identity 102")
    place.store.delete_below(50)
    place.flush()
    place.flush()
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
    place.flush()
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
    place.flush()
    place.flush()
    assert len(place.paths(".log")) == 1
    place.kill_and_open()
    assert sorted(place.slots()) == [60, 100, 101, 102, 103]
