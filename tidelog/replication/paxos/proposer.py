"""A proposer's attempt under one proposal number, from its promises to its writes: the common part of a coordinator and
a rejoining replica.

It belongs to a replica of the same node, to which it reports the values that it finds chosen. It ends at the first sign
of a larger number; then the object is discarded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidelog.replication.paxos.events import Action, Applied, Awaits, Chosen, Lost, Send, SetTimer, Timer, VotersFound
from tidelog.replication.paxos.fill import Fill, Settled
from tidelog.replication.paxos.messages import LearnRequest, PromiseResponse, Reply, WriteResponse
from tidelog.replication.paxos.proposals import Proposals
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.term import Term


class Proposer(ABC):
    """A proposer's attempt under one proposal number. The caller makes the number durable as issued, and then calls
    `proceed`."""

    def __init__(self, number: int, term: Term, replica: Replica) -> None:
        self.number = number
        self.is_lost = False
        self._term = term
        self._replica = replica
        self._fill = Fill(number, term, replica.applied.position)
        self._settled: list[Settled] = []
        self._voters: list[Settled] = []
        """Values with new voters (VOTERS) that the promise phase has found, and that are still to be proposed again."""
        self._may_write = False
        self._proposals = Proposals(number, term.quorum)
        self._is_timing = False
        self._reported: Awaits | None = None

    @property
    def unsettled(self) -> tuple[int, ...]:
        """Returns the positions that wait for an intact copy of a value that may be chosen."""
        return self._fill.unsettled

    @property
    def unheard(self) -> tuple[int, ...]:
        """Returns the voters that have not promised yet in this attempt."""
        return self._fill.unheard

    def proceed(self) -> list[Action]:
        """Sends every member a promise request, now that the proposal number is durable as issued."""
        return [*self._fill.requests(), *self._set_timer()]

    # -- answers -----------------------------------------------------------------------------------------------------

    def on_promise(self, sender: int, response: PromiseResponse) -> list[Action]:
        match response.reply:
            case Reply.REJECT:
                return self.lose(response.highest)
            case Reply.ACCEPT:
                return self._on_accept(sender, response)
            case _:
                # IGNORED and STORAGE_ERROR decide nothing: the timer asks again, and the caller sets the deadline. (A
                # quorum of IGNORED aborts a Mesos process.)
                return []

    def _on_accept(self, sender: int, response: PromiseResponse) -> list[Action]:
        if not self._fill.is_informed(response):
            # The sender has not learned the VOTERS that this term goes by. It gets them, and is asked again.
            return self._replica.tell(sender, LearnRequest(response.learned_end))
        had_quorum = self._fill.end is not None
        actions: list[Action] = []
        for settled in self._fill.promised(sender, response):
            self._settled.append(settled)
            if settled.is_learned:
                actions += self._replica.learn(settled.position, settled.value, has_payload=settled.has_payload)
        if not had_quorum and self._fill.end is not None:
            actions += self._copy()
        return [*actions, *self._begin_to_write()]

    def _begin_to_write(self) -> list[Action]:
        """Proposes values for the open positions, once every value that a promising node has learned is copied and
        every open position is decided."""
        # Nothing before that: any of it may be VOTERS, and a majority of theirs may decide already, without those whom
        # this term asks.
        end, applied = self._fill.end, self._replica.applied.position
        if end is None or self._may_write or self.is_lost or not self._knows_voters():
            return []
        unapplied = [settled for settled in self._settled if settled.position >= max(applied, self._fill.learned_end)]
        new_voters = [
            VotersFound(settled.position, settled.value)
            for settled in unapplied
            if self._term.names_new_voters(settled.position, settled.value)
        ]
        if new_voters:
            # Having written nothing, it ends; the next attempt asks these voters as well.
            return [*new_voters, *self.lose(self.number)]
        if not self._fill.is_complete or applied < self._fill.learned_end:
            return []
        self._may_write = True
        # Learned VOTERS need no proposal. But this term is over when they are applied, so it raises no barrier then.
        voters = sorted(settled for settled in unapplied if settled.value.names_voters(self._term.voters_since))
        self._voters = [settled for settled in voters if not settled.is_learned]
        actions: list[Action] = []
        for settled in unapplied:
            if not settled.is_learned and settled not in voters:
                is_named = not settled.has_payload
                actions += self._proposals.propose(settled.position, settled.value, is_named=is_named)
        return [*actions, *(self._write_voters() if voters else self._on_quorum(end))]

    def _write_voters(self) -> list[Action]:
        """Proposes one of the VOTERS values again that the promise phase has found, the last of them first, once
        nothing else is in flight."""
        # Values behind them may have been chosen by the old voters alone. The new ones, who decide there as soon as the
        # VOTERS are chosen, must have accepted these values before, or could choose others.
        if self._proposals or not self._voters:
            return []
        last_voters = self._voters.pop()
        return self._proposals.propose(last_voters.position, last_voters.value)

    def _go_on(self) -> list[Action]:
        return self._write_voters() if self._may_write else self._begin_to_write()

    @abstractmethod
    def _on_quorum(self, end: int) -> list[Action]:
        """Begins with the proposer's own values: a quorum has promised, what its members have learned is copied, and
        all VOTERS values found are chosen. Older values are only below position `end`."""

    def on_write(self, sender: int, response: WriteResponse) -> list[Action]:
        if response.position not in self._proposals:
            return []
        match response.reply:
            case Reply.ACCEPT:
                chosen = self._proposals.accepted(sender, response)
                return [] if chosen is None else self._chosen(chosen)
            case Reply.REJECT:
                # The write's outcome is unknown, not "not written": others may have accepted it. A Mesos coordinator
                # goes on as elected, under the rival's number, and could then give one number two values.
                return self.lose(response.highest)
            case Reply.LEARNED:
                return self._on_learned(sender, response)
            case _:
                return []

    def _on_learned(self, sender: int, response: WriteResponse) -> list[Action]:
        """Takes the answer that a value is chosen at the position already: learns that value, and ends the attempt. If
        the sender has truncated the position, requests its learned slots instead."""
        if response.value is None:
            # The position is truncated at the sender. What was chosen there may be the value that is proposed here.
            return [Send(sender, self._replica.request())]
        learned = self._replica.learn(response.position, response.value, has_payload=False)
        return [*learned, *self.lose(self._replica.highest)]

    def _chosen(self, chosen: Chosen) -> list[Action]:
        learned = self._replica.learn(chosen.position, chosen.value, has_payload=not chosen.is_named)
        return [*self._proposals.announce(chosen, self._term.node), *learned, *self._write_voters()]

    # -- what the replica beside it reports --------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> list[Action]:
        """Takes note that the next position is applied here, by whichever proposer its value was chosen."""
        self._settled_to(applied.position + 1)
        return self._go_on() if self._knows_voters() else self.lose(self._replica.highest)

    def _knows_voters(self) -> bool:
        """True unless a newer VOTERS value is applied here than the one that set this term's voters."""
        return self._replica.voters_position <= self._term.voters_position

    def on_jumped(self, position: int) -> list[Action]:
        """Takes note that the log begins at `position` now: the positions below were chosen, and truncated."""
        self._settled_to(position)
        return self._go_on()

    def _settled_to(self, position: int) -> None:
        self._fill.settled_to(position)
        self._proposals.settled_to(position)

    # -- time --------------------------------------------------------------------------------------------------------

    def on_timer(self) -> list[Action]:
        """Repeats the requests that were not answered, and sets the timer again while the attempt waits for answers."""
        self._is_timing = False
        actions = [*self._tell_awaited(), *self._fill.requests(), *self._proposals.resend(), *self._copy()]
        return [*actions, *self._set_timer()] if actions or self._is_waiting() else []

    def _tell_awaited(self) -> list[Action]:
        """Returns `Awaits` if the attempt waits for an intact copy, and has not reported that yet."""
        # Only from the first repetition on: the answer that is missing may just be on its way.
        awaits = Awaits(self.unsettled[0], self.unheard) if self.unsettled else None
        if awaits is None or awaits == self._reported:
            return []
        self._reported = awaits
        return [awaits]

    @abstractmethod
    def _is_waiting(self) -> bool:
        """True while the attempt waits for values to be applied here: a coordinator for its own, a fence for all below
        its end."""

    def _copy(self) -> list[Action]:
        """Returns a request to the node `Fill.source` for learned slots that this node lacks."""
        source, applied = self._fill.source, self._replica.applied.position
        return (
            [Send(source, self._replica.request())] if source is not None and applied < self._fill.learned_end else []
        )

    def _set_timer(self) -> list[Action]:
        if self._is_timing:
            return []
        self._is_timing = True
        return [SetTimer(Timer.RESEND, self.number)]

    def lose(self, highest: int) -> list[Action]:
        """Ends the attempt, and reports it as `Lost`; the values that it proposed may be chosen or not."""
        assert not self.is_lost, "its node has thrown away a proposer that is lost"
        self.is_lost = True
        return [Lost(self.number, highest)]
