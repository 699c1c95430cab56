"""The door: what is refused, what waits for the disk, who only listens."""

from __future__ import annotations

import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import (
    Append,
    Awaits,
    Chosen,
    Damaged,
    Delete,
    Demote,
    Effect,
    Elect,
    Found,
    Jumped,
    Lost,
    Persist,
    Received,
    Refused,
    Rejoin,
    Restored,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Timer,
    TimerFired,
    Truncate,
    VotesLost,
)
from tidelog.replication.paxos.messages import (
    LearnRequest,
    LearnResponse,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.paxos.state import NOP, ORIGIN, Kind, Metadata, Prefix, Slot, Status, StoredLog, Value
from tidelog.replication.quorum import Majority

N11, N12 = make_number(1, 1), make_number(1, 2)


def reasons(effects: list[Effect]) -> list[str]:
    return [effect.reason.value for effect in effects if isinstance(effect, Refused)]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Append(1, b"a"), "not_coordinator"),
        (Truncate(0), "not_coordinator"),
        (Elect(N12), "number_used"),
        (Elect(0), "number_used"),
        (Found("tides"), "not_empty"),
        (Rejoin(N11), "not_empty"),
    ],
)
def test_what_a_voter_refuses(event: Append | Truncate | Elect | Found | Rejoin, reason: str) -> None:
    stage = Stage(3)
    effects = stage.do(1, event)
    assert reasons(effects) == [reason]
    assert len(effects) == 1


def test_only_a_voter_is_elected() -> None:
    stage = Stage(3, is_founded=False)
    assert reasons(stage.elect(1)) == ["not_voting"]


def test_a_number_is_used_once() -> None:
    stage = Stage(3)
    stage.elect(1, N11)
    assert reasons(stage.elect(1, N11)) == ["number_used"]


def test_a_number_is_durable_before_anybody_hears_of_it() -> None:
    stage = Stage(3)
    stage.slow.add(1)
    assert [type(effect) for effect in stage.elect(1)] == [Persist]
    stage.crash(1)
    stage.start(1)
    assert stage.nodes[1].next_number() == N11, "nobody heard of it"
    stage.elect(1)
    stage.store(1)
    stage.crash(1)
    stage.start(1)
    assert stage.nodes[1].next_number() == make_number(2, 1), "requests went out"


def test_the_next_number_is_above_all_that_was_heard_of() -> None:
    stage = Stage(3)
    stage.elect(1)
    high = make_number(8, 3)
    stage.do(1, Received(2, PromiseResponse(Reply.REJECT, N11, high)))
    assert stage.nodes[1].next_number() == make_number(9, 1)


def test_a_new_attempt_ends_the_one_before() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.news()
    stage.elect(1)
    assert stage.news() == ["1 lost 1.1, highest 2.1"]
    assert stage.demote(1)
    assert stage.demote(1) == []


def test_answers_to_an_attempt_that_is_over_mean_nothing() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.demote(1)
    for message in (PromiseResponse(Reply.ACCEPT, N11), WriteResponse(Reply.ACCEPT, N11, 0)):
        assert stage.do(1, Received(2, message)) == []


def test_an_attempt_that_is_given_up_before_its_number_is_durable_asks_nobody() -> None:
    stage = Stage(3)
    stage.slow.add(1)
    stage.elect(1)
    stage.demote(1)
    assert stage.do(1, Stored(1)) == []


def test_a_timer_of_an_attempt_that_is_over_means_nothing() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.demote(1)
    assert stage.do(1, TimerFired(Timer.RESEND, N11)) == []


def test_an_idle_coordinator_sets_no_timer() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    assert stage.fire(1, Timer.RESEND) == []
    assert [e for e in stage.append(1, "a") if isinstance(e, SetTimer)] == [SetTimer(Timer.RESEND, N11)]


def test_a_halted_node_answers_and_does_nothing_else() -> None:
    stage = Stage(3)
    stage.do(1, StoreFailed())
    assert stage.fire(1, Timer.CATCHUP) == []
    assert reasons(stage.elect(1)) == ["storage_error"]
    write = stage.do(1, Received(2, WriteRequest(N12, 0, NOP)))
    assert write == [Send(2, WriteResponse(Reply.STORAGE_ERROR, N12, 0))]
    told = stage.do(1, Received(2, LearnRequest(0)))
    assert told == [Send(2, LearnResponse(ORIGIN, (), 0))]


