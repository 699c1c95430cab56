"""The parts of a Paxos replica's journal besides slots: its metainfo, and its floor with the voters there.

The engine's metainfo holds the promises, its floor the state that the rest of the log depends on. A replica that starts
again needs two things more:

- the *engine ids* (voter ids) under which this disk made its promises. Another id belongs to another voter. There are
  several if a reassignment was cancelled and ordered again: the log may still name the disk by the first.
- the *voters* in force at the floor. VOTERS values behind the floor are in the journal and are replayed; those below
  are gone with their slots. So the floor names them itself, unless the replica has jumped to that floor and has not
  learned its voters yet.

An operator may have had the partition go on from what was left of it: that begins an *era*. Then the voters of that era
take the place of the founders, and voters in a floor of an earlier era do not count.

The metainfo also names the first voters, for logs that still begin at position 0. A replica that knows neither asks
other replicas for the voters at their floors (`copying`), and is no candidate before.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from tidelog.broker.paxos.ballots import number_of
from tidelog.replication.paxos.state import Metadata, Prefix
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters, encode_voters
from tidelog.storage.slot_store import StoredSlots


class ReplicaMetainfo(msgspec.Struct, frozen=True):
    """The metainfo of a replica: its ids, promises and origin, which the disk keeps in two copies."""

    engine_id: int
    metadata: Metadata
    founders: bytes
    """The encoded first voters of the partition, if this replica's journal began with the log; else empty."""
    forgotten_id: int = 0
    """The id of this disk's earlier journal, which is lost, so that nobody may vote under that id or a smaller one; 0
    if none is lost."""
    former_ids: tuple[int, ...] = ()
    """The other ids under which this journal has voted, or may have."""
    renewals: int = 0
    """The broker's count of fresh starts on this directory (`DirectoryIdentity.renewals`) when this disk was last
    allowed to vote; a smaller count than the directory's shows that the journal is an old copy."""
    believed_to: int = 0
    """The log end offset when this journal was begun in place of a lost one. The records below it were applied with
    the lost journal: that this journal lacks their values proves no new loss."""
    era: int = 0
    """The leader epoch since when the partition has gone on from what was left of it (`Regrouping`); 0 if it never had
    to."""


class Floor(Prefix, frozen=True):
    """The beginning of a journal: the state of the log below its first position, with the voters in force there."""

    voters: bytes = b""
    """The encoded voters in force at the floor; empty if this replica does not know them."""
    voters_position: int = -1
    """The log position of the VOTERS value that put `voters` in force; -1 if they are the partition's first voters."""
    era: int = 0
    """The era in which this floor was written: the leader epoch since when the partition has gone on from what was left
    of it (`ReplicaMetainfo.era`)."""
    hidden_from: int = -1
    """The offset from which on rows below `next_offset` are hidden until compared with other logs, since their values
    may have been forgotten (`doubts`); -1 if there are none."""


def era_begin(era: int) -> int:
    """Returns the ballot number below which all numbers of earlier eras lie, and above which all numbers of this era
    do; 0 for the first era."""
    return number_of(era, 1, 1) - 1 if era else 0


def metainfo_of(stored: StoredSlots) -> ReplicaMetainfo | None:
    """Returns the metainfo (ids, promises and origin of a replica) stored in a journal; None if the journal is new."""
    return None if stored.metainfo is None else msgspec.msgpack.decode(stored.metainfo, type=ReplicaMetainfo)


def decode_floor(content: bytes) -> Floor:
    """Decodes the stored bytes of a floor (the start of a journal). Raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(content, type=Floor)


class VoterHistory:
    """The voters in force at each position of a replica's log, from the floor on, as far as the replica knows them."""

    def __init__(self, position: int, voters: VoterSet | None, voters_position: int, era: int = 0) -> None:
        """`position` is that of the floor; `voters` are in force there, None if they are not known."""
        self._era = era
        self._begin = self._end = position
        self._history: list[tuple[int, VoterSet]] = [] if voters is None else [(voters_position, voters)]

    @classmethod
    def open(cls, stored: StoredSlots, metainfo: ReplicaMetainfo) -> VoterHistory:
        """Returns the voter history that a journal on disk describes."""
        founders = decode_voters(metainfo.founders) if metainfo.founders else None
        if stored.floor is None:
            return cls(0, founders, -1, metainfo.era)
        floor = decode_floor(stored.floor[1])
        # The voters of an earlier era decide nothing any more; those of this one stand in the founders' place.
        if floor.era != metainfo.era:
            return cls(floor.position, founders, -1, metainfo.era)
        voters = decode_voters(floor.voters) if floor.voters else None
        return cls(floor.position, voters, floor.voters_position, metainfo.era)

    def membership(self, contacts: VoterSet) -> Membership:
        """Returns the membership with which the engine starts. While the voters are not known, it names `contacts` as
        those to ask for what they have learned."""
        since = era_begin(self._era)
        if self._history:
            position, voters = self._history[0]
            return Membership(voters, position, since=since)
        membership = Membership(contacts, since=since)
        membership.on_unread(max(0, self._begin - 1))  # none change at position 0: a barrier is there
        return membership

    def seen(self, position: int) -> None:
        """Notes that the value at this position is applied. Positions that the replica jumped over stay unknown."""
        if position == self._end:
            self._end += 1

    def note(self, membership: Membership) -> None:
        """Adds the voters that `membership` now has in force to the history."""
        # Unknown voters must not stand in a floor: whoever starts from it would go by those of before.
        if membership.is_known and (not self._history or membership.position > self._history[-1][0]):
            self._history.append((membership.position, membership.voters))

    def installed(self, voters: VoterSet, voters_position: int, end: int) -> None:
        """Adds voters that were in force since `voters_position`; all positions from there to `end` count as known."""
        later = [entry for entry in self._history if entry[0] > voters_position]
        self._history = [(voters_position, voters), *later]
        self._end = max(self._end, end)

    def floor(self, prefix: Prefix) -> Floor:
        """Returns this floor (start of the journal) with the voters in force there, if they are known. Drops older
        voters from the history."""
        # VOTERS below the floor go with their slots; the newest of them are in force at the floor.
        while len(self._history) > 1 and self._history[1][0] < prefix.position <= self._end:
            del self._history[0]
        # A replica that jumped over positions cannot know who votes at the floor: better none than old ones.
        if prefix.position > self._end or not self._history or self._history[0][0] >= prefix.position > 0:
            return Floor(**asdict(prefix), era=self._era)
        position, voters = self._history[0]
        return Floor(**asdict(prefix), voters=encode_voters(voters), voters_position=position, era=self._era)
