"""Catch-up: copies values that other replicas have learned.

A chosen value never changes, so any replica's learned copy is as good as another's, and no proposal number is needed. A
position that no replica has learned stays open: coordinators settle it. (Mesos runs a Paxos round for each position
instead.)

`Learned` notices may be lost unnoticed, so a replica asks its peers in turn, one at each expiry of the CATCHUP timer,
from the first position that it lacks. If an answer shows that there is more, the next request follows at once. In the
same way, the payloads of faulty slots (those that cannot be read here) are fetched again, a few per expiry. A peer that
has not answered yet whether it has a payload is asked at every expiry, before its turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.replication.paxos.events import Action, Send, SetTimer, Timer
from tidelog.replication.paxos.messages import LearnRequest, LearnResponse
from tidelog.replication.paxos.replica import Replica

REPAIRS_PER_BEAT = 8
"""The number of missing payloads that one peer is asked for at each expiry of the timer."""
# More than one, because the last one to come may lack the same as this replica.
STRANGERS_MAX = 4
"""The number of nodes that are asked for values although they are not known as peers; the newest are kept."""


class Catchup:
    """The catch-up of one replica. `peers` are the other members of the log, as far as this replica knows."""

    def __init__(self, peers: Sequence[int], replica: Replica) -> None:
        self._peers = tuple(peers)
        self._replica = replica
        self._strangers: tuple[int, ...] = ()
        self._next_missing: dict[int, int] = {}
        """The position, for each peer, from which on this replica asks it for missing payloads next."""
        self._lacking: dict[int, set[int]] = {}
        """The peers, for each position whose payload cannot be read here, that have learned the position and lack its
        payload, too."""
        self._turn = 0

    def lacking(self, position: int) -> frozenset[int]:
        """Returns the peers that have learned this position and lack its payload, too."""
        return frozenset(self._lacking.get(position, ()))

    def meet(self, proposer: int) -> None:
        """Remembers the sender of a proposal as a node to ask for values, if it is not a known peer."""
        if proposer not in (*self._peers, *self._strangers):
            # The members have changed, and all peers that are known here may be gone: then only a proposer of the new
            # voters can tell who they are.
            self._strangers = (*self._strangers, proposer)[-STRANGERS_MAX:]

    def on_request(self, sender: int, position: int) -> None:
        """Remembers a node that asks for learned positions from `position` on as a node to ask for values, if it may
        have something that this replica lacks."""
        # As a rule it lacks them. But one that is further on has what this replica lacks; and if a payload cannot be
        # read here, that may be the list of members, and the sender one that is not known here.
        if position > self._replica.applied.position or self._replica.faulty():
            self.meet(sender)

    def on_timer(self) -> list[Action]:
        """Requests learned values and missing payloads from the next peer in turn, and from every other peer those
        missing payloads about which it has not answered yet. Sets the timer again."""
        peers = (*self._peers, *self._strangers)
        if not peers:
            return [SetTimer(Timer.CATCHUP)]
        self._turn = (self._turn + 1) % len(peers)
        other_peers = (peer for peer in peers if peer != peers[self._turn])
        requests = [*self.ask(peers[self._turn]), *(send for peer in other_peers for send in self._ask_whether(peer))]
        return [*requests, SetTimer(Timer.CATCHUP)]

    def _ask_whether(self, peer: int) -> list[Action]:
        """Returns requests for the first missing payloads about which this peer has not answered yet."""
        unanswered = [position for position in self._replica.faulty() if peer not in self._lacking.get(position, ())]
        return [Send(peer, LearnRequest(missing, missing + 1)) for missing in unanswered[:REPAIRS_PER_BEAT]]

    def ask(self, peer: int) -> list[Action]:
        """Returns requests to a peer for the next positions, and for some of the missing payloads."""
        requests: list[Action] = [Send(peer, self._replica.request())]
        return [*requests, *(Send(peer, LearnRequest(missing, missing + 1)) for missing in self._turn_of(peer))]

    def _turn_of(self, peer: int) -> list[int]:
        """Returns the positions whose payloads this peer is asked for next: at most `REPAIRS_PER_BEAT`, in rotation."""
        faulty, next_position = self._replica.faulty(), self._next_missing.get(peer, 0)
        # In turn, not always the first ones: a payload that is lost everywhere must not hold up others, or VOTERS.
        positions = sorted(faulty, key=lambda position: (position < next_position, position))[:REPAIRS_PER_BEAT]
        if positions:
            self._next_missing[peer] = positions[-1] + 1
        return positions

    def on_response(self, sender: int, response: LearnResponse) -> list[Action]:
        applied_before = self._replica.applied.position
        effects = self._replica.take(response)
        self._note_lacking(sender, response)
        applied_now = self._replica.applied.position
        # Only after progress: a peer whose answers bring nothing is not asked without end.
        if applied_before < applied_now < response.learned_end:
            effects += [Send(sender, self._replica.request())]
        return effects

    def _note_lacking(self, sender: int, response: LearnResponse) -> None:
        faulty = set(self._replica.faulty())
        self._lacking = {position: peers for position, peers in self._lacking.items() if position in faulty}
        for slot in response.slots:
            if slot.position in faulty and slot.faulty:
                self._lacking.setdefault(slot.position, set()).add(sender)
