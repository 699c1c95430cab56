"""Where an instance is, and what of that may be committed."""

from __future__ import annotations

from tidelog.broker.rest_consumers.positions import Positions

A, B = ("t", 0), ("t", 1)


def positions() -> Positions:
    """Of A and B, both at 10, where the group has its committed offset of A."""
    made = Positions()
    made.have([B, A])
    made.begin(A, 10, is_committed=True)
    made.begin(B, 10)
    return made


def test_where_nothing_is_known_it_has_to_be_found() -> None:
    made = Positions()
    made.have([B, A])
    assert made.partitions == (A, B)
    assert made.unknown == [A, B]
    made.begin(B, 7)
    assert made.unknown == [A]
    assert made.next_offsets == [(B, 7)]


def test_what_is_returned_is_processed_when_the_next_read_comes() -> None:
    made = positions()
    assert made.processed() == {B: 10}
    made.begin_read("1")
    made.move({A: 13})
    assert made.processed() == {B: 10}
    assert made.returned() == {A: 13, B: 10}
    made.begin_read("2")
    assert made.processed() == {A: 13, B: 10}


def test_what_is_committed_is_not_committed_again() -> None:
    made = positions()
    made.begin_read("1")
    made.move({A: 13})
    made.commit({A: 13, B: 10})
    assert made.returned() == {}
    made.begin(A, 11)
    assert made.returned() == {A: 11}


def test_an_attempt_that_is_repeated_has_its_records_again() -> None:
    made = positions()
    made.begin_read("1")
    made.move({A: 13})
    made.begin_read("1")
    assert made.next_offsets == [(A, 10), (B, 10)]
    made.move({A: 12})
    made.begin_read("2")
    assert made.next_offsets == [(A, 12), (B, 10)]


def test_records_that_did_not_arrive_are_taken_back_but_not_once_another_read_has_come() -> None:
    made = positions()
    made.begin_read("1")
    made.move({A: 13, B: 11})
    made.take_back("0")
    assert made.next_offsets == [(A, 13), (B, 11)]
    made.take_back("1")
    assert made.next_offsets == [(A, 10), (B, 10)]
    made.begin_read("2")
    made.move({A: 13})
    made.begin_read("3")
    made.take_back("2")
    assert made.next_offsets == [(A, 13), (B, 10)]


def test_a_seek_is_not_undone_by_a_repetition() -> None:
    made = positions()
    made.begin_read("1")
    made.move({A: 13})
    made.begin(A, 50)
    made.take_back("1")
    assert made.next_offsets == [(A, 50), (B, 10)]
    assert made.processed() == {A: 50, B: 10}


def test_partitions_that_stay_are_not_disturbed_and_those_that_go_are_forgotten() -> None:
    made = positions()
    made.begin_read("1")
    made.move({A: 13, B: 11})
    made.have([A])
    assert made.next_offsets == [(A, 13)]
    assert made.returned() == {A: 13}
    made.begin(B, 99)
    made.move({B: 100})
    made.commit({B: 100})
    made.have([A, B])
    assert made.unknown == [B]
