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
        """These ids are these brokers', by agreement."""
        for voter in voters.voters:
            self._agreed[voter.voter_id] = voter.node_id
            self._guessed.pop(voter.voter_id, None)

    def check(self, engine_id: int, node_id: int) -> None:
        """Raises `ForeignSender` if this id is known to be another broker's."""
        known = self._owner_of(engine_id)
        if known is not None and known != node_id:
            raise _foreign(engine_id, node_id, known)

    def heard(self, engine_id: int, node_id: int) -> None:
        """A message came from this broker under this id. Raises as `check`."""
        known = self._owner_of(engine_id)
        if known is None:
            _note(self._guessed, engine_id, node_id)
        elif known != node_id:
            raise _foreign(engine_id, node_id, known)
        _note(self._ids, node_id, engine_id)

    def _owner_of(self, engine_id: int) -> int | None:
        return engine_id - LEARNER_BASE if engine_id >= LEARNER_BASE else self._agreed.get(engine_id)

    def node_of(self, engine_id: int) -> int | None:
        known = self._owner_of(engine_id)
        return self._guessed.get(engine_id) if known is None else known

    def id_of(self, node_id: int) -> int:
        """The id that the broker last used; as a learner, if it has not been heard of."""
        return self._ids.get(node_id, LEARNER_BASE + node_id)

    def ids_on(self, node_id: int) -> list[int]:
        """All ids that are known to be this broker's."""
        known = {**self._guessed, **self._agreed}
        return [engine_id for engine_id, node in known.items() if node == node_id]

    def post(self, to: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer] = ()) -> None:
        """Sends it on, if it is known whereto; a message may be lost in any case."""
        node_id = self.node_of(to)
        if node_id is not None:
            self._notify(node_id, frame, payloads)


def _foreign(engine_id: int, node_id: int, owner: int) -> ForeignSender:
    return ForeignSender(f"node {node_id} spoke under the id {engine_id}, which is that of node {owner}")


def _note(book: dict[int, int], key: int, value: int) -> None:
    """Remembers it, and forgets what has been there longest if that is too much."""
    book[key] = value
    if len(book) > NODES_MAX:
        del book[next(iter(book))]
