"""A disk as a member of a log that elects its own leader, and the metainfo that it keeps besides the log's slots.

A member knows the voters at the log's beginning only if it founded the log, or has a snapshot. All other members know
only whom to ask: they are no candidates until the log itself names the voters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tidelog.broker.consensus.founding import LogOrigin, NamedVoter, founders_of
from tidelog.broker.consensus.messages import QuorumDescribed
from tidelog.broker.consensus.routes import Notify
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.model.levels import LEVEL_MAX
from tidelog.model.ports import Clock, Entropy
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.state import Metadata, Status
from tidelog.replication.paxos.voters import Membership, VoterSet, decode_voters, encode_voters
from tidelog.storage.slot_store import SlotStore, StoredSlots


class MemberMetainfo(msgspec.Struct, frozen=True):
    """Metainfo of a member, which its disk keeps in two copies (`SlotStore.store_metainfo`)."""

    node_id: int
    cluster_id: str
    metadata: Metadata
    founders: bytes
    """The encoded first voters, if this disk is one of them; else empty. A member that replays the log from its
    beginning must start with these."""
    contacts: bytes
    """The encoded newest voters that this member knows: those to ask when it starts again."""
    voter_id: int = 0
    """The id under which this disk votes, last voted, or is about to vote; 0 if it never got one."""


def metainfo_of(stored: StoredSlots) -> MemberMetainfo | None:
    """Returns the metainfo (identity, promises and known voters) of a disk; None if it is new."""
    return None if stored.metainfo is None else msgspec.msgpack.decode(stored.metainfo, type=MemberMetainfo)


@dataclass(frozen=True, slots=True)
class LogContext:
    """Services that a member of a log gets from its owner: network, log writer, clock, entropy, election settings."""

    notify: Notify
    log_writer: LogWriter
    settings: ElectionSettings
    clock: Clock
    entropy: Entropy
    level: Callable[[], int] = lambda: LEVEL_MAX
    """Returns the feature level to write at."""


class LogMember:
    """The state of a member's disk. A new disk (`is_new`) has to `begin` first. Changed attributes are stored with the
    next metainfo."""

    def __init__(self, node_id: int, store: SlotStore, stored: StoredSlots) -> None:
        self.node_id = node_id
        self.store, self.stored = store, stored
        metainfo = metainfo_of(stored) or MemberMetainfo(node_id, "", Metadata(store.incarnation), b"", b"")
        self.cluster_id = metainfo.cluster_id
        """The id of the cluster, or of the standalone log; empty until it is known."""
        self.stored_node_id = metainfo.node_id
        self.voter_id = metainfo.voter_id
        """The id under which this disk votes, voted, or will vote; 0 if it never got one. It is durable before it is
        used (`Enlist`)."""
        # A disk that belongs to no log has promised nothing.
        self.metadata = metainfo.metadata if self.cluster_id else Metadata(store.incarnation)
        """The metadata that the engine begins with."""
        self.contacts: VoterSet | None = decode_voters(metainfo.contacts) if metainfo.contacts else None
        """The newest voters that are known, whom to ask; None if there are none."""
        self._founders = metainfo.founders

    @property
    def incarnation(self) -> str:
        return self.store.incarnation

    @property
    def is_new(self) -> bool:
        """True if this disk belongs to no log yet."""
        return not self.cluster_id

    @property
    def is_founder(self) -> bool:
        """True if this disk founded the log, or is about to."""
        return bool(self._founders)

    @property
    def may_found(self) -> bool:
        """True while the founding of the log has not ended, so that the engine has to continue it after a restart."""
        return self.is_founder and self.metadata.status in (Status.EMPTY, Status.STARTING)

    async def begin(self, origin: LogOrigin, log_writer: LogWriter) -> None:
        """Makes a new disk a member of this log, as a founder or a learner. A learner's metainfo is durable when this
        returns, a founder's is stored with its first status (`Found`)."""
        self.cluster_id, self.contacts = origin.cluster_id, origin.voters
        # A founder writes nothing yet: until its status says STARTING it may ask anew after a crash, and be told
        # otherwise.
        if origin.is_founder:
            self._founders = encode_voters(origin.voters)
        else:
            await log_writer.perform(self.store.store_metainfo(self.encode_metainfo(self.metadata)))

    def membership(self) -> Membership:
        """Returns the voters at the log's beginning. A disk that did not found the log does not know them, and is no
        candidate until the log names its voters."""
        assert self.contacts is not None, "a log is known"
        if self._founders:
            return Membership(founders_of(self.metadata, decode_voters(self._founders)))
        membership = Membership(self.contacts)
        # Contacts may be newer than the log on this disk: a majority of new voters that have all forgotten why they are
        # voters would decide anew. So it is no candidate until its log names the voters.
        membership.on_unread(0)
        return membership

    def encode_metainfo(self, metadata: Metadata) -> bytes:
        """Returns the encoded metainfo (identity, promises and known voters) to be stored, which includes the engine's
        metadata."""
        assert self.contacts is not None, "a log is known"
        contacts = encode_voters(self.contacts)
        return msgspec.msgpack.encode(
            MemberMetainfo(self.node_id, self.cluster_id, metadata, self._founders, contacts, self.voter_id)
        )

    def described_as_new(self, named: list[NamedVoter], remembers: str | None = None) -> QuorumDescribed:
        """Returns a description of this new disk, for a broker that may found a cluster with it; `remembers` as in
        `QuorumDescribed`."""
        return QuorumDescribed(self.node_id, self.incarnation, "", 0, (), b"", -1, tuple(map(str, named)), remembers)
