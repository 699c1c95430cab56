"""A disk as a member of a log that elects its own leader, and what it must remember besides the log's slots.

A member knows who voted where its log begins only if it founded the log, or has a snapshot. All others know whom to
ask, and no more: until the log itself says who votes, they are no candidates.
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
    """The metainfo that a member's disk keeps of itself, in two copies (`SlotStore.store_metainfo`)."""

    node_id: int
    cluster_id: str
    metadata: Metadata
    founders: bytes
    """The first voters, encoded, if this is one of them; never others: whoever replays the log from its beginning must
    begin with those."""
    contacts: bytes
    """The newest voters it went by, encoded: whom to ask when it starts again. No more than that."""
    voter_id: int = 0
    """Under which this disk votes, or last voted, or is about to; 0 if it never got one."""


def metainfo_of(stored: StoredSlots) -> MemberMetainfo | None:
    """Reads what a disk remembers; None if it is new, and nobody has initialised it."""
    return None if stored.metainfo is None else msgspec.msgpack.decode(stored.metainfo, type=MemberMetainfo)


@dataclass(frozen=True, slots=True)
class LogContext:
    """The means that a member of a log runs on."""

    notify: Notify
    log_writer: LogWriter
    settings: ElectionSettings
    clock: Clock
    entropy: Entropy
    level: Callable[[], int] = lambda: LEVEL_MAX
    """The feature level to write at."""


class LogMember:
    """Made with what the disk gave back: `begin` if it `is_new`. Its attributes are written with the next metainfo."""

    def __init__(self, node_id: int, store: SlotStore, stored: StoredSlots) -> None:
        self.node_id = node_id
        self.store, self.stored = store, stored
        metainfo = metainfo_of(stored) or MemberMetainfo(node_id, "", Metadata(store.incarnation), b"", b"")
        self.cluster_id = metainfo.cluster_id
        """The id of the cluster, or of the log by itself; empty until it is known."""
        self.stored_node_id = metainfo.node_id
        self.voter_id = metainfo.voter_id
        """Under which this disk votes, voted, or will; 0 if it never got one. Durable before it is used (`Enlist`)."""
        # A disk that belongs to no log has promised nothing.
        self.metadata = metainfo.metadata if self.cluster_id else Metadata(store.incarnation)
        """The metadata that the engine begins with."""
        self.contacts: VoterSet | None = decode_voters(metainfo.contacts) if metainfo.contacts else None
        """The newest voters that are known: whom to ask."""
        self._founders = metainfo.founders

    @property
    def incarnation(self) -> str:
        return self.store.incarnation

    @property
    def is_new(self) -> bool:
        """True of a disk that remembers no log."""
        return not self.cluster_id

    @property
    def is_founder(self) -> bool:
        """True if this disk founded the log, or is about to."""
        return bool(self._founders)

    @property
    def may_found(self) -> bool:
        """True while the engine has to be told to found the log: after a restart in the midst of it, again."""
        return self.is_founder and self.metadata.status in (Status.EMPTY, Status.STARTING)

    async def begin(self, origin: LogOrigin, log_writer: LogWriter) -> None:
        """Has a new disk take part in this log: it founds it with the others, or learns it from them. A disk that
        learns remembers that from now on; a founder does with its first status (`Found`)."""
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
        """Encodes the metainfo to be stored, with the engine's part of it."""
        assert self.contacts is not None, "a log is known"
        contacts = encode_voters(self.contacts)
        return msgspec.msgpack.encode(
            MemberMetainfo(self.node_id, self.cluster_id, metadata, self._founders, contacts, self.voter_id)
        )

    def described_as_new(self, named: list[NamedVoter], remembers: str | None = None) -> QuorumDescribed:
        """Describes this new disk to a broker that starts and may found a cluster with it; `remembers` as in the
        message."""
        return QuorumDescribed(self.node_id, self.incarnation, "", 0, (), b"", -1, tuple(map(str, named)), remembers)
