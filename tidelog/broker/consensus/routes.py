"""Routes from engine ids to brokers.

Voters are named with their node in the voter set. A learner's id tells its node, and so does every message: an id whose
set is not applied here yet, a voter's to be, is known from the connection that its first message came on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.numbers import LEARNER_BASE
from tidelog.replication.paxos.voters import VoterSet

Notify = Callable[[int, PaxosFrame | ElectionFrame, Sequence[Buffer]], object]
"""Sends a message to a broker, if it can."""


class Routes:
    """The book that one broker keeps of the others."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._nodes: dict[int, int] = {}
        self._ids: dict[int, int] = {}

    def set_voters(self, voters: VoterSet) -> None:
        """These ids are these brokers', by agreement."""
        for voter in voters.voters:
            self._nodes[voter.voter_id] = voter.node_id

    def heard(self, engine_id: int, node_id: int) -> None:
        """A message came from this broker under this id."""
        self._nodes[engine_id] = node_id
        self._ids[node_id] = engine_id

    def node_of(self, engine_id: int) -> int | None:
        if engine_id >= LEARNER_BASE:
            return engine_id - LEARNER_BASE
        return self._nodes.get(engine_id)

    def id_of(self, node_id: int) -> int:
        """The id that the broker last used; as a learner, if it has not been heard of."""
        return self._ids.get(node_id, LEARNER_BASE + node_id)

    def ids_on(self, node_id: int) -> list[int]:
        """All ids that are known to be this broker's."""
        return [engine_id for engine_id, node in self._nodes.items() if node == node_id]

    def post(self, to: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer] = ()) -> None:
        """Sends it on, if it is known whereto; a message may be lost in any case."""
        node_id = self.node_of(to)
        if node_id is not None:
            self._notify(node_id, frame, payloads)
