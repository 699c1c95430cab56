"""Writes that are answered before they are on disk, and the mark that says so there; payloads that come back."""

from __future__ import annotations

from tests.unit.replication.paxos.test_replica import PEER, A, B, replica
from tidelog.replication.paxos.events import Persist, Repaired, Send
from tidelog.replication.paxos.messages import PromiseRequest, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.replica import BEATS_TO_REST
from tidelog.replication.paxos.state import Metadata, Slot, Status

MARKED = Metadata("1/1", Status.VOTING, may_forget=True)


def accept(number: int, position: int) -> Send:
    return Send(PEER, WriteResponse(Reply.ACCEPT, number, position))


def test_before_the_first_lazy_answer_the_disk_says_so() -> None:
    made = replica()
    actions = made.write(PEER, WriteRequest(5, 0, A, is_lazy=True))
    assert actions == [Persist(1, (MARKED,)), Persist(2, (Slot(0, 5, A),))]
    assert made.journal.stored(2) == [accept(5, 0)]


def test_the_next_answers_do_not_wait_but_their_slots_are_written_soon() -> None:
    made = replica()
    made.write(PEER, WriteRequest(5, 0, A, is_lazy=True))
    made.journal.stored(2)
    actions = made.write(PEER, WriteRequest(5, 1, B, is_lazy=True))
    assert actions == [Persist(3, (Slot(1, 5, B),), is_urgent=False, is_soon=True), accept(5, 1)]
    assert made.write(PEER, WriteRequest(5, 1, B, is_lazy=True)) == [accept(5, 1)]


def test_other_answers_wait_for_what_was_written_lazily_too() -> None:
    made = replica()
    made.write(PEER, WriteRequest(5, 0, A, is_lazy=True))
    made.journal.stored(2)
    made.write(PEER, WriteRequest(5, 1, B, is_lazy=True))
    assert made.write(PEER, WriteRequest(5, 2, B)) == [Persist(4, (Slot(2, 5, B),))]
    assert made.promise(PEER, PromiseRequest(6, 0)) == [
        Persist(5, (Metadata("1/1", Status.VOTING, 6, may_forget=True),))
    ]
    assert made.journal.stored(3) == []
    assert [type(action) for action in made.journal.stored(5)] == [Send, Send]


def test_the_mark_goes_when_all_is_on_disk_and_nothing_lazy_came_for_a_while() -> None:
    made = replica()
    made.write(PEER, WriteRequest(5, 0, A, is_lazy=True))
    made.journal.stored(2)
    made.write(PEER, WriteRequest(5, 1, B, is_lazy=True))
    quiet = [made.beat() for _ in range(BEATS_TO_REST - 1)]
    assert not any(quiet)
    assert made.beat() == [Persist(4, ())], "all is made durable first"
    assert made.beat() == []
    made.journal.stored(4)
    assert made.beat() == [Persist(5, (Metadata("1/1", Status.VOTING),), is_urgent=False)]
    assert made.beat() == []
    again = made.write(PEER, WriteRequest(5, 2, A, is_lazy=True))
    assert again[0] == Persist(6, (MARKED,)) and len(again) == 2, "and comes back before the next lazy answer"


def test_who_is_written_to_keeps_its_mark() -> None:
    made = replica()
    for position in range(3):
        made.write(PEER, WriteRequest(5, position, A, is_lazy=True))
        made.journal.stored(2 + position)
        assert [made.beat() for _ in range(BEATS_TO_REST - 1)] == [[]] * (BEATS_TO_REST - 1)


def test_a_payload_that_comes_back_is_written_again() -> None:
    made = replica(Slot(0, 5, A, learned=True), Slot(1, 5, B))
    assert made.note_payload(0, is_here=True) == [], "it was never lost"
    for position in (0, 1):
        assert made.note_payload(position, is_here=False) == []
    assert made.faulty() == [0]
    restored = made.note_payload(0, is_here=True)
    assert restored == [Persist(1, (Slot(0, 5, A, learned=True),), is_urgent=False), Repaired(0)]
    assert made.note_payload(1, is_here=True) == [Persist(2, (Slot(1, 5, B),), is_urgent=False)]
    assert made.faulty() == []
