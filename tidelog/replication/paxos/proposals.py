"""Writes in flight under one number: which replicas have accepted what, until a quorum has.

An accepted value is chosen as soon as a quorum accepted it under one number, whoever knows of it. The proposer is the
first to count; its notice is never acknowledged and may be lost with it (the next coordinator's fill finds the value
again). Requests are repeated until the value is chosen or the position is applied, since an answer may be lost as well;
a repeated write is answered as the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.replication.paxos.events import Action, Chosen, Send
from tidelog.replication.paxos.messages import Learned, Reply, WriteRequest, WriteResponse
from tidelog.replication.paxos.state import Value
from tidelog.replication.quorum import Quorum


@dataclass(slots=True)
class _Proposal:
    value: Value
    is_lazy: bool
    is_named: bool
    accepted_by: set[int] = field(default_factory=set)


class Proposals:
    """The writes in flight of one proposer, under its number."""

    def __init__(self, number: int, quorum: Quorum) -> None:
        self._number = number
        self._quorum = quorum
        self._open: dict[int, _Proposal] = {}

    def __contains__(self, position: int) -> bool:
        return position in self._open

    def __bool__(self) -> bool:
        return bool(self._open)

    def propose(self, position: int, value: Value, *, is_lazy: bool = False, is_named: bool = False) -> list[Action]:
        """Asks every member to accept the value; by its name alone, if nobody has its payload."""
        assert position not in self._open
        self._open[position] = _Proposal(value, is_lazy, is_named)
        request = WriteRequest(self._number, position, value, is_lazy, is_named)
        return [Send(node, request) for node in self._quorum.members]

    def accepted(self, sender: int, response: WriteResponse) -> Chosen | None:
        """Counts an ACCEPT; says so if that makes the value chosen."""
        assert response.number == self._number and response.reply is Reply.ACCEPT
        proposal = self._open.get(response.position)
        if proposal is None or sender not in self._quorum:
            return None
        proposal.accepted_by.add(sender)
        if not self._quorum.is_met(proposal.accepted_by):
            return None
        del self._open[response.position]
        return Chosen(response.position, proposal.value, tuple(sorted(proposal.accepted_by)), proposal.is_named)

    def announce(self, chosen: Chosen, me: int) -> list[Action]:
        """Tells the others, and the caller, that a value is chosen."""
        notice = Learned(chosen.position, chosen.value)
        return [chosen, *(Send(node, notice) for node in self._quorum.members if node != me)]

    def settled_to(self, position: int) -> None:
        """Everything below is applied here, whoever had it chosen: nothing is left to do there."""
        for settled in [p for p in self._open if p < position]:
            del self._open[settled]

    def resend(self) -> list[Action]:
        """The requests that were not answered, lowest position first."""
        return [
            Send(node, WriteRequest(self._number, position, proposal.value, proposal.is_lazy, proposal.is_named))
            for position, proposal in sorted(self._open.items())
            for node in self._quorum.members
            if node not in proposal.accepted_by
        ]
