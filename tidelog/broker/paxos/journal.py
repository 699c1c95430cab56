"""The parts of a Paxos replica's journal besides slots: its owner, and the voters where it begins.

The engine's metainfo says what was promised, its floor what the rest of the log depends on. A replica that starts again
has to know two things more:

- under which *engine ids* this disk made its promises. Another id is another voter's. There are several if a move was
  called off and ordered again: the log may still name the disk by the first.
- which *voters* are in force at the floor. VOTERS entries behind it are in the journal, and show again as it is
  replayed; those below are gone with their slots. So the floor itself names them. It names none if the replica jumped
  there, and has not been told yet.

An operator may have had the log go on from what was left of it (`era`). Then the voters of that era stand in the place
of the founders, and what a floor of an earlier one says of voters counts for nothing.

Who voted first is in the metainfo too, for logs that still begin at their beginning. A replica that knows neither asks
others for what they know of where their logs begin (`copying`), and is no candidate before.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from tidelog.broker.paxos.ballots import number_of
from tidelog.replication.paxos.state import Metadata, Prefix
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters, encode_voters
from tidelog.storage.slot_store import StoredSlots


class ReplicaMetainfo(msgspec.Struct, frozen=True):
    """Both copies on disk are of these."""

    engine_id: int
    metadata: Metadata
    founders: bytes
    """The first voters, encoded, if this replica began with the log; else empty."""
    forgotten_id: int = 0
    """An earlier journal of this disk is lost: it had this id, and nobody may vote under it any more."""
    former_ids: tuple[int, ...] = ()
    """Other ids under which this journal has voted, or may have."""
    renewals: int = 0
    """How often its broker had begun anew on this directory when it last might vote (`DirectoryIdentity.renewals`)."""
    believed_to: int = 0
    """The log end when this journal was begun in place of a lost one: the records below were applied beside another
    journal, and say nothing about this one.
    """
    era: int = 0
    """The leader epoch since when the log goes on from what was left of it (`Regrouping`); 0 if it never had to."""


class Floor(Prefix, frozen=True):
    """The beginning of a journal, with the voters there."""

    voters: bytes = b""
    """The encoded voters; empty if they are not known here."""
    voters_position: int = -1
    """The position of the value that made them the voters; -1 if they are the founders."""
    era: int = 0
    """The era in which this floor was written (`ReplicaMetainfo.era`)."""
    hidden_from: int = -1
    """The offset from which on rows of the log below `next_offset` are not compared yet, though they may be forgotten
    (`doubts`); -1 if there are none.
    """


def era_begin(era: int) -> int:
    """Returns the number that all of an era are above, and all of those before below; 0 for the first era."""
    return number_of(era, 1, 1) - 1 if era else 0


def metainfo_of(stored: StoredSlots) -> ReplicaMetainfo | None:
    """Returns the metainfo of a journal's replica; None if it is new."""
    return None if stored.metainfo is None else msgspec.msgpack.decode(stored.metainfo, type=ReplicaMetainfo)


def decode_floor(content: bytes) -> Floor:
    """Raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(content, type=Floor)


class VoterHistory:
    """The voters at each position of the log from the replica's floor on, as far as it knows them."""

    def __init__(self, position: int, voters: VoterSet | None, voters_position: int, era: int = 0) -> None:
        """`voters` are in force at `position`, the floor; None if that is not known."""
        self._era = era
        self._begin = self._end = position
        self._known: list[tuple[int, VoterSet]] = [] if voters is None else [(voters_position, voters)]

    @classmethod
    def open(cls, stored: StoredSlots, metainfo: ReplicaMetainfo) -> VoterHistory:
        """Returns the history that the journal on disk describes."""
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
        """Returns the membership to begin with. While the voters are not known, `contacts` are asked for what they have
        learned."""
        since = era_begin(self._era)
        if self._known:
            position, voters = self._known[0]
            return Membership(voters, position, since=since)
        membership = Membership(contacts, since=since)
        membership.on_unread(max(0, self._begin - 1))  # none change at position 0: a barrier is there
        return membership

    def seen(self, position: int) -> None:
        """Notes that this position is applied. Positions that a replica has jumped over it has not seen."""
        if position == self._end:
            self._end += 1

    def note(self, membership: Membership) -> None:
        """Notes the voters in force, as others decide now."""
        # Unknown voters must not stand in a floor: whoever starts from it would go by those of before.
        if membership.is_known and (not self._known or membership.position > self._known[-1][0]):
            self._known.append((membership.position, membership.voters))

    def installed(self, voters: VoterSet, voters_position: int, end: int) -> None:
        """Notes voters that were in force at a position below `end`, since when everything was seen."""
        later = [entry for entry in self._known if entry[0] > voters_position]
        self._known = [(voters_position, voters), *later]
        self._end = max(self._end, end)

    def floor(self, prefix: Prefix) -> Floor:
        """Returns this floor with the voters in force there, if they are known. Older ones are forgotten with it."""
        # VOTERS below the floor go with their slots; the newest of them are in force at the floor.
        while len(self._known) > 1 and self._known[1][0] < prefix.position <= self._end:
            del self._known[0]
        # A replica that jumped over positions cannot know who votes at the floor: better none than old ones.
        if prefix.position > self._end or not self._known or self._known[0][0] >= prefix.position > 0:
            return Floor(**asdict(prefix), era=self._era)
        position, voters = self._known[0]
        return Floor(**asdict(prefix), voters=encode_voters(voters), voters_position=position, era=self._era)
