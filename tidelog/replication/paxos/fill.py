"""Filling (Paxos' phase 1 of a new coordinator): one proposal number, one promise of a quorum, and every open position
settled.

A new coordinator must not write before it knows that no older value can be chosen any more, and which values may be
chosen already. Mesos asks position by position, two round trips each. Here the promise covers all positions and its
answers report every open slot, so one round trip decides them all, and one more writes them.

The value for a position follows from the answers of a quorum:

1. A node has *learned* it: it is chosen. There is nothing to propose; it is copied.
2. Else the value accepted under the highest number: it may be chosen, and if anything is, it is this one. It is
   proposed again, with its birth, even if it is an old value that will turn out void (`apply.py`): a NOP in the place
   of a value that may be chosen is never right.
3. Else nothing can have been chosen there: a NOP.

A *faulty* slot knows its number but not its value's bytes, and counts as accepted under that number (the CTRL paper's
rule, for Paxos). Suppose that the nodes that have promised the fill's number n, and have accepted nothing above m
there, `block` every quorum: each quorum has one of them. To choose a value between m and n takes a quorum; the blocking
node in it has not accepted it, and never will. So nothing between m and n is chosen, ever, and the value of m may be
proposed, or a NOP if there is no m. Of two voters one is enough for that, and of four two. Any such m will do whose
value has come intact from any node; the highest is taken. If there is none, the position waits, and with it the
election, for another answer or a repair. A slot that has lost even its value's name, that is, its digest (UNKNOWN), is
the same case: number m, and the value of (position, m), of which there is one, is intact where another replica shows it
under m.

Two cases need not wait: a quorum has accepted the same number (`_is_chosen`), or only voters are awaited that have lost
their votes (`_by_name`). If the quorum is all that remains of a log whose majority has lost its votes
(`Term.is_union`), no other voter will ever answer. Then the value accepted under the highest number is taken for
chosen, since it may have been, by the lost voters.

A fill begins with the promises of the whole quorum of its term. For "nothing above m" it counts only the nodes without
which nothing is chosen at that position (`term.py`): other nodes cannot have had it chosen, faulty or not.

The same round, without a vote of its own, is the fence of a replica that lost its disk (`recover.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.replication.paxos.events import Action, Send
from tidelog.replication.paxos.messages import PromiseRequest, PromiseResponse, Reply
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import NOP, UNKNOWN, Kind, Slot, Value, given_up
from tidelog.replication.paxos.term import Term
from tidelog.replication.quorum import blocks


class Settled(NamedTuple):
    """The value that a new coordinator decides on for one position."""

    position: int
    value: Value
    is_learned: bool
    """True if the value is known to be chosen, so that it need not be proposed."""
    has_payload: bool


class Fill:
    """The promise phase under one proposal number, for the positions from `start` on, where the caller's own log is no
    longer complete."""

    def __init__(self, number: int, term: Term, start: int) -> None:
        self.start = start
        self.end: int | None = None
        """The position behind the last open one, fixed when a quorum has promised; None before."""
        self.learned_end = start
        """The largest position below which a node that has answered has learned everything; the node `source` has."""
        self.source: int | None = None
        self._number = number
        self._term = term
        self._answers: dict[int, dict[int, Slot]] = {}
        self._open: list[int] = []

    @property
    def is_complete(self) -> bool:
        """True if a quorum has promised and every position below `end` is settled."""
        return self.end is not None and not self._open

    @property
    def unsettled(self) -> tuple[int, ...]:
        """Returns the positions that wait, because the values reported there are faulty and may be chosen."""
        return tuple(self._open)

    @property
    def unheard(self) -> tuple[int, ...]:
        """Returns the members of the quorum that have not promised yet, any of which may settle a waiting position."""
        return tuple(node for node in self._term.quorum.members if node not in self._answers)

    def requests(self) -> list[Action]:
        """Returns a promise request to each member that has not answered; if a quorum has promised and a position still
        waits, to every member."""
        if self.is_complete:
            return []
        request = PromiseRequest(self._number, self.start)
        # Who has answered may have repaired a faulty slot since, and its new answer settle a position.
        has_quorum = self.end is not None
        return [Send(node, request) for node in self._term.quorum.members if has_quorum or node not in self._answers]

    def promised(self, sender: int, response: PromiseResponse) -> list[Settled]:
        """Takes in a promise; returns the values of the positions that it settles."""
        assert response.number == self._number and response.reply is Reply.ACCEPT
        if self.is_complete or sender not in self._term.quorum or not self.is_informed(response):
            return []
        self._answers[sender] = {slot.position: slot for slot in response.slots}
        if response.learned_end > self.learned_end:
            self.learned_end, self.source = response.learned_end, sender
        if self.end is None:
            if not self._term.quorum.is_met(self._answers):
                return []
            # No later answer can show anything chosen beyond this. A value chosen under an older number was accepted by
            # one of these before it promised; and from now on they accept nothing older.
            self.end = max(self.learned_end, *(max(slots, default=-1) + 1 for slots in self._answers.values()))
            self._open = list(range(self.start, self.end))
        # What somebody has learned is copied from there, not decided here.
        self._open = [position for position in self._open if position >= self.learned_end]
        settled = list(self._settle())
        settled_positions = {decision.position for decision in settled}
        self._open = [position for position in self._open if position not in settled_positions]
        return settled

    def is_informed(self, response: PromiseResponse) -> bool:
        """Returns True if the sender has learned durably the VOTERS value that set this term's voters."""
        # Only such answers count. So when the new voters have begun to decide, a majority of them knows for good that
        # they do, and the old voters are not needed any more.
        return response.learned_end > self._term.voters_position

    def settled_to(self, position: int) -> None:
        """Drops the open positions below `position`, because everything there is applied."""
        if self._open and self._open[0] < position:
            self._open = [open_position for open_position in self._open if open_position >= position]

    def _settle(self) -> Iterator[Settled]:
        for position in self._open:
            reported = {node: slots[position] for node, slots in self._answers.items() if position in slots}
            decision = self._decide(position, reported)
            if decision is not None:
                yield decision

    def _decide(self, position: int, reported: dict[int, Slot]) -> Settled | None:
        for slot in reported.values():
            if slot.learned:
                has_payload = _is_intact(slot.value, reported)
                # VOTERS must be read before anything else is decided, for their majority may decide already.
                may_copy = has_payload or not self._term.names_new_voters(position, slot.value)
                return Settled(position, slot.value, True, has_payload) if may_copy else None
        return self._of_accepted(position, reported) or self._by_name(position, reported)

    def _of_accepted(self, position: int, reported: dict[int, Slot]) -> Settled | None:
        for number in sorted({slot.number for slot in reported.values()}, reverse=True):
            # A value above this number may be chosen, and none of its copies is intact: to propose anything else is
            # never right, and to go on to smaller numbers would do that.
            if not self._may_decide(position, number, reported):
                return None
            values = [slot.value for slot in reported.values() if slot.number == number]
            # One number has one value at a position, so any slot that still knows the name tells it for all of them.
            value = next((value for value in values if value != UNKNOWN), UNKNOWN)
            # It may be chosen, and if anything is, it is this one. It keeps its birth, even if it is a ghost that will
            # turn out void: a NOP in its place could be a second chosen value.
            if _is_intact(value, reported):
                return Settled(position, value, False, True)
            if self._is_chosen(position, number, value, reported):
                return Settled(position, value, True, False)
            # In a union a value that has lost its name gives way to the number below: if that number's was chosen, the
            # lost one was the same value. A value with a name that comes this far is VOTERS, which must be read.
            if self._term.is_union and value != UNKNOWN:
                return None
        is_free = self._may_decide(position, NO_NUMBER, reported)
        if not is_free:
            return None
        # In a union the NOP breaks no order (`apply.py`): values behind the lost one may have been acknowledged.
        return Settled(position, given_up(position) if self._term.is_union else NOP, False, True)

    def _by_name(self, position: int, reported: dict[int, Slot]) -> Settled | None:
        """Settles a position that waits only for voters that have lost their votes: proposes the value accepted under
        the highest number by its digest, without its payload."""
        # Case 2, and safe whoever was waited for, since a quorum has to accept it, if only as faulty. To wait would be
        # but to hope for a copy, or for the word of a voter that the value was never chosen.
        if not (self._term.lost and self._term.lost.issuperset(self.unheard)):
            return None
        highest = max((slot.number for slot in reported.values()), default=NO_NUMBER)
        values = [slot.value for slot in reported.values() if slot.number == highest and slot.value.kind is Kind.APPEND]
        return Settled(position, values[0], False, False) if values else None

    def _may_decide(self, position: int, number: int, reported: dict[int, Slot]) -> bool:
        """Returns True if no value with a number above this one can be chosen at the position."""
        # In a union the values above have lost their names on every disk that will ever answer.
        deniers = self._none_above(number, reported)
        return self._term.is_union or all(blocks(deniers, decider) for decider in self._term.deciders(position))

    def _is_chosen(self, position: int, number: int, value: Value, reported: dict[int, Slot]) -> bool:
        """Returns True if a quorum has accepted this number at the position, and the value's digest is known."""
        # Such a value is chosen, whoever can still read it: it is learned by its name, and its payload is a matter of
        # repair. VOTERS are not settled this way, since they have to be read.
        if number == NO_NUMBER or value == UNKNOWN or self._term.names_new_voters(position, value):
            return False
        if self._term.is_union:
            return True
        # Each set that may be in force there has to have accepted it. Fewer prove nothing: the value may be a ghost.
        accepted = [node for node, slot in reported.items() if slot.number == number]
        return all(decider.is_met(accepted) for decider in self._term.deciders(position))

    def _none_above(self, number: int, reported: dict[int, Slot]) -> list[int]:
        """Returns the nodes that have promised, and have accepted no value above this number at the position."""
        # They never will, below the number of this fill. Voters that have not answered deny nothing, lost or not.
        return [node for node in self._answers if node not in reported or reported[node].number <= number]


def _is_intact(value: Value, reported: dict[int, Slot]) -> bool:
    return any(slot.value == value and not slot.faulty for slot in reported.values())
