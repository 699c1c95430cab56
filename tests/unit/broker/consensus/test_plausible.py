"""Ballots and positions that nobody can have come to, and numbers in others' names, are refused before an engine sees
them."""

from __future__ import annotations

import pytest

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.broker.consensus.plausible import AHEAD_MAX, NUMBERS_AHEAD_MAX, Maxima, check_election, check_paxos
from tidelog.model.errors import ImplausibleNumber
from tidelog.replication.election_events import ElectionMessage, Heartbeat, HeartbeatAnswer, LeaseReleased, PreVote
from tidelog.replication.election_lease import FREE_MS_MAX
from tidelog.replication.paxos.messages import (
    Learned,
    LearnRequest,
    LearnResponse,
    Message,
    PromiseRequest,
    PromiseResponse,
    RecoverRequest,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.paxos.predecessors import DISTANCE_MAX, name
from tidelog.replication.paxos.state import NOP, Kind, Prefix, Slot, Value

KNOWN = make_number(10, 2)
END = 100
TOP = KNOWN + NUMBERS_AHEAD_MAX + (1 << 16)
FAR = END + AHEAD_MAX + 1
KNOW = Maxima(KNOWN, END, END)
BORN = Value(Kind.BARRIER, TOP)


def check(message: Message, *notices: Learned) -> None:
    check_paxos(PaxosFrame(2, 1, message, notices=notices), KNOW)


GOOD: tuple[Message, ...] = (
    PromiseRequest(make_number(2**32, 2), END + 50),
    WriteRequest(KNOWN, END + 2**31, NOP),
    PromiseResponse(Reply.ACCEPT, TOP, slots=(Slot(END + 64, KNOWN, NOP),)),
    PromiseResponse(Reply.REJECT, KNOWN, make_number(11, 3)),
    WriteResponse(Reply.ACCEPT, KNOWN, END),
    LearnRequest(0),
    LearnResponse(Prefix(END + 2**31, unbroken_from=END + 2**31), (), END + 2**31),
    WriteRequest(KNOWN, END, Value(Kind.APPEND, KNOWN, END, 1, b"d", name(END, [END - 7, END - 1]))),
    LearnResponse(Prefix(END, lapsed=(END - 2, END - 1)), (), END),
    RecoverRequest(),
)
BAD: tuple[Message, ...] = (
    PromiseRequest(TOP, END),
    PromiseRequest(KNOWN, FAR),
    PromiseRequest(make_number(10, 3), END),
    WriteRequest(TOP, END, NOP),
    WriteRequest(KNOWN, FAR, NOP),
    WriteRequest(make_number(10, 3), END, NOP),
    PromiseResponse(Reply.REJECT, KNOWN, TOP),
    PromiseResponse(Reply.ACCEPT, KNOWN, slots=(Slot(END, TOP, NOP),)),
    PromiseResponse(Reply.ACCEPT, KNOWN, slots=(Slot(END, KNOWN, BORN),)),
    PromiseResponse(Reply.ACCEPT, KNOWN, slots=(Slot(FAR, KNOWN, NOP),)),
    PromiseResponse(Reply.ACCEPT, KNOWN, learned_end=FAR),
    WriteResponse(Reply.REJECT, KNOWN, END, TOP),
    WriteResponse(Reply.ACCEPT, KNOWN, FAR),
    Learned(END, BORN),
    Learned(FAR, NOP),
    LearnResponse(Prefix(epoch=TOP), (), END),
    LearnResponse(Prefix(FAR), (), END),
    LearnResponse(Prefix(), (Slot(FAR, 0, NOP),), END),
    LearnResponse(Prefix(), (), FAR),
    LearnResponse(Prefix(END, unbroken_from=END + 1), (), END),
    LearnResponse(Prefix(END, lapsed=(END,)), (), END),
    LearnResponse(Prefix(END, lapsed=(0,) * (DISTANCE_MAX + 1)), (), END),
    WriteRequest(KNOWN, 3, Value(Kind.APPEND, KNOWN, END, 1, b"d", name(END, [END - 7]))),
    WriteRequest(KNOWN, END, Value(Kind.TRUNCATE, KNOWN, begin=name(END, [END - 7]))),
    LearnResponse(Prefix(next_offset=FAR), (), END),
    LearnResponse(Prefix(start_offset=FAR), (), END),
    WriteRequest(KNOWN, END, Value(Kind.BARRIER, KNOWN + 1)),
    WriteRequest(KNOWN, END, Value(Kind.APPEND, KNOWN, FAR, 1, b"d")),
    WriteRequest(KNOWN, END, Value(Kind.APPEND, KNOWN, END, FAR, b"d")),
    WriteRequest(KNOWN, END, Value(Kind.TRUNCATE, KNOWN, begin=END + 1)),
)


@pytest.mark.parametrize("message", GOOD, ids=repr)
def test_what_may_be_is_taken(message: Message) -> None:
    check(message, Learned(END, NOP))


@pytest.mark.parametrize("message", BAD, ids=repr)
def test_what_cannot_be_is_refused(message: Message) -> None:
    with pytest.raises(ImplausibleNumber):
        check(message)


@pytest.mark.parametrize("notice", [Learned(END, BORN), Learned(FAR, NOP)], ids=repr)
def test_notices_are_judged_as_well(notice: Learned) -> None:
    with pytest.raises(ImplausibleNumber):
        check(WriteRequest(KNOWN, END, NOP), notice)


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(KNOWN, 1, END),
        LeaseReleased(KNOWN),
        HeartbeatAnswer(TOP, 1),
        HeartbeatAnswer(KNOWN, 1, FREE_MS_MAX),
        PreVote(1),
    ],
)
def test_an_election_hears_what_may_be(message: ElectionMessage) -> None:
    check_election(ElectionFrame(2, 1, message), KNOW)


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(TOP, 1, END),
        LeaseReleased(TOP),
        Heartbeat(make_number(10, 3), 1, END),
        LeaseReleased(make_number(9, 1)),
        HeartbeatAnswer(KNOWN, 1, FREE_MS_MAX + 1),
    ],
)
def test_an_election_hears_of_no_term_that_cannot_be(message: ElectionMessage) -> None:
    with pytest.raises(ImplausibleNumber):
        check_election(ElectionFrame(2, 1, message), KNOW)
