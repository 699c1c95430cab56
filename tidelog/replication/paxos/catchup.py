"""Catching up: copying what others have learned.

A value is chosen for good, so any replica's learned copy is as good as another's, and no number is needed. What nobody
has learned stays open: to settle it is the coordinators' work. (Mesos runs a Paxos round for each position instead.)

Notices are lost without anybody's noticing, so a replica asks its peers in turn, one at each beat of the timer, from
the first position on that it lacks. An answer that shows more to be had is followed up at once. In the same way, the
payloads of faulty slots are fetched again, some more at each beat. A peer that has not said yet whether it has one is
asked at every beat, before its turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.paxos.events import Action, Send, SetTimer, Timer
from tidelog.replication.paxos.messages import LearnRequest, LearnResponse
from tidelog.replication.paxos.replica import Replica

REPAIRS_PER_BEAT = 8
"""The number of payloads that one peer is asked for at a time."""
# More than one, because the last one to come may lack the same as this replica.
STRANGERS_MAX = 4
"""The number of nodes, the newest, that are asked although they are no peers."""


class Catchup:
    """The catch-up of one replica. `peers` are the other members, as far as it knows."""

    def __init__(self, peers: Sequence[int], replica: Replica) -> None:
        self._peers = tuple(peers)
        self._replica = replica
        self._strangers: tuple[int, ...] = ()
        self._asked_below: dict[int, int] = {}
        """The position, for each peer, from which on it is asked for missing payloads next."""
        self._lacking: dict[int, set[int]] = {}
        """The peers, for each faulty position, that have learned it and lack its payload, too."""
        self._turn = 0

    def lacking(self, position: int) -> frozenset[int]:
        """Returns the peers that have learned this position and lack its payload, too."""
        return frozenset(self._lacking.get(position, ()))

    def meet(self, proposer: int) -> None:
        """Notes that `proposer` writes to this log, or tries to. If it is no peer, it is asked as well."""
        if proposer not in (*self._peers, *self._strangers):
            # The members have changed, and all peers that are known here may be gone: then only a proposer of the new
            # voters can tell who they are.
            self._strangers = (*self._strangers, proposer)[-STRANGERS_MAX:]

    def asked(self, sender: int, position: int) -> None:
        """Notes that `sender` asks for learned positions from `position` on; it may be one to ask."""
        # As a rule it lacks them. But one that is further on has what this replica lacks; and if a payload cannot be
        # read here, that may be the list of members, and the sender one that is not known here.
        if position > self._replica.applied.position or self._replica.faulty():
            self.meet(sender)

    def on_timer(self) -> list[Action]:
        """Asks the next peer, and sets the timer again."""
        peers = (*self._peers, *self._strangers)
        if not peers:
            return [SetTimer(Timer.CATCHUP)]
        self._turn = (self._turn + 1) % len(peers)
        other_peers = (peer for peer in peers if peer != peers[self._turn])
        requests = [*self.ask(peers[self._turn]), *(send for peer in other_peers for send in self._ask_whether(peer))]
        return [*requests, SetTimer(Timer.CATCHUP)]

    def _ask_whether(self, peer: int) -> list[Action]:
        """Asks for the first payloads of which this peer has not said yet if it has them."""
        unanswered = [position for position in self._replica.faulty() if peer not in self._lacking.get(position, ())]
        return [Send(peer, LearnRequest(missing, missing + 1)) for missing in unanswered[:REPAIRS_PER_BEAT]]

    def ask(self, peer: int) -> list[Action]:
        """Asks a peer for the next positions, and for some of the payloads that are missing."""
        requests: list[Action] = [Send(peer, LearnRequest(self._replica.applied.position))]
        return [*requests, *(Send(peer, LearnRequest(missing, missing + 1)) for missing in self._turn_of(peer))]

    def _turn_of(self, peer: int) -> list[int]:
        """Returns the faulty positions that this peer is asked for now; behind the last, from the first on again."""
        faulty, next_position = self._replica.faulty(), self._asked_below.get(peer, 0)
        # In turn, not always the first ones: a payload that is lost everywhere must not hold up others, or VOTERS.
        positions = sorted(faulty, key=lambda position: (position < next_position, position))[:REPAIRS_PER_BEAT]
        if positions:
            self._asked_below[peer] = positions[-1] + 1
        return positions

    def on_response(self, sender: int, response: LearnResponse) -> list[Action]:
        applied_before = self._replica.applied.position
        effects = self._replica.take(response)
        self._note_lacking(sender, response)
        applied_now = self._replica.applied.position
        # Only after progress: a peer whose answers bring nothing is not asked without end.
        if applied_before < applied_now < response.learned_end:
            effects += [Send(sender, LearnRequest(applied_now))]
        return effects

    def _note_lacking(self, sender: int, response: LearnResponse) -> None:
        faulty = set(self._replica.faulty())
        self._lacking = {position: peers for position, peers in self._lacking.items() if position in faulty}
        for slot in response.slots:
            if slot.position in faulty and slot.faulty:
                self._lacking.setdefault(slot.position, set()).add(sender)
