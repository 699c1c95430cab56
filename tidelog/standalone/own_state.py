"""The state of a standalone log itself: its voters, and the ids it gave to disks.

Users' entries mean nothing to the log; the programs that write them know which are no longer needed, and truncate the
log (`tidelog log truncate`). The log's own entries below are deleted with the users'. So the state that they added up
to is stored with the journal's floor: the voters in force there, and the ids noted below it. A voter that starts again
begins with that, and with no newer state: what it learned behind the floor may not be on its disk.

A replica that is behind the others' floor has no such state. It requests that of another replica's floor, and is
neither candidate nor voter before it has it.
"""

from __future__ import annotations

import msgspec

from tidelog.controller.records import VoterAssigned
from tidelog.replication.paxos.state import Prefix
from tidelog.replication.paxos.voters import VoterSet, encode_voters


class OwnState(msgspec.Struct, frozen=True):
    """The voters and voter ids at a position, from all entries below it."""

    voters: bytes = b""
    """The encoded set of voters; empty where the log has not named them yet."""
    voters_position: int = -1
    """Position of the entry that put `voters` in force; -1 for the founders."""
    assigned: tuple[VoterAssigned, ...] = ()
    """The voter ids that disks got, the newest for each disk."""


class LogFloor(Prefix, frozen=True):
    """The floor of a standalone log's journal: its first position, and the log's state there. Fields are named as in a
    partition's floor."""

    voters: bytes = b""
    voters_position: int = -1
    assigned: tuple[VoterAssigned, ...] = ()
    is_known: bool = False
    """False if the replica has skipped the entries below this position, and has not fetched the voters and their ids
    there from another replica yet."""

    @property
    def state(self) -> OwnState | None:
        """The log's voters and voter ids at the floor; None if this replica does not have them."""
        return OwnState(self.voters, self.voters_position, self.assigned) if self.is_known else None


def decode_floor(content: bytes) -> LogFloor:
    """Decodes a stored floor. Raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(content, type=LogFloor)


def _changed(state: OwnState, position: int, entry: VoterSet | VoterAssigned) -> OwnState:
    if isinstance(entry, VoterSet):
        return OwnState(encode_voters(entry), position, state.assigned)
    others = (voter for voter in state.assigned if (voter.node_id, voter.storage) != (entry.node_id, entry.storage))
    return OwnState(state.voters, state.voters_position, (*others, entry))


class OwnStateHistory:
    """The log's voters and voter ids at each position from a floor on, as far as one replica has delivered the
    entries."""

    def __init__(self, position: int, state: OwnState | None) -> None:
        self._begin = position
        self._state = state
        """The log's voters and voter ids at the position `_begin`; None if they are not known."""
        self._entries: list[tuple[int, VoterSet | VoterAssigned]] = []

    def note(self, position: int, entry: VoterSet | VoterAssigned) -> None:
        """Adds the next of the log's own entries: new voters, or a voter id that a disk got."""
        self._entries.append((position, entry))

    def install(self, position: int, state: OwnState) -> None:
        """Starts the history again with another replica's state at `position`; nothing below it was delivered here."""
        self._begin, self._state, self._entries = position, state, []

    def at(self, position: int) -> OwnState | None:
        """Returns the log's voters and voter ids at a position up to which all entries are delivered; None if they are
        not known here."""
        if self._state is None or position < self._begin:
            return None
        state = self._state
        for at, entry in self._entries:
            if at < position:
                state = _changed(state, at, entry)
        return state

    @property
    def assigned(self) -> dict[tuple[int, str], int]:
        """All voter ids that the log has given out, by node id and incarnation of the disk."""
        state = self._state or OwnState()
        noted = (*state.assigned, *(entry for _, entry in self._entries if isinstance(entry, VoterAssigned)))
        return {(voter.node_id, voter.storage): voter.voter_id for voter in noted}

    def floor(self, prefix: Prefix, delivered: int) -> LogFloor:
        """Returns the floor to store for `prefix`, with the state if all entries below it are delivered. Forgets older
        entries."""
        bare = msgspec.structs.asdict(prefix)
        state = self.at(prefix.position) if delivered >= prefix.position else None
        if state is None:
            return LogFloor(**bare)
        self._begin, self._state = prefix.position, state
        self._entries = [entry for entry in self._entries if entry[0] >= prefix.position]
        return LogFloor(**bare, **msgspec.structs.asdict(state), is_known=True)
