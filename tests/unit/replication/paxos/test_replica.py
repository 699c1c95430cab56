"""The acceptor's and the learner's rules, one by one (R1 to R10 of the specification's table)."""

from __future__ import annotations

import pytest

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import (
    Action,
    Applied,
    DeletePrefix,
    Jumped,
    Persist,
    Repaired,
    Send,
)
from tidelog.replication.paxos.messages import (
    Learned,
    LearnRequest,
    LearnResponse,
    Message,
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.replica import EARLY_MAX, SLOTS_PER_ANSWER_MAX, Replica
from tidelog.replication.paxos.state import NOP, ORIGIN, Kind, Metadata, Prefix, Slot, Status, StoredLog, Value

PEER = 9
A = Value(Kind.APPEND, 5, 0, 1, b"a")
B = Value(Kind.APPEND, 6, 0, 1, b"b")


def replica(*slots: Slot, promised: int = 0, status: Status = Status.VOTING, floor: Prefix = ORIGIN) -> Replica:
    made = Replica(StoredLog(Metadata("1/1", status, promised), floor, slots))
    made.apply()
    return made


def settle(made: Replica, actions: list[Action]) -> list[Action]:
    """The actions, and those that follow once everything is durable."""
    sequences = [action.sequence for action in actions if isinstance(action, Persist)]
    return actions + (made.journal.stored(sequences[-1]) if sequences else [])


def answer(made: Replica, actions: list[Action]) -> Message:
    (sent,) = [action for action in settle(made, actions) if isinstance(action, Send)]
    assert sent.to == PEER
    return sent.message


def promise(made: Replica, number: int, position: int = 0) -> Message:
    return answer(made, made.promise(PEER, PromiseRequest(number, position)))


def write(made: Replica, number: int, position: int, value: Value = A) -> Message:
    return answer(made, made.write(PEER, WriteRequest(number, position, value)))


def written(actions: list[Action]) -> list[object]:
    return [record for action in actions if isinstance(action, Persist) for record in action.records]


# -- R1: who does not vote ignores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.EMPTY, Status.STARTING, Status.RECOVERING])
def test_who_does_not_vote_ignores(status: Status) -> None:
    made = replica(status=status)
    assert promise(made, 5) == PromiseResponse(Reply.IGNORED, 5)
    assert write(made, 5, 0) == WriteResponse(Reply.IGNORED, 5, 0)
    assert made.metadata.promised == 0
    assert not made.slots


# -- R2: a promise covers every position -----------------------------------------------------------------------------


def test_a_promise_is_durable_before_it_is_given() -> None:
    made = replica()
    actions = made.promise(PEER, PromiseRequest(5, 0))
    assert [type(action) for action in actions] == [Persist]
    assert made.journal.stored(1) == [Send(PEER, PromiseResponse(Reply.ACCEPT, 5))]


def test_a_smaller_number_is_refused_at_once() -> None:
    made = replica(promised=5)
    assert made.promise(PEER, PromiseRequest(4, 0)) == [Send(PEER, PromiseResponse(Reply.REJECT, 4, 5))]


def test_the_same_number_is_promised_again_without_another_write() -> None:
    made = replica(promised=5)
    assert made.promise(PEER, PromiseRequest(5, 0)) == [Send(PEER, PromiseResponse(Reply.ACCEPT, 5))]


def test_a_repeated_request_waits_for_the_disk_as_the_first() -> None:
    made = replica()
    made.promise(PEER, PromiseRequest(5, 0))
    assert made.promise(PEER, PromiseRequest(5, 0)) == []
    assert len(made.journal.stored(1)) == 2


def test_a_promise_is_kept_where_nobody_has_been_yet() -> None:
    made = replica()
    promise(made, 5)
    assert write(made, 4, 1000) == WriteResponse(Reply.REJECT, 4, 1000, 5)


# -- R3, R4, R5: what a promise reports ------------------------------------------------------------------------------


def test_a_promise_reports_every_open_slot_and_how_far_all_is_learned() -> None:
    nop = Slot(0, 3, NOP, learned=True)
    open_ = Slot(2, 3, A)
    behind = Slot(4, 3, B, learned=True)
    made = replica(nop, open_, behind)
    assert promise(made, 5) == PromiseResponse(Reply.ACCEPT, 5, learned_end=1, slots=(open_, behind))


def test_a_replica_is_open_while_it_has_accepted_what_may_not_be_chosen() -> None:
    made = replica()
    assert not made.is_any_open
    write(made, 5, 0)
    assert made.is_any_open
    made.learn(0, made.slots[0].value, has_payload=True)
    assert not made.is_any_open


def test_a_promise_reports_from_the_position_asked_for() -> None:
    made = replica(Slot(1, 3, A), Slot(2, 3, A))
    assert promise(made, 5, position=2) == PromiseResponse(Reply.ACCEPT, 5, slots=(Slot(2, 3, A),))


def test_what_is_gone_counts_as_learned() -> None:
    made = replica(floor=Prefix(7, 3, 4))
    assert promise(made, 5) == PromiseResponse(Reply.ACCEPT, 5, learned_end=7)


def test_a_number_below_an_accepted_one_is_not_promised() -> None:
    """Also if the larger number was accepted without having been promised."""
    made = replica()
    write(made, 6, 3)
    assert made.metadata.promised == 0
    assert promise(made, 5) == PromiseResponse(Reply.REJECT, 5, 6)
    assert replica(Slot(3, 6, A)).highest == 6


def test_a_faulty_slot_is_reported_with_its_number() -> None:
    made = replica(Slot(0, 3, A))
    made.note_payload(0, is_here=False)
    assert promise(made, 5) == PromiseResponse(Reply.ACCEPT, 5, slots=(Slot(0, 3, A, faulty=True),))


# -- R6, R7: accepting, and what it promises -------------------------------------------------------------------------


def test_a_write_is_durable_before_it_is_accepted() -> None:
    made = replica()
    actions = made.write(PEER, WriteRequest(5, 2, A))
    assert actions == [Persist(1, (Slot(2, 5, A),))]
    assert made.journal.stored(1) == [Send(PEER, WriteResponse(Reply.ACCEPT, 5, 2))]


def test_an_accept_is_a_promise_for_its_slot() -> None:
    """What Mesos lacks: a late write of an older coordinator finds a newer value, whose promise it has missed."""
    made = replica()
    write(made, 6, 0, B)
    assert write(made, 5, 0, A) == WriteResponse(Reply.REJECT, 5, 0, 6)
    assert made.slots[0].value == B


def test_an_accept_promises_nothing_for_other_slots() -> None:
    made = replica()
    write(made, 6, 0, B)
    assert write(made, 5, 1, A) == WriteResponse(Reply.ACCEPT, 5, 1)


def test_a_larger_number_replaces_the_value() -> None:
    made = replica(Slot(0, 5, A))
    assert write(made, 6, 0, B) == WriteResponse(Reply.ACCEPT, 6, 0)
    assert made.slots[0] == Slot(0, 6, B)


def test_a_repeated_write_is_accepted_again_without_another_write() -> None:
    made = replica(Slot(0, 5, A))
    assert made.write(PEER, WriteRequest(5, 0, A)) == [Send(PEER, WriteResponse(Reply.ACCEPT, 5, 0))]


def test_a_repeated_write_waits_for_the_disk_as_the_first() -> None:
    made = replica()
    made.write(PEER, WriteRequest(5, 0, A))
    assert made.write(PEER, WriteRequest(5, 0, A)) == []
    assert len(made.journal.stored(1)) == 2


def test_a_number_names_one_value_per_position() -> None:
    made = replica(Slot(0, 5, A))
    with pytest.raises(AssertionError, match="one value per position"):
        made.write(PEER, WriteRequest(5, 0, B))


def test_a_write_by_name_alone_is_accepted_as_faulty_unless_the_payload_is_here() -> None:
    by_name = WriteRequest(6, 0, A, is_named=True)
    for held, stored in (
        (None, True),
        (Slot(0, 5, A), False),
        (Slot(0, 5, A, faulty=True), True),
        (Slot(0, 5, B), True),
    ):
        made = replica(*([held] if held else []))
        assert written(made.write(PEER, by_name)) == [Slot(0, 6, A, faulty=stored)]
    made = replica(Slot(0, 5, A, learned=True, faulty=True))
    accepted = Send(PEER, WriteResponse(Reply.ACCEPT, 6, 0, is_learned=True))
    assert made.write(PEER, by_name) == [accepted], "and brings nothing back"


def test_a_repeated_write_brings_a_lost_payload_back() -> None:
    made = replica(Slot(0, 5, A, faulty=True))
    actions = made.write(PEER, WriteRequest(5, 0, A))
    assert written(actions) == [Slot(0, 5, A)]
    assert [type(action) for action in actions] == [Persist], "and waits for the disk before it is accepted"


# -- R8: writes to what is learned -----------------------------------------------------------------------------------


def test_a_write_that_its_notice_has_overtaken_is_accepted() -> None:
    made = replica(Slot(0, 5, A, learned=True), promised=9)
    assert write(made, 5, 0, A) == WriteResponse(Reply.ACCEPT, 5, 0)


def test_another_value_is_told_what_was_chosen() -> None:
    made = replica(Slot(0, 5, A, learned=True))
    assert write(made, 7, 0, B) == WriteResponse(Reply.LEARNED, 7, 0, value=A)
    assert made.slots[0].value == A


def test_a_write_to_what_is_gone_is_told_so() -> None:
    made = replica(floor=Prefix(3, 5, 2))
    assert write(made, 7, 2, B) == WriteResponse(Reply.LEARNED, 7, 2)


# -- R9: learning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", list(Status))
def test_what_is_chosen_is_learned_in_any_status(status: Status) -> None:
    made = replica(status=status, promised=99)
    actions = made.learn(0, A, has_payload=True)
    assert actions == [Persist(1, (Slot(0, 0, A, learned=True),), is_urgent=False), Applied(0, A, Verdict.APPLIED)]


def test_what_is_learned_never_changes() -> None:
    made = replica(Slot(0, 5, A, learned=True))
    assert made.learn(0, A, has_payload=True) == []
    with pytest.raises(AssertionError, match="never changes"):
        made.learn(0, B, has_payload=True)


def test_a_notice_for_what_is_gone_is_ignored() -> None:
    made = replica(floor=Prefix(3, 5, 2))
    assert made.hear(Learned(2, B)) == made.hear(Learned(2, NOP)) == []
    assert (made.begin, made.slots) == (3, {})


def test_a_learned_value_takes_the_place_of_an_accepted_one() -> None:
    """And does not claim to have been accepted under its number."""
    made = replica(Slot(0, 5, B))
    made.learn(0, A, has_payload=True)
    assert made.slots[0] == Slot(0, 0, A, learned=True)


def test_a_notice_needs_the_payload_to_be_here() -> None:
    made = replica(Slot(0, 5, A), Slot(1, 5, A))
    assert made.hear(Learned(2, B)) == [], "unknown here"
    assert made.hear(Learned(1, B)) == [], "another value here"
    assert written(made.hear(Learned(0, A))) == [Slot(0, 5, A, learned=True)]


def test_a_notice_that_comes_before_its_write_counts_once_that_comes() -> None:
    made = replica()
    assert made.hear(Learned(0, A)) == made.hear(Learned(1, A)) == []
    actions = settle(made, made.write(PEER, WriteRequest(5, 0, A)))
    assert written(actions) == [Slot(0, 5, A), Slot(0, 5, A, learned=True)]
    assert [action for action in actions if isinstance(action, Applied)] == [Applied(0, A, Verdict.APPLIED, False)]
    assert Send(PEER, WriteResponse(Reply.ACCEPT, 5, 0)) in actions
    assert written(made.write(PEER, WriteRequest(6, 1, B))) == [Slot(1, 6, B)], "another value is not what is chosen"
    assert written(made.write(PEER, WriteRequest(6, 0, A))) == []


def test_notices_that_come_before_their_writes_are_kept_within_a_bound() -> None:
    made = replica()
    for position in range(EARLY_MAX + 1):
        made.hear(Learned(position, A))
    assert written(made.write(PEER, WriteRequest(5, 0, A))) == [Slot(0, 5, A)]
    assert len(written(made.write(PEER, WriteRequest(5, 1, A)))) == 2


def test_a_notice_of_what_has_no_payload_is_enough() -> None:
    made = replica()
    assert written(made.hear(Learned(0, NOP))) == [Slot(0, 0, NOP, learned=True)]


# -- applying --------------------------------------------------------------------------------------------------------


def test_values_are_applied_in_order_however_they_come() -> None:
    made = replica()
    assert [
        a for a in made.learn(1, Value(Kind.APPEND, 5, 1, 1, b"b"), has_payload=True) if isinstance(a, Applied)
    ] == []
    applied = [a.position for a in made.learn(0, A, has_payload=True) if isinstance(a, Applied)]
    assert applied == [0, 1]
    assert made.applied == Prefix(2, 5, 2)


def test_a_start_applies_again_what_was_learned() -> None:
    made = Replica(StoredLog(Metadata("1/1"), ORIGIN, (Slot(0, 5, A, learned=True), Slot(1, 5, A))))
    assert made.apply() == [Applied(0, A, Verdict.APPLIED)]
    assert (made.applied.position, made.end) == (1, 2)


def test_a_truncation_is_durable_before_anything_is_deleted() -> None:
    made = replica(Slot(0, 5, A, learned=True), Slot(1, 5, NOP, learned=True))
    actions = made.learn(2, Value(Kind.TRUNCATE, 6, begin=1), has_payload=True)
    assert written(actions)[-1] == Prefix(1, 5, 1)
    assert not [action for action in actions if isinstance(action, DeletePrefix)]
    assert made.journal.stored(2) == [DeletePrefix(1)]
    assert (made.begin, sorted(made.slots)) == (1, [1, 2])


def test_a_void_truncation_drops_nothing() -> None:
    made = replica(Slot(0, 5, A, learned=True))
    made.learn(1, Value(Kind.TRUNCATE, 4, begin=1), has_payload=True)
    assert made.begin == 0


def test_a_truncation_that_says_less_than_an_earlier_one_changes_nothing() -> None:
    made = replica(floor=Prefix(3, 5, 2))
    actions = made.learn(3, Value(Kind.TRUNCATE, 6, begin=2), has_payload=True)
    assert [type(action) for action in actions] == [Persist, Applied]
    assert made.begin == 3


# -- answering and copying -------------------------------------------------------------------------------------------


def test_a_peer_is_told_what_is_learned_and_nothing_else() -> None:
    made = replica(Slot(0, 5, A, learned=True), Slot(1, 5, A), Slot(2, 5, NOP, learned=True))
    message = answer(made, made.tell(PEER, LearnRequest(0)))
    assert message == LearnResponse(ORIGIN, (made.slots[0], made.slots[2]), 1)
    assert answer(made, made.tell(PEER, LearnRequest(1, 2))) == LearnResponse(ORIGIN, (), 1)


def test_an_answer_has_a_bound() -> None:
    slots = [Slot(p, 5, NOP, learned=True) for p in range(SLOTS_PER_ANSWER_MAX + 10)]
    made = replica(*slots)
    message = answer(made, made.tell(PEER, LearnRequest(3)))
    assert isinstance(message, LearnResponse)
    assert [slot.position for slot in message.slots] == list(range(3, SLOTS_PER_ANSWER_MAX + 3))
    assert message.learned_end == SLOTS_PER_ANSWER_MAX + 10


def test_a_replica_that_is_behind_jumps_to_the_floor_of_its_peer() -> None:
    made = replica(Slot(0, 5, A, learned=True), Slot(1, 4, B))
    floor = Prefix(4, 6, 9)
    actions = made.take(LearnResponse(floor, (Slot(4, 7, NOP, learned=True),), 5))
    assert written(actions) == [floor, Slot(4, 0, NOP, learned=True)]
    assert Jumped(floor) in actions
    assert (made.begin, made.applied, sorted(made.slots)) == (4, Prefix(5, 6, 9, 0, 5, (4,)), [4])


def test_a_replica_asks_only_for_what_it_lacks_above_a_hole() -> None:
    behind = replica(*(Slot(p, 5, NOP, learned=p not in {0, 3}) for p in range(20) if p != 12))
    request = behind.request()
    assert (request.position, request.held) == (0, (0xFFFFF & ~(1 | 1 << 3 | 1 << 12)).to_bytes(3, "little"))
    ahead = replica(*(Slot(p, 5, NOP, learned=True) for p in range(25)))
    response = answer(ahead, ahead.tell(PEER, request))
    assert isinstance(response, LearnResponse)
    assert [slot.position for slot in response.slots] == [0, 3, 12, 20, 21, 22, 23, 24]


def test_a_replica_with_nothing_above_its_prefix_asks_for_all() -> None:
    assert replica(Slot(0, 5, A, learned=True), Slot(1, 5, B)).request() == LearnRequest(1)


def test_a_replica_that_is_not_behind_stays_where_it_is() -> None:
    made = replica(Slot(0, 5, A, learned=True))
    assert made.take(LearnResponse(Prefix(1, 5, 1), (), 1)) == []
    assert made.begin == 0


# -- faulty slots ----------------------------------------------------------------------------------------------------


def test_a_payload_comes_back_with_any_copy_of_the_value() -> None:
    made = replica(Slot(0, 5, A, learned=True))
    made.note_payload(0, is_here=False)
    assert made.faulty() == [0]
    actions = made.take(LearnResponse(ORIGIN, (Slot(0, 7, A, learned=True),), 1))
    assert actions == [Persist(1, (Slot(0, 5, A, learned=True),), is_urgent=False), Repaired(0)]
    assert made.faulty() == []


def test_a_faulty_copy_tells_the_value_and_brings_no_payload() -> None:
    made = replica()
    actions = made.take(LearnResponse(ORIGIN, (Slot(0, 7, A, learned=True, faulty=True),), 1))
    assert Applied(0, A, Verdict.APPLIED, is_faulty=True) in actions
    assert made.faulty() == [0]


def test_what_has_no_payload_cannot_be_damaged() -> None:
    made = replica(Slot(0, 5, NOP))
    made.note_payload(0, is_here=False)
    made.note_payload(7, is_here=False)
    assert not made.slots[0].faulty
    assert made.faulty() == []


def test_what_is_gone_need_not_be_repaired() -> None:
    made = replica(Slot(0, 5, A, learned=True, faulty=True), Slot(1, 5, NOP, learned=True))
    made.learn(2, Value(Kind.TRUNCATE, 6, begin=1), has_payload=True)
    assert made.faulty() == []


# -- R10: a disk that fails ------------------------------------------------------------------------------------------


def test_a_replica_with_a_failed_disk_says_so_and_writes_no_more() -> None:
    made = replica(Slot(0, 5, A))
    made.is_halted = True
    assert promise(made, 5) == PromiseResponse(Reply.STORAGE_ERROR, 5)
    assert write(made, 5, 0) == WriteResponse(Reply.STORAGE_ERROR, 5, 0)
    assert made.learn(0, A, has_payload=True) == []
    assert made.take(LearnResponse(Prefix(4, 6, 9), (), 4)) == []
