"""A proposer: one number, from its promises to its writes. What a coordinator and a rejoining replica have in common.

It lives beside a replica of its node, and tells it what it finds chosen. It ends at the first sign of a larger number;
there is no way back, the object is thrown away. (A Mesos coordinator goes on as elected, under the number of the rival
that rejected it; the next write could then give one number two values.)

Answers without a decision, IGNORED and STORAGE_ERROR, are no answers: the timer asks again, and the caller sets the
deadline. (A quorum of IGNORED aborts a Mesos process; a lost message there waits for ever.)
"""

from __future__ import annotations

from tidelog.replication.paxos.events import Action, Applied, Lost, Send, SetTimer, Timer
from tidelog.replication.paxos.fill import Fill, Settled
from tidelog.replication.paxos.messages import LearnRequest, PromiseResponse, Reply, WriteResponse
from tidelog.replication.paxos.proposals import Proposals
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import Value
from tidelog.replication.quorum import Majority


class Proposer:
    """One attempt under one number, which must be durable as issued before `proceed`."""

    def __init__(self, number: int, node: int, quorum: Majority, replica: Replica) -> None:
        self.number = number
        self.is_lost = False
        self._node = node
        self._replica = replica
        self._fill = Fill(number, quorum, replica.applied.position)
        self._proposals = Proposals(number, quorum)
        self._is_timing = False

    @property
    def unsettled(self) -> tuple[int, ...]:
        """Positions that wait for a payload."""
        return self._fill.unsettled

    def proceed(self) -> list[Action]:
        """What was to be durable first is durable: asks everybody for a promise."""
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
        had_quorum = self._fill.end is not None
        actions: list[Action] = []
        for settled in self._fill.promised(sender, response):
            actions += self._settle(settled)
        if not had_quorum and self._fill.end is not None:
            actions += [*self._copy(), *self._on_quorum(self._fill.end)]
        return actions

    def _settle(self, settled: Settled) -> list[Action]:
        if settled.is_learned:
            return self._replica.learn(settled.position, settled.value, has_payload=settled.has_payload)
        if settled.position < self._replica.applied.position:
            return []
        return self._proposals.propose(settled.position, settled.value)

    def _on_quorum(self, end: int) -> list[Action]:
        """A quorum has promised; nothing older is to be found from `end` on."""
        raise NotImplementedError

    def on_write(self, sender: int, response: WriteResponse) -> list[Action]:
        if response.position not in self._proposals:
            return []
        match response.reply:
            case Reply.ACCEPT:
                value = self._proposals.accepted(sender, response)
                return [] if value is None else self._chosen(response.position, value)
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

    def _chosen(self, position: int, value: Value) -> list[Action]:
        learned = self._replica.learn(position, value, has_payload=True)
        return [*self._proposals.announce(position, value, self._node), *learned]

    # -- what the replica beside it reports --------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> list[Action]:
        """The next position is applied here, whoever had it chosen."""
        self._settled_to(applied.position + 1)
        return []

    def on_jumped(self, position: int) -> list[Action]:
        """The log begins at `position` now: what lay before was chosen and truncated by somebody."""
        self._settled_to(position)
        return []

    def _settled_to(self, position: int) -> None:
        self._fill.settled_to(position)
        self._proposals.settled_to(position)

    # -- time --------------------------------------------------------------------------------------------------------

    def on_timer(self) -> list[Action]:
        """Repeats what was not answered, as long as there is anything to wait for."""
        self._is_timing = False
        actions = [*self._fill.requests(), *self._proposals.resend(), *self._copy()]
        return [*actions, *self._set_timer()] if actions or self._is_waiting() else []

    def _is_waiting(self) -> bool:
        """Is there something that no answer to a request of this proposer will bring?"""
        raise NotImplementedError

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