def test_a_coordinator_that_is_told_its_position_is_gone_asks_for_the_floor() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.deliver(1, 2)
    stage.deliver(2, 1)
    effects = stage.do(1, Received(3, WriteResponse(Reply.LEARNED, N11, 0)))
    assert effects == [Send(3, LearnRequest(0))]
    floor = Prefix(4, N12, 7)
    stage.do(1, Received(3, LearnResponse(floor, (), 4)))
    assert "1 jumped to 4/1.2/7" in stage.news()


def test_a_coordinator_whose_barrier_was_passed_by_the_floor_is_lost() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.deliver(1, 2)
    stage.deliver(2, 1)
    stage.news()
    stage.do(1, Received(3, LearnResponse(Prefix(4, N12, 7), (), 4)))
    assert any(news.startswith("1 lost 1.1") for news in stage.news())


def test_a_coordinator_told_of_another_value_in_its_place_is_lost() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.append(1, "a")
    stage.news()
    stage.do(1, Received(3, WriteResponse(Reply.LEARNED, N11, 1, value=NOP)))
    assert any(news.startswith("1 lost 1.1") for news in stage.news())
    assert stage.learned(1) == {0: "barrier", 1: "nop"}


def test_an_observer_catches_up_and_has_no_vote() -> None:
    """A broker that tails the metadata log."""
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.append(1, "a")
    stage.run()
    observer = PaxosNode(9, stage.quorum, StoredLog(Metadata("9/1")), window=1)
    assert [type(effect) for effect in observer.step(Started())] == [SetTimer]
    asked = observer.step(TimerFired(Timer.CATCHUP))
    assert isinstance(asked[0], Send)
    answer = stage.do(asked[0].to, Received(9, LearnRequest(0)))
    assert isinstance(answer[0], Send)
    observer.step(Received(asked[0].to, answer[0].message))
    assert observer.replica.applied.position == 2
    for event in (Found("tides"), Rejoin(make_number(5, 9))):
        assert reasons(observer.step(event)) == ["not_member"]
    assert reasons(observer.step(Elect(make_number(5, 9)))) == ["not_voting"]
    refused = observer.step(Received(1, WriteRequest(N11, 5, NOP)))
    assert refused == [Send(1, WriteResponse(Reply.IGNORED, N11, 5))]


def test_a_damaged_payload_is_asked_for_again() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.append(1, "a")
    stage.run()
    stage.do(2, Damaged(1))
    asked = [(e.to, e.message) for e in stage.fire(2, Timer.CATCHUP) if isinstance(e, Send)]
    assert asked == [(3, LearnRequest(2)), (3, LearnRequest(1, 2)), (1, LearnRequest(1, 2))]
    stage.run()
    assert "2 repaired 1" in stage.news()


def test_a_start_tells_again_what_was_applied() -> None:
    disk = StoredLog(Metadata("1/1", Status.VOTING), Prefix(3, N11, 5), (Slot(3, N11, NOP, learned=True),))
    node = PaxosNode(1, Majority([1]), disk, window=1)
    assert [type(effect).__name__ for effect in node.step(Started())] == ["Applied", "SetTimer"]
    assert not [effect for effect in node.step(Demote()) if isinstance(effect, Jumped)]


def test_a_report_of_the_disk_releases_what_waited_for_it() -> None:
    stage = Stage(3)
    stage.slow.add(2)
    stage.elect(1)
    stage.deliver(1, 2)
    assert not stage.links.get((2, 1))
    effects = stage.do(2, Stored(1))
    assert effects == [Send(1, PromiseResponse(Reply.ACCEPT, N11))]


def test_a_coordinator_deletes_what_is_applied_and_refuses_to_delete_beyond() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.append(1, "a", count=3)
    stage.run()
    assert reasons(stage.do(1, Delete(4))) == reasons(stage.do(1, Delete(-1))) == ["out_of_range"]
    assert not reasons(stage.do(1, Delete(3)))
    stage.run()
    assert stage.nodes[3].replica.applied.start_offset == 3


def test_a_coordinator_behind_whose_barrier_others_have_written_is_lost() -> None:
    """They have proposed its barrier again, as what may be chosen, and gone on."""
    stage = Stage(3)
    stage.elect(1)
    stage.deliver(1, 2)
    stage.deliver(2, 1)
    stage.drop(1, 2)
    stage.deliver(1, 3, 2)
    stage.drop_all()
    stage.elect(2)
    stage.run(2, 3)
    assert stage.learned(2) == {0: "barrier", 1: "barrier"}
    stage.news()
    slots = tuple(stage.nodes[2].replica.slots[position] for position in (1, 0))
    stage.do(1, Received(2, LearnResponse(ORIGIN, slots, 2)))
    assert [news for news in stage.news() if news.split()[1] in ("elected", "lost")] == ["1 lost 1.1, highest 1.1"]


