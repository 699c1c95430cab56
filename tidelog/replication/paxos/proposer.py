"""A proposer: one number, from its promises to its writes. What a coordinator and a rejoining replica have in common.

It lives beside a replica of its node, and tells it what it finds chosen. It ends at the first sign of a larger number;
there is no way back, the object is thrown away. (A Mesos coordinator goes on as elected, under the number of the rival
that rejected it; the next write could then give one number two values.)

Answers without a decision, IGNORED and STORAGE_ERROR, are no answers: the timer asks again, and the caller sets the
deadline. (A quorum of IGNORED aborts a Mesos process; a lost message there waits for ever.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidelog.replication.paxos.events import Action, Applied, Awaits, Chosen, Lost, Send, SetTimer, Timer, VotersFound
from tidelog.replication.paxos.fill import Fill, Settled
from tidelog.replication.paxos.messages import LearnRequest, PromiseResponse, Reply, WriteResponse
from tidelog.replication.paxos.proposals import Proposals
from tidelog.replication.paxos.reign import Reign
from tidelog.replication.paxos.replica import Replica


class Proposer(ABC):
    """A proposer's attempt under one number, which must be durable as issued before `proceed`."""

    def __init__(self, number: int, reign: Reign, replica: Replica) -> None:
        self.number = number
        self.is_lost = False
        self._reign = reign
        self._replica = replica
        self._fill = Fill(number, reign, replica.applied.position)
        self._settled: list[Settled] = []
        self._voters: list[Settled] = []
        """Found open, and still to be written."""
        self._may_write = False
        self._proposals = Proposals(number, reign.quorum)
        self._is_timing = False
        self._told: Awaits | None = None

    @property
    def unsettled(self) -> tuple[int, ...]:
        """Positions that wait for a copy."""
        return self._fill.unsettled

    @property
    def unheard(self) -> tuple[int, ...]:
        """The voters that have not promised yet."""
        return self._fill.unheard

    def proceed(self) -> list[Action]:
        """Asks every member for a promise, now that the number is durable as issued."""
        return [*self._fill.requests(), *self._set_timer()]

    # -- answers -----------------------------------------------------------------------------------------------------

    def on_promise(self, sender: int, response: PromiseResponse) -> list[Action]:
        match response.reply:
            case Reply.REJECT:
                return self.lose(response.highest)
            case Reply.ACCEPT:
                return self._on_accept(sender, response)
            case _:
                return []

    def _on_accept(self, sender: int, response: PromiseResponse) -> list[Action]:
        if not self._fill.is_informed(response):
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
        """Writes nothing until it knows all that a quorum can tell: what somebody has learned is copied, and every open
        position decided. Any of it may be about other voters, with whom others decide already."""
        end, applied = self._fill.end, self._replica.applied.position
        if end is None or self._may_write or self.is_lost or not self._knows_voters():
            return []
        is_open = [settled for settled in self._settled if settled.position >= max(applied, self._fill.learned_end)]
        found = [VotersFound(s.position, s.value) for s in is_open if self._reign.is_news(s.position, s.value)]
        if found:
            return [*found, *self.lose(self.number)]
        if not self._fill.is_complete or applied < self._fill.learned_end:
            return []
        self._may_write = True
        voters = sorted(settled for settled in is_open if settled.value.names_voters(self._reign.voters_since))
        self._voters = [settled for settled in voters if not settled.is_learned]
        actions: list[Action] = []
        for settled in is_open:
            if not settled.is_learned and settled not in voters:
                is_named = not settled.has_payload
                actions += self._proposals.propose(settled.position, settled.value, is_named=is_named)
        return [*actions, *(self._write_voters() if voters else self._on_quorum(end))]

    def _write_voters(self) -> list[Action]:
        """VOTERS that were found are written when everything else is chosen, the last of them first. What stands behind
        them may be chosen by the old alone; the new, who then decide there, must have accepted it before."""
        if self._proposals or not self._voters:
            return []
        last = self._voters.pop()
        return self._proposals.propose(last.position, last.value)

    def _go_on(self) -> list[Action]:
        return self._write_voters() if self._may_write else self._begin_to_write()

    @abstractmethod
    def _on_quorum(self, end: int) -> list[Action]:
        """A quorum has promised, and nothing it knows is unknown here; nothing older is to be found from `end` on, and
        no VOTERS before it: with these a reign is over, and has nothing of its own to write."""
        ...

    def on_write(self, sender: int, response: WriteResponse) -> list[Action]:
        if response.position not in self._proposals:
            return []
        match response.reply:
            case Reply.ACCEPT:
                chosen = self._proposals.accepted(sender, response)
                return [] if chosen is None else self._chosen(chosen)
            case Reply.REJECT:
                return self.lose(response.highest)
            case Reply.LEARNED:
                return self._on_learned(sender, response)
            case _:
                return []

    def _on_learned(self, sender: int, response: WriteResponse) -> list[Action]:
        """Another value is chosen there, so under a larger number; or the position is chosen and gone."""
        if response.value is None:
            return [Send(sender, LearnRequest(self._replica.applied.position))]
        learned = self._replica.learn(response.position, response.value, has_payload=False)
        return [*learned, *self.lose(self._replica.highest)]

    def _chosen(self, chosen: Chosen) -> list[Action]:
        learned = self._replica.learn(chosen.position, chosen.value, has_payload=not chosen.is_named)
        return [*self._proposals.announce(chosen, self._reign.node), *learned, *self._write_voters()]

    # -- what the replica beside it reports --------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> list[Action]:
        """The next position is applied here, whoever had it chosen."""
        self._settled_to(applied.position + 1)
        return self._go_on() if self._knows_voters() else self.lose(self._replica.highest)

    def _knows_voters(self) -> bool:
        """Is nothing applied here that gives the log to other voters than those asked?"""
        return self._replica.voters_position <= self._reign.voters_position

    def on_jumped(self, position: int) -> list[Action]:
        """The log begins at `position` now: what lay before was chosen and truncated by somebody."""
        self._settled_to(position)
        return self._go_on()

    def _settled_to(self, position: int) -> None:
        self._fill.settled_to(position)
        self._proposals.settled_to(position)

    # -- time --------------------------------------------------------------------------------------------------------

    def on_timer(self) -> list[Action]:
        """Repeats what was not answered, as long as there is anything to wait for."""
        self._is_timing = False
        actions = [*self._tell_awaited(), *self._fill.requests(), *self._proposals.resend(), *self._copy()]
        return [*actions, *self._set_timer()] if actions or self._is_waiting() else []

    def _tell_awaited(self) -> list[Action]:
        """Tells what it waits for, unless that is known. A voter whose answer is just on its way is not worth a word,
        so it is told with the first repetition."""
        awaits = Awaits(self.unsettled[0], self.unheard) if self.unsettled else None
        if awaits is None or awaits == self._told:
            return []
        self._told = awaits
        return [awaits]

    @abstractmethod
    def _is_waiting(self) -> bool:
        """Is there something that no answer to a request of this proposer will bring?"""
        ...

    def _copy(self) -> list[Action]:
        """Asks for what a voter has learned and this node lacks."""
        source, applied = self._fill.source, self._replica.applied.position
        return [Send(source, LearnRequest(applied))] if source is not None and applied < self._fill.learned_end else []

    def _set_timer(self) -> list[Action]:
        if self._is_timing:
            return []
        self._is_timing = True
        return [SetTimer(Timer.RESEND, self.number)]

    def lose(self, highest: int) -> list[Action]:
        """Ends the attempt; what it proposed may be chosen or not."""
        if self.is_lost:
            return []
        self.is_lost = True
        return [Lost(self.number, highest)]
