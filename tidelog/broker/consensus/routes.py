"""Routes from engine ids to brokers.

Voters are named with their node in the voter set, and an id is given out once: what a set has said of it stays true. A
learner's id tells its node. So a message that comes from another node than the one its sender's id belongs to is
nobody's, and teaches nothing. An id that no set here has named yet, a voter's to be, is taken for that of the node on
whose connection it came, until a set says so or otherwise: it counts in no quorum before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.model.errors import ForeignSender
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.numbers import LEARNER_BASE
from tidelog.replication.paxos.voters import VoterSet

Notify = Callable[[int, PaxosFrame | ElectionFrame, Sequence[Buffer]], object]
"""Sends a message to a broker, if it can."""


NODES_MAX = 1_024
"""Nodes, and ids that no set has named, of which something is remembered."""


class Routes:
    """The book that one broker keeps of the others."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._agreed: dict[int, int] = {}
        """The nodes of all ids that a voter set here has named."""
        self._guessed: dict[int, int] = {}
        """The nodes that go by other ids, as they say themselves."""
        self._ids: dict[int, int] = {}

    def set_voters(self, voters: VoterSet) -> None:
        """Takes over which ids are which brokers', as a voter set says."""
        for voter in voters.voters:
            self._agreed[voter.voter_id] = voter.node_id
            # From now on the log says whose the id is, and no connection can claim it.
            self._guessed.pop(voter.voter_id, None)

    def check(self, engine_id: int, node_id: int) -> None:
        """Raises `ForeignSender` if this id is known to be another broker's."""
        owner = self._owner_of(engine_id)
        if owner is not None and owner != node_id:
            raise _foreign(engine_id, node_id, owner)

    def heard(self, engine_id: int, node_id: int) -> None:
        """Notes that a message came from this broker under this id. Raises as `check`."""
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
        """Returns the id that the broker used last; a learner's, if it has not been heard of."""
        return self._ids.get(node_id, LEARNER_BASE + node_id)

    def ids_on(self, node_id: int) -> list[int]:
        """Returns all ids that are known to be this broker's."""
        nodes = {**self._guessed, **self._agreed}
        return [engine_id for engine_id, node in nodes.items() if node == node_id]

    def post(self, to: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer] = ()) -> None:
        """Sends a message to the broker that goes by this id, if one is known to. It may be lost in any case."""
        node_id = self.node_of(to)
        if node_id is not None:
            self._notify(node_id, frame, payloads)


def _foreign(engine_id: int, node_id: int, owner: int) -> ForeignSender:
    return ForeignSender(f"node {node_id} spoke under the id {engine_id}, which is that of node {owner}")


def _note(book: dict[int, int], key: int, value: int) -> None:
    """Adds an entry, and drops the oldest one if there are too many."""
    book[key] = value
    # Ids come from the network, so what is noted of them is bounded.
    if len(book) > NODES_MAX:
        del book[next(iter(book))]