def test_a_coordinator_whose_barrier_is_void_is_lost() -> None:
    """The value of an open slot below the barrier has a newer birth number, so the barrier is a ghost."""
    stage = Stage(3)
    stage.elect(1)
    stage.do(1, Received(2, PromiseResponse(Reply.ACCEPT, N11, slots=(Slot(0, make_number(1, 0), NOP),))))
    stage.news()
    barrier = stage.nodes[1].replica.slots[1].value
    newer = Value(Kind.APPEND, N12, 0, 1, b"b")
    slots = (Slot(1, N12, barrier, learned=True), Slot(0, N12, newer, learned=True))
    stage.do(1, Received(2, LearnResponse(ORIGIN, slots, 2)))
    assert [news.split()[1] for news in stage.news()] == ["applied", "applied", "lost"]


def test_what_a_stranger_has_accepted_is_not_counted() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.append(1, "a")
    stage.drop_all()
    assert stage.do(1, Received(9, WriteResponse(Reply.ACCEPT, N11, 1))) == []
    chosen = stage.do(1, Received(2, WriteResponse(Reply.ACCEPT, N11, 1)))
    assert [effect.accepted_by for effect in chosen if isinstance(effect, Chosen)] == [(1, 2)]


def waiting_for_a_copy() -> Stage:
    """Five nodes; four have promised node 1 its second number, and what may be chosen at position 1 is damaged."""
    stage = Stage(5)
    stage.elect(1)
    stage.run()
    stage.append(1, "a")
    stage.deliver(1, 2)
    stage.drop_all()
    for node in (1, 2):
        stage.crash(node)
        stage.damage(node, 1)
        stage.start(node)
    stage.drop_all()
    stage.elect(1)
    stage.run(1, 2, 3, 4)
    stage.news()
    return stage


def test_a_candidate_tells_what_it_waits_for_and_whose_word_would_settle_it() -> None:
    stage = waiting_for_a_copy()
    node = stage.nodes[1]
    assert (node.unsettled, node.unheard, node.quorum) == ((1,), (5,), stage.quorum)
    stage.demote(1)
    assert (node.unsettled, node.unheard) == ((), ())


def test_an_attempt_that_waits_begins_anew_when_other_voters_have_lost_their_votes() -> None:
    stage = waiting_for_a_copy()
    assert stage.do(1, VotesLost(())) == [], "as before"
    assert [type(effect) for effect in stage.do(1, VotesLost((5,)))] == [Lost]
    assert stage.do(1, VotesLost((5,))) == []
    stage.elect(1)
    stage.run(1, 2, 3, 4)
    assert stage.learned(1) == {0: "barrier", 1: "a", 2: "barrier"}, "by its name alone"


def test_a_candidate_that_waits_no_more_has_nothing_to_tell() -> None:
    stage = waiting_for_a_copy()
    awaits = Awaits(1, (5,))
    assert awaits in stage.fire(1, Timer.RESEND)
    assert awaits not in stage.fire(1, Timer.RESEND), "once"
    stage.do(1, Restored(1))
    stage.fire(1, Timer.RESEND)
    stage.run(1, 2, 3, 4)
    assert stage.nodes[1].coordinator is not None
    stage.append(1, "b")
    assert {type(effect) for effect in stage.fire(1, Timer.RESEND)} == {Send, SetTimer}


def test_an_attempt_that_waits_for_nothing_goes_on_when_voters_have_lost_their_votes() -> None:
    stage = Stage(3)
    stage.elect(1)
    assert stage.do(1, VotesLost((3,))) == []
    stage.run(1, 2)
    assert stage.nodes[1].coordinator is not None


def test_a_node_knows_which_peers_lack_a_payload_too() -> None:
    stage = Stage(3)
    stage.elect(1)
    stage.run()
    stage.append(1, "a")
    stage.run()
    for node in (1, 2):
        stage.do(node, Damaged(1))
    stage.fire(1, Timer.CATCHUP)
    stage.run(1, 2)
    assert stage.nodes[1].lacking(1) == {2}
