"""Routes from engine ids to brokers.

A voter set names each voter's node, and an id is given out once: so this mapping never changes. A learner's id contains
its node id. A message whose sender id belongs to another node than the one it came from is refused, and leaves no
trace. An id that no voter set has named yet, such as a future voter's, is mapped to the node on whose connection it
came, until a voter set names it: it counts in no quorum before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.model.errors import ForeignSender
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.numbers import LEARNER_BASE
from tidelog.replication.paxos.voters import VoterSet

Notify = Callable[[int, PaxosFrame | ElectionFrame, Sequence[Buffer]], object]
"""Sends a message with payloads to a broker, if there is a connection."""


NODES_MAX = 1_024
"""Upper bound of the nodes, and of the unnamed ids, that are remembered."""


class Routes:
    """The mapping of engine ids to node ids on one broker."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._agreed: dict[int, int] = {}
        """Node id of every engine id that a voter set has named."""
        self._guessed: dict[int, int] = {}
        """Node id of other engine ids: that of the broker whose connection brought their messages."""
        self._ids: dict[int, int] = {}

    def set_voters(self, voters: VoterSet) -> None:
        """Adds the node ids of a voter set's ids to the mapping."""
        for voter in voters.voters:
            self._agreed[voter.voter_id] = voter.node_id
            # From now on the log says whose the id is, and no connection can claim it.
            self._guessed.pop(voter.voter_id, None)

    def check(self, engine_id: int, node_id: int) -> None:
        """Raises `ForeignSender` if this id is known to belong to another broker."""
        owner = self._owner_of(engine_id)
        if owner is not None and owner != node_id:
            raise _foreign(engine_id, node_id, owner)

    def heard(self, engine_id: int, node_id: int) -> None:
        """Notes that a message came from this broker under this id. Raises `ForeignSender` if the id is known to belong
        to another broker."""
        owner = self._owner_of(engine_id)
        if owner is None:
            # A guess routes answers, and nothing else: the id is in no quorum before a voter set names it.
            _note(self._guessed, engine_id, node_id)
        elif owner != node_id:
            raise _foreign(engine_id, node_id, owner)
        _note(self._ids, node_id, engine_id)

    def _owner_of(self, engine_id: int) -> int | None:
        # A learner's id is made of its node's, so it needs no agreement.
        return engine_id - LEARNER_BASE if engine_id >= LEARNER_BASE else self._agreed.get(engine_id)

    def node_of(self, engine_id: int) -> int | None:
        owner = self._owner_of(engine_id)
        return self._guessed.get(engine_id) if owner is None else owner

    def id_of(self, node_id: int) -> int:
        """Returns the engine id that the broker used last; its learner id, if it has sent nothing yet."""
        return self._ids.get(node_id, LEARNER_BASE + node_id)

    def ids_on(self, node_id: int) -> list[int]:
        """Returns all engine ids that are known to belong to this broker."""
        nodes = {**self._guessed, **self._agreed}
        return [engine_id for engine_id, node in nodes.items() if node == node_id]

    def post(self, to: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer] = ()) -> None:
        """Sends a message to the broker that has the engine id `to`, if one is known. It may be lost."""
        node_id = self.node_of(to)
        if node_id is not None:
            self._notify(node_id, frame, payloads)


def _foreign(engine_id: int, node_id: int, owner: int) -> ForeignSender:
    return ForeignSender(f"node {node_id} spoke under the id {engine_id}, which is that of node {owner}")


def _note(book: dict[int, int], key: int, value: int) -> None:
    """Adds an entry to a bounded mapping, and drops the oldest one if there are too many."""
    book[key] = value
    # Ids come from the network, so what is noted of them is bounded.
    if len(book) > NODES_MAX:
        del book[next(iter(book))]
