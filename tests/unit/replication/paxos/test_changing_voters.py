"""What the engine does about VOTERS: who counts, who ends, what is refused. Who decides when is `test_voters.py`."""

from __future__ import annotations

import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import (
    Append,
    Awaits,
    Damaged,
    Effect,
    Elect,
    Elected,
    Enlist,
    Lost,
    Persist,
    Received,
    Reconfigure,
    Refused,
    Send,
    SetTimer,
    Started,
    StatusChanged,
    Stored,
    Timer,
    TimerFired,
    VotersFound,
)
from tidelog.replication.paxos.messages import (
    Learned,
    LearnRequest,
    LearnResponse,
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import LEARNER_BASE, make_number
from tidelog.replication.paxos.state import ORIGIN, Kind, Metadata, Prefix, Slot, Status, StoredLog, Value
from tidelog.replication.quorum import Joint, Majority

THREE = Majority([1, 2, 3])
N11, N21, N32 = make_number(1, 1), make_number(2, 1), make_number(3, 2)
BARRIER = Value(Kind.BARRIER, N11)
VOTERS = Value(Kind.VOTERS, N11, digest=b"1,2,3,4")
OTHERS = Value(Kind.VOTERS, N21, digest=b"1,2")
BATCH = Value(Kind.APPEND, N11, 0, 1, b"a")


def voter(*slots: Slot, status: Status = Status.VOTING, floor: Prefix = ORIGIN, position: int = -1) -> PaxosNode:
    stored = StoredLog(Metadata("1/1", status), floor, slots)
    node = PaxosNode(1, THREE, stored, window=4, voters_position=position)
    node.step(Started())
    return node


def elect(node: PaxosNode, number: int = N21) -> list[Effect]:
    """Elects, with the disk done at once; what is said to others comes back."""
    return finish(node, node.step(Elect(number)))


def finish(node: PaxosNode, effects: list[Effect]) -> list[Effect]:
    done = list(effects)
    sequences = [effect.sequence for effect in effects if isinstance(effect, Persist)]
    if sequences:
        done += finish(node, node.step(Stored(sequences[-1])))
    return done


def tell(node: PaxosNode, sender: int, *slots: Slot, learned_end: int = 0, number: int = N21) -> list[Effect]:
    """A promise from somebody."""
    response = PromiseResponse(Reply.ACCEPT, number, learned_end=learned_end, slots=slots)
    return finish(node, node.step(Received(sender, response)))


def writes(effects: list[Effect]) -> set[tuple[int, Kind]]:
    asked = [effect.message for effect in effects if isinstance(effect, Send)]
    return {(m.position, m.value.kind) for m in asked if isinstance(m, WriteRequest)}


def kinds(effects: list[Effect], *wanted: type[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, wanted)]


def learned(position: int, value: Value) -> Slot:
    return Slot(position, N11, value, learned=True)


# -- a candidate knows before it writes ------------------------------------------------------------------------------


def test_what_others_have_learned_is_copied_before_anything_is_written() -> None:
    node = voter()
    elect(node)
    effects = tell(node, 2, Slot(1, N11, BATCH), learned_end=1)
    assert not writes(effects)
    assert kinds(effects, Send) == [Send(2, LearnRequest(0))]
    copied = finish(node, node.step(Received(2, LearnResponse(ORIGIN, (learned(0, BARRIER),), 1))))
    assert writes(copied) == {(1, Kind.APPEND), (2, Kind.BARRIER)}


def test_an_attempt_ends_if_what_it_copies_gives_the_log_to_others() -> None:
    node = voter()
    elect(node)
    tell(node, 2, learned_end=3)
    slots = (learned(0, BARRIER), learned(1, VOTERS), learned(2, BATCH))
    effects = finish(node, node.step(Received(2, LearnResponse(ORIGIN, slots, 3))))
    assert not writes(effects), "though all is copied by now"
    assert len(kinds(effects, Lost)) == 1
    assert node.is_idle


def test_an_attempt_that_hears_with_the_promise_that_others_decide_writes_nothing() -> None:
    """The node that promises has a hole before its VOTERS value, so the promise shows that value by itself."""
    node = voter(learned(0, BARRIER), learned(1, BATCH))
    elect(node)
    later = Value(Kind.APPEND, N11, 1, 1, b"b")
    effects = tell(node, 2, learned(2, VOTERS), Slot(3, N11, later), learned_end=1)
    assert not writes(effects), "under a quorum that decides no more"
    assert len(kinds(effects, Lost)) == 1


def test_nothing_is_written_while_a_position_waits_for_a_copy() -> None:
    """It may be about voters."""
    node = voter(Slot(0, N11, BATCH))
    elect(node)
    effects = tell(node, 2, Slot(0, N11, BATCH), Slot(1, N11, Value(Kind.UNKNOWN), faulty=True))
    assert not writes(effects)
    assert node.unsettled == (1,)
    assert writes(tell(node, 3)) == {(0, Kind.APPEND), (1, Kind.NOP), (2, Kind.BARRIER)}, "two have nothing there"


def test_what_an_election_waits_for_is_told_once() -> None:
    node = voter()
    elect(node)
    tell(node, 2, Slot(1, N11, Value(Kind.UNKNOWN), faulty=True), Slot(2, N11, Value(Kind.UNKNOWN), faulty=True))
    again = TimerFired(Timer.RESEND, N21)
    assert kinds(finish(node, node.step(again)), Awaits) == [Awaits(1, (3,))]
    assert kinds(finish(node, node.step(again)), Awaits) == []
    tell(node, 3, Slot(2, N11, BATCH), Slot(1, N11, Value(Kind.UNKNOWN), faulty=True))
    assert kinds(finish(node, node.step(again)), Awaits) == [Awaits(1, ())], "nobody is left who may have it"
    tell(node, 3, Slot(1, N11, BATCH))
    assert kinds(finish(node, node.step(again)), Awaits) == []


@pytest.mark.parametrize("is_learned", [False, True])
def test_voters_that_are_open_end_the_attempt(is_learned: bool) -> None:
    node = voter()
    elect(node)
    effects = tell(node, 2, Slot(1, N11, VOTERS, learned=is_learned))
    assert not writes(effects)
    assert kinds(effects, VotersFound, Lost) == [VotersFound(1, VOTERS), Lost(N21, N21)]


def test_all_voters_that_are_open_are_told() -> None:
    node = voter()
    elect(node)
    effects = tell(node, 2, Slot(1, N11, VOTERS), Slot(4, N21, OTHERS))
    assert kinds(effects, VotersFound) == [VotersFound(1, VOTERS), VotersFound(4, OTHERS)]


def test_voters_that_lost_their_position_are_of_no_account() -> None:
    """A larger number was accepted there, so they are not chosen and will not be."""
    node = voter(Slot(0, N11, VOTERS))
    elect(node, make_number(4, 1))
    effects = tell(node, 2, Slot(0, N32, BATCH), number=make_number(4, 1))
    assert writes(effects) == {(0, Kind.APPEND), (1, Kind.BARRIER)}


def joined(node: PaxosNode) -> PaxosNode:
    """Goes by VOTERS found open at position 1, too."""
    quorum = Joint([THREE, Majority([1, 2, 3, 4])])
    node.step(Reconfigure(1, quorum, THREE, -1, (VotersFound(1, VOTERS),)))
    elect(node)
    return node


def accept(node: PaxosNode, position: int, *senders: int) -> list[Effect]:
    answer = WriteResponse(Reply.ACCEPT, N21, position)
    return [effect for sender in senders for effect in finish(node, node.step(Received(sender, answer)))]


def test_voters_that_are_asked_are_settled_when_all_else_is_and_nothing_is_added() -> None:
    """What stands behind them may be chosen by the old alone, and the new do not know it yet."""
    node = joined(voter())
    tell(node, 2, Slot(1, N11, VOTERS))
    assert writes(tell(node, 3, Slot(2, N11, BATCH))) == {(0, Kind.NOP), (2, Kind.APPEND)}
    assert not writes(accept(node, 0, 2, 3))
    assert not writes(accept(node, 2, 2))
    assert writes(accept(node, 2, 3)) == {(1, Kind.VOTERS)}, "and no barrier: it is over when they are applied"
    assert kinds(accept(node, 1, 2, 3), Lost)


def test_voters_that_are_asked_are_settled_when_others_have_settled_the_rest() -> None:
    node = joined(voter())
    tell(node, 2, Slot(1, N11, VOTERS))
    tell(node, 3)
    assert writes(finish(node, node.step(Received(2, Learned(0, Value(Kind.NOP)))))) == {(1, Kind.VOTERS)}


def test_the_last_voters_are_settled_first() -> None:
    node = voter()
    found = (VotersFound(0, VOTERS), VotersFound(1, OTHERS))
    node.step(Reconfigure(1, Joint([THREE, Majority([1, 2, 3, 4]), Majority([1, 2])]), THREE, -1, found))
    elect(node)
    tell(node, 2, Slot(0, N11, VOTERS), Slot(1, N11, OTHERS))
    assert writes(tell(node, 3)) == {(1, Kind.VOTERS)}
    assert writes(accept(node, 1, 2, 3)) == {(0, Kind.VOTERS)}


def test_other_voters_at_the_same_position_are_news_all_the_same() -> None:
    node = voter()
    node.step(Reconfigure(1, THREE, THREE, -1, (VotersFound(1, VOTERS),)))
    elect(node)
    assert kinds(tell(node, 2, Slot(1, N21, OTHERS)), VotersFound) == [VotersFound(1, OTHERS)]


def test_voters_are_found_although_other_positions_wait() -> None:
    """Who could bring the copy may be one of them."""
    node = voter()
    elect(node)
    effects = tell(node, 2, Slot(0, N11, VOTERS), Slot(1, N11, BATCH, faulty=True))
    assert kinds(effects, VotersFound) == [VotersFound(0, VOTERS)]


@pytest.mark.parametrize("is_learned", [False, True])
def test_voters_are_found_when_they_can_be_read(is_learned: bool) -> None:
    node = voter()
    elect(node)
    effects = tell(node, 2, Slot(1, N11, VOTERS, learned=is_learned, faulty=True))
    assert not kinds(effects, VotersFound, Lost)
    assert not writes(effects)
    assert node.unsettled == (1,)
    assert kinds(tell(node, 2, Slot(1, N11, VOTERS, learned=is_learned)), VotersFound) == [VotersFound(1, VOTERS)]


def test_a_promise_of_who_does_not_know_the_voters_does_not_count() -> None:
    node = voter(learned(0, BARRIER), learned(1, VOTERS))
    node.step(Reconfigure(1, THREE, THREE, 1))
    elect(node)
    effects = tell(node, 2, learned_end=1)
    assert not writes(effects)
    (told,) = kinds(effects, Send)
    assert told == Send(2, LearnResponse(ORIGIN, (learned(1, VOTERS),), 2)), "but is told what it lacks"
    assert writes(tell(node, 2, learned_end=2)) == {(2, Kind.BARRIER)}


def test_what_a_promise_says_is_learned_is_on_disk() -> None:
    node = voter(Slot(0, N11, BATCH))
    finish(node, node.step(Received(2, PromiseRequest(N32, 0))))
    node.step(Received(2, Learned(0, BATCH)))
    effects = node.step(Received(2, PromiseRequest(N32, 0)))
    (persist,) = kinds(effects, Persist)
    assert isinstance(persist, Persist)
    assert persist.is_urgent
    assert not kinds(effects, Send)
    assert kinds(node.step(Stored(persist.sequence)), Send) == [Send(2, PromiseResponse(Reply.ACCEPT, N32, 0, 1))]


# -- a term of voters ------------------------------------------------------------------------------------------------


def leader() -> Stage:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.news()
    return stage


def test_voters_come_alone_and_last() -> None:
    stage = leader()
    stage.append(1, "a")
    assert refusals(stage.append_voters(1, "1,2")) == ["not_drained"]
    coordinator = stage.nodes[1].coordinator
    assert coordinator is not None
    assert not coordinator.is_drained
    stage.run()
    assert coordinator.is_drained
    assert refusals(stage.append_voters(1, "1,2")) == []
    assert refusals(stage.append(1, "b")) == ["not_drained"]
    assert refusals(stage.append_voters(1, "1")) == ["not_drained"]
    assert refusals(stage.truncate(1, 0)) == ["not_drained"]


def refusals(effects: list[Effect]) -> list[str]:
    return [effect.reason.value for effect in effects if isinstance(effect, Refused)]


def test_a_term_ends_when_its_voters_are_applied() -> None:
    stage = leader()
    stage.append_voters(1, "1,2")
    stage.run()
    told = [effect for node, effect in stage.effects if node == 1 and isinstance(effect, Lost)]
    assert len(told) == 1
    assert stage.nodes[1].coordinator is None
    assert refusals(stage.elect(1)) == ["voters_changed"]
    assert refusals(stage.elect(3)) == ["voters_changed"]
    stage.reconfigure(1, "1,2", position=1)
    stage.reconfigure(3, "1,2", position=1)
    assert refusals(stage.elect(3)) == ["not_member"]
    stage.elect(1)
    stage.run()
    assert any(isinstance(effect, Elected) for _, effect in stage.effects)


def test_voters_may_bring_records() -> None:
    stage = leader()
    stage.do(1, Append(3, b"1,2", Kind.VOTERS))
    stage.run()
    assert [value.count for value in stage.applied(1)] == [3]
    assert stage.nodes[1].replica.applied.next_offset == 3


def test_a_leader_that_jumps_is_none_any_more() -> None:
    """What it has left out may have been about voters."""
    stage = leader()
    floor = Prefix(9, N32, 0)
    effects = stage.do(1, Received(2, LearnResponse(floor, (), 9)))
    assert kinds(effects, Lost)


# -- other voters, another id ----------------------------------------------------------------------------------------


def test_other_voters_end_the_proposer_and_nothing_else() -> None:
    stage = leader()
    stage.append(1, "a")
    before = dict(stage.nodes[1].replica.slots)
    effects = stage.reconfigure(1, "1,2", position=-1)
    assert kinds(effects, Lost) == [Lost(N11, N11)]
    assert stage.nodes[1].replica.slots == before
    assert stage.nodes[1].next_number() == N21
    assert stage.nodes[1].is_idle


def test_voters_come_from_what_is_applied() -> None:
    stage = leader()
    with pytest.raises(AssertionError, match="applied here"):
        stage.reconfigure(1, "1,2", position=1)


def test_a_disk_that_went_back_is_not_elected_before_it_has_caught_up() -> None:
    """Its voters stand above a slot whose name it has lost."""
    node = voter(Slot(0, N11, Value(Kind.UNKNOWN), faulty=True), position=3)
    assert refusals(node.step(Elect(N21))) == ["behind"]


def test_a_learner_becomes_a_voter() -> None:
    stored = StoredLog(Metadata("7/1"))
    node = PaxosNode(LEARNER_BASE + 7, THREE, stored, window=4)
    node.step(Started())
    assert refusals(node.step(Enlist())) == ["not_member"]
    node.step(Reconfigure(4, THREE, THREE, -1))
    assert node.node == 4
    effects = node.step(Enlist())
    assert not kinds(effects, StatusChanged), "not before it is on disk"
    assert not kinds(node.step(Received(1, PromiseRequest(N11, 0))), Persist)
    assert finish(node, effects)[-1] == StatusChanged(Status.VOTING)
    assert refusals(node.step(Enlist())) == ["not_empty"], "once"


@pytest.mark.parametrize("status", [Status.STARTING, Status.RECOVERING, Status.VOTING])
def test_only_who_never_voted_is_enlisted(status: Status) -> None:
    assert refusals(voter(status=status).step(Enlist())) == ["not_empty"]


def test_other_voters_are_asked_what_they_have_learned() -> None:
    node = voter()
    others = Majority([1, 8, 9])
    node.step(Reconfigure(1, others, others, -1))
    asked = {effect.to for _ in range(3) for effect in node.step(TimerFired(Timer.CATCHUP)) if isinstance(effect, Send)}
    assert asked == {8, 9}


def test_who_writes_to_the_log_is_asked_too() -> None:
    """All that this node takes for voters may be gone."""
    node = PaxosNode(1, Majority([1]), StoredLog(Metadata("1/1", Status.VOTING)), window=4)
    assert node.step(TimerFired(Timer.CATCHUP)) == [SetTimer(Timer.CATCHUP)]
    node.step(Received(5, PromiseRequest(make_number(1, 5), 7)))
    assert Send(5, LearnRequest(0)) in node.step(TimerFired(Timer.CATCHUP))


# -- payloads and names that are lost --------------------------------------------------------------------------------


def test_voters_have_a_payload_that_may_be_lost() -> None:
    node = voter(learned(0, VOTERS))
    node.step(Damaged(0))
    assert node.replica.faulty() == [0]
    node.step(Received(2, Learned(1, OTHERS)))
    assert 1 not in node.replica.slots, "a notice does not bring it"


def test_a_lost_name_is_told_as_faulty_and_stands_for_its_number() -> None:
    unknown = Slot(0, N21, Value(Kind.UNKNOWN), faulty=True)
    node = voter(unknown)
    told = kinds(finish(node, node.step(Received(2, PromiseRequest(N32, 0)))), Send)
    assert told == [Send(2, PromiseResponse(Reply.ACCEPT, N32, slots=(unknown,)))]
    assert not node.step(Received(3, LearnRequest(0)))[0].message.slots  # type: ignore[union-attr]  # a LearnResponse


def test_a_smaller_number_does_not_replace_a_lost_name() -> None:
    node = voter(Slot(0, N21, Value(Kind.UNKNOWN), faulty=True))
    (answer,) = kinds(node.step(Received(2, WriteRequest(N11, 0, BATCH))), Send)
    assert isinstance(answer, Send)
    assert answer.message.reply is Reply.REJECT  # type: ignore[union-attr]  # a WriteResponse


@pytest.mark.parametrize("number", [N21, N32])
def test_a_write_brings_a_lost_name_back(number: int) -> None:
    node = voter(Slot(0, N21, Value(Kind.UNKNOWN), faulty=True))
    finish(node, node.step(Received(2, WriteRequest(number, 0, BATCH))))
    assert node.replica.slots[0] == Slot(0, number, BATCH)


def test_a_learned_copy_brings_a_lost_name_back_and_its_number_stands() -> None:
    node = voter(Slot(0, N21, Value(Kind.UNKNOWN), faulty=True))
    node.step(Received(2, LearnResponse(ORIGIN, (learned(0, BATCH),), 1)))
    assert node.replica.slots[0] == Slot(0, N21, BATCH, learned=True)


def test_a_lost_name_is_known_where_another_shows_its_number() -> None:
    node = voter(Slot(0, N11, Value(Kind.UNKNOWN), faulty=True))
    elect(node)
    assert writes(tell(node, 2, Slot(0, N11, BATCH))) == {(0, Kind.APPEND), (1, Kind.BARRIER)}


def test_a_copy_under_another_number_does_not_tell_a_lost_name() -> None:
    node = voter(Slot(0, N21, Value(Kind.UNKNOWN), faulty=True))
    elect(node, make_number(4, 1))
    assert not writes(tell(node, 2, Slot(0, N11, BATCH), number=make_number(4, 1)))
    assert node.unsettled == (0,)
