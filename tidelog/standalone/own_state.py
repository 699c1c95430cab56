"""The state that a log by itself has: who votes on it, and which ids it gave to disks.

Users' entries mean nothing to the log; whoever writes them knows which of them are of no more use, and has the log
truncated (`tidelog log truncate`). The log's own entries below are gone with the users'. What they said is kept with
the journal's floor: the voters in force there, and the ids noted below it. A voter that starts again begins with that,
and with no newer state: what it learned behind the floor may not be on its disk.

A replica that is behind the others' floor has no such state. It asks one of them for that of its floor, and is neither
candidate nor voter before it is told.
"""

from __future__ import annotations

import msgspec

from tidelog.controller.records import VoterAssigned
from tidelog.replication.paxos.state import Prefix
from tidelog.replication.paxos.voters import VoterSet, encode_voters


class OwnState(msgspec.Struct, frozen=True):
    """The state at a position, by all entries below it."""

    voters: bytes = b""
    """Encoded; empty where the log has not named them yet."""
    voters_position: int = -1
    """The position of the value that made them the voters; -1 of the founders."""
    assigned: tuple[VoterAssigned, ...] = ()
    """The ids that disks got, the newest of each disk."""


class LogFloor(Prefix, frozen=True):
    """The beginning of the journal of a log by itself. Fields are named as in a partition's floor."""

    voters: bytes = b""
    voters_position: int = -1
    assigned: tuple[VoterAssigned, ...] = ()
    is_known: bool = False
    """False if the replica jumped here, and has not been told the state yet."""

    @property
    def state(self) -> OwnState | None:
        """The state at the floor; None if it is not known."""
        return OwnState(self.voters, self.voters_position, self.assigned) if self.is_known else None


def decode_floor(content: bytes) -> LogFloor:
    """Raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(content, type=LogFloor)


def _changed(state: OwnState, position: int, entry: VoterSet | VoterAssigned) -> OwnState:
    if isinstance(entry, VoterSet):
        return OwnState(encode_voters(entry), position, state.assigned)
    others = (one for one in state.assigned if (one.node_id, one.storage) != (entry.node_id, entry.storage))
    return OwnState(state.voters, state.voters_position, (*others, entry))


class OwnStateHistory:
    """The state at each position from a floor on, as far as one replica has delivered the log."""

    def __init__(self, position: int, state: OwnState | None) -> None:
        self._begin = position
        self._state = state
        """At `_begin`; None while that is not known."""
        self._entries: list[tuple[int, VoterSet | VoterAssigned]] = []

    def note(self, position: int, entry: VoterSet | VoterAssigned) -> None:
        """An entry of the log's own is delivered, the next in order."""
        self._entries.append((position, entry))

    def install(self, position: int, state: OwnState) -> None:
        """Begins with the state that another replica has at `position`, up to which nothing was delivered here."""
        self._begin, self._state, self._entries = position, state, []

    def at(self, position: int) -> OwnState | None:
        """The state at a position up to which all is delivered; None if it is not known here."""
        if self._state is None or position < self._begin:
            return None
        state = self._state
        for at, entry in self._entries:
            if at < position:
                state = _changed(state, at, entry)
        return state

    @property
    def assigned(self) -> dict[tuple[int, str], int]:
        """All ids that the log has noted, by node and incarnation."""
        state = self._state or OwnState()
        noted = (*state.assigned, *(entry for _, entry in self._entries if isinstance(entry, VoterAssigned)))
        return {(one.node_id, one.storage): one.voter_id for one in noted}

    def floor(self, prefix: Prefix, delivered: int) -> LogFloor:
        """The floor to write down at `prefix`, with the state if all below is delivered. Forgets what lies below."""
        bare = msgspec.structs.asdict(prefix)
        state = self.at(prefix.position) if delivered >= prefix.position else None
        if state is None:
            return LogFloor(**bare)
        self._begin, self._state = prefix.position, state
        self._entries = [entry for entry in self._entries if entry[0] >= prefix.position]
        return LogFloor(**bare, **msgspec.structs.asdict(state), is_known=True)
