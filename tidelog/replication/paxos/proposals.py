"""Writes in flight under one proposal number: which replicas have accepted each value, until a quorum has.

A value is chosen as soon as a quorum has accepted it under one number, even if no node knows that yet. The proposer is
the first to count. Requests are repeated until the value is chosen or the position is applied, since an answer may be
lost; a repeated write is answered like the first.
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
    is_adopted: bool = False
    """True if a node has answered that the value is chosen already."""


class Proposals:
    """The writes in flight of one proposer, under its proposal number."""

    def __init__(self, number: int, quorum: Quorum) -> None:
        self._number = number
        self._quorum = quorum
        self._open: dict[int, _Proposal] = {}

    def __contains__(self, position: int) -> bool:
        return position in self._open

    def __bool__(self) -> bool:
        return bool(self._open)

    def propose(self, position: int, value: Value, *, is_lazy: bool = False, is_named: bool = False) -> list[Action]:
        """Returns requests to every member to accept the value; with `is_named`, by its digest alone, because no node
        has its payload."""
        # A second proposal under the same number could give (position, number) two values.
        assert position not in self._open
        self._open[position] = _Proposal(value, is_lazy, is_named)
        request = WriteRequest(self._number, position, value, is_lazy, is_named)
        return [Send(node, request) for node in self._quorum.members]

    def accepted(self, sender: int, response: WriteResponse) -> Chosen | None:
        """Counts an ACCEPT of an open position; returns `Chosen` if it completes a quorum."""
        assert response.number == self._number and response.reply is Reply.ACCEPT
        proposal = self._open[response.position]
        # A learner, or a disk that goes by a former id, may answer too; only members count.
        if sender not in self._quorum:
            return None
        proposal.accepted_by.add(sender)
        proposal.is_adopted |= response.is_learned
        if not self._quorum.is_met(proposal.accepted_by):
            return None
        del self._open[response.position]
        accepted_by = tuple(sorted(proposal.accepted_by))
        return Chosen(response.position, proposal.value, accepted_by, proposal.is_named, proposal.is_adopted)

    def announce(self, chosen: Chosen, me: int) -> list[Action]:
        """Notifies the other members, and the caller, that a value is chosen."""
        # The notice is not acknowledged, and may be lost together with this node: peers ask for what they lack, and the
        # next coordinator's fill finds the value.
        notice = Learned(chosen.position, chosen.value)
        return [chosen, *(Send(node, notice) for node in self._quorum.members if node != me)]

    def settled_to(self, position: int) -> None:
        """Drops the proposals below `position`, because all values there are applied, whichever proposer they came
        from."""
        for settled in [open_position for open_position in self._open if open_position < position]:
            del self._open[settled]

    def resend(self) -> list[Action]:
        """Returns the requests that were not answered, lowest position first."""
        return [
            Send(node, WriteRequest(self._number, position, proposal.value, proposal.is_lazy, proposal.is_named))
            for position, proposal in sorted(self._open.items())
            for node in self._quorum.members
            if node not in proposal.accepted_by
        ]
