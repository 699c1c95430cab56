"""The cluster as a broker knows it: an immutable image, replaced whole when a metadata record is applied.

Kafka's MetadataImage. Readers take the image once and see one consistent state, whatever is applied meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeVar, get_args

import msgspec

from tidelog.model.credentials import NO_ACCESS, Access
from tidelog.model.ids import NodeId, TopicId
from tidelog.model.levels import FIRST_LEVEL, LEVEL_MIN, LevelRange
from tidelog.model.losses import AcceptedLoss, LossStatement
from tidelog.model.names import is_internal
from tidelog.model.quotas import Quota
from tidelog.model.wire_numbers import Int64

K = TypeVar("K", NodeId, TopicId, str)
V = TypeVar("V")

NO_LEADER = NodeId(-1)
NO_THROTTLE = 0
END_UNKNOWN = -1
"""Value of `Regrouping.end` if the end of the log is unknown, because no replica could be asked."""
COMMIT_PROTOCOL = "commit.protocol"
CommitProtocol = Literal["isr", "paxos"]
"""Values of the topic setting `commit.protocol`."""
ISR: Final = "isr"
PAXOS: Final = "paxos"
PROTOCOLS: Final[tuple[str, ...]] = get_args(CommitProtocol)
COMMIT_ORDER = "commit.order"
CommitOrder = Literal["total", "key", "none"]
"""Values of the topic setting `commit.order`."""
TOTAL: Final = "total"
KEY: Final = "key"
NONE: Final = "none"
HTTP = "http"
"""Name of the HTTP listener."""
KAFKA = "kafka"
"""Name of the listener for Kafka's protocol."""
NO_VOTER = 0
"""Stands for no voter id. Voter ids start with 1."""


class Endpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A host and a port, to listen at or to advertise to clients."""

    host: str
    port: Int64

    def __str__(self) -> str:
        """Returns `host:port`, as in a URL: an IPv6 host is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Voter(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A voter of the metadata log: a broker's disk, not the broker. A new disk is another voter."""

    voter_id: int
    """Voter id. Ids are never used again, because the promises made under an id hold for ever."""
    node_id: int
    incarnation: str
    """Id of the disk (`BrokerInfo.storage`)."""
    host: str
    """Host of the broker's peer listener."""
    port: int


class PartitionMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A voter of a partition with the commit protocol Paxos: a broker's disk, not the broker."""

    engine_id: Int64
    """Voter id within this partition. Ids are never used again, because the promises made under an id hold for ever."""
    node_id: Int64
    storage: str
    """Id of the disk (`BrokerInfo.storage`)."""


@dataclass(frozen=True, slots=True)
class Regrouping:
    """Audit record of an operator's unclean recovery of a partition: the majority of its voters, or all in-sync
    replicas, were lost, and the partition continues with the replicas that are left."""

    leader_epoch: int
    """First leader epoch after the recovery. In a Paxos partition it also names the *era*: messages from replicas of an
    earlier era are ignored."""
    end: int
    """End offset of the replicas that are left. No record below it was given up."""
    at_ms: int
    by: str
    via: int
    """Node id of the broker that received the operator's command."""
    source: int
    """Node id of the replica that the others copy: the new leader; in a Paxos partition the replica whose log reaches
    further than all journals that are left, or -1 if there is none."""
    statements: tuple[LossStatement, ...] = ()
    """The reports of the replicas before the recovery, in order of node ids: the extent of the log, in a Paxos
    partition also of the journal, and whether there is a vote; or `unreachable`."""
    members: tuple[PartitionMember, ...] = ()
    """Voters of a Paxos partition after the recovery, until its log changes them."""
    position: int = 0
    """Position in a Paxos partition's consensus log after the last batch of the source's log; `birth` is that batch's
    ballot."""
    birth: int = 0


NOWHERE = Endpoint("", 0)
"""Address that stands for a listener that does not exist."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker. A fenced broker leads no partition and does not count as live."""

    node_id: NodeId
    listeners: Mapping[str, Endpoint]
    """Advertised addresses by listener name, in the order that the broker configures."""
    rack: str | None
    epoch: int
    """Broker epoch: position of the registration in the metadata log. A request with a smaller one is from an earlier
    process."""
    incarnation: str
    """Id of the broker's process, new at each start."""
    peer_host: str
    """With `peer_port`, the address of the broker's peer listener."""
    peer_port: int
    storage: str
    """Id of the broker's disk. A new id means that the old disk was lost, with all promises stored on it."""
    is_fenced: bool = False
    voter_id: int = NO_VOTER
    """Newest voter id of this disk in the metadata quorum: it votes, has voted or is about to. `NO_VOTER` if it never
    had one."""
    starts: int = 0
    """Largest start count that the broker's data directory has shown, and `stamp` the largest time mark. A directory
    that shows a smaller one is an old copy."""
    stamp: int = 0
    levels: LevelRange = FIRST_LEVEL
    """Feature levels that the broker supports, as registered. While the cluster is at level 1, brokers register
    none."""

    @property
    def http(self) -> Endpoint:
        """Advertised address for HTTP clients; `NOWHERE` if there is none."""
        return self.listeners.get(HTTP, NOWHERE)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The leader, replicas and epochs of a partition. `replicas[0]` is the preferred leader. The other tuples of node
    ids are subsets of `replicas`, in the same order."""

    partition: int
    leader: NodeId
    """Node id of the leader, a member of `isr`; `NO_LEADER` while `isr` is empty or, in a Paxos partition, is no
    majority of `members`."""
    leader_epoch: int
    """Leader epoch. It rises when the leader changes, also to none, and when a replica is removed."""
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    """In-sync replicas: live, and with every acknowledged record. A commit waits for all of them. In a Paxos partition:
    the live members; a commit waits for a majority of all members."""
    partition_epoch: int = 0
    """Version of this entry, which rises with every change except one of `losses`. A request to change the entry names
    the version that it knows, and is rejected if another change came first."""
    elr: tuple[NodeId, ...] = ()
    """Eligible leader replicas (KIP-966): no longer in sync, but with every acknowledged record, because nothing has
    been committed since the ISR became smaller than `min.insync.replicas`. Empty while the ISR is large enough."""
    last_known_elr: tuple[NodeId, ...] = ()
    """The last leader, while no replica is in sync; empty if that broker's disk was lost."""
    adding: tuple[NodeId, ...] = ()
    """Replicas that the reassignment under way adds."""
    removing: tuple[NodeId, ...] = ()
    """Replicas that the reassignment under way removes. A replica that is also in `adding` was the target of an earlier
    reassignment, which this one replaced."""
    members: tuple[PartitionMember, ...] = ()
    """Voters of a Paxos partition in order of engine ids, as its leader reported last. Empty in an ISR partition."""
    wanted: tuple[PartitionMember, ...] = ()
    """Voters that a Paxos partition is to have, in order of engine ids: one on each broker of `target`. The leader
    changes the members to these, one at a time."""
    next_engine_id: int = 1
    """The engine id (voter id within this partition) for the next voter that is added."""
    is_founding: bool = False
    """True while `members` are those with which the partition was created."""
    since: tuple[tuple[NodeId, int], ...] = ()
    """Metadata position, for each replica, of the record that made its broker create the replica: the record that added
    the replica, or that found its log lost. If the broker has created it and finds no log, the log is lost. While the
    controller decides a change, a missing entry means that the replica is to be created anew."""
    losses: tuple[AcceptedLoss, ...] = ()
    """Offset ranges that were given up as lost, disjoint and in order (`losses.LostRanges` looks them up)."""
    regroupings: tuple[Regrouping, ...] = ()
    """Audit records of the last unclean recoveries, oldest first."""

    @property
    def eras(self) -> tuple[int, int]:
        """The partition's era and the one before. An era is the leader epoch of the `Regrouping` that began it; the
        first is 0."""
        epochs = (0, 0, *(regrouping.leader_epoch for regrouping in self.regroupings if regrouping.members))
        return epochs[-1], epochs[-2]

    @property
    def is_moving(self) -> bool:
        """True while a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def majority(self) -> int:
        """Number of members that are a majority."""
        return len(self.members) // 2 + 1

    @property
    def target(self) -> tuple[NodeId, ...]:
        """Replicas once the reassignment is done."""
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def original(self) -> tuple[NodeId, ...]:
        """Replicas if the reassignment is cancelled."""
        return tuple(node for node in self.replicas if node not in self.adding)

    def since_of(self, node: int) -> int:
        """Returns the metadata position of the record that made this broker create its replica (see `since`); 0 if none
        is recorded."""
        return next((position for replica, position in self.since if replica == node), 0)

    @property
    def replication_factor(self) -> int:
        """Number of replicas before or after the reassignment, whichever is smaller: replicas that are still being
        filled do not raise what is demanded of the ISR."""
        return min(len(self.original), len(self.target))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `configs` holds the overrides only; `partitions` are in order of partition numbers."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionInfo, ...]
    volatile_before: int = 0
    """Metadata position at which `ack.durability` was last changed. A broker process registered before it may have
    acknowledged records that were only in memory, whatever the setting is now."""

    @property
    def commit_protocol(self) -> str:
        """Commit protocol of the topic's partitions, `isr` or `paxos`. It never changes."""
        return self.configs.get(COMMIT_PROTOCOL, ISR)

    @property
    def commit_order(self) -> str:
        """Order in which the topic's records are committed: `total`, `key` or `none`. It never changes."""
        return self.configs.get(COMMIT_ORDER, TOTAL)

    @property
    def is_internal(self) -> bool:
        """True for a topic that the brokers created for themselves."""
        return is_internal(self.name)


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """Audit record of a cluster recovery: an operator began a new metadata log with what was left of the old one."""

    generation: int
    at_ms: int
    by: str
    """The user and host that ran the command."""
    kept: int
    """Metadata position up to which the old log was taken over."""
    given_up: tuple[str, ...]
    """Sentences that name what existed, or may have existed, and was not taken over."""
    recovery_id: str = ""
    """Random id, because recoveries from different directories may have the same generation. Empty if an older version
    ran it."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster's metadata: the result of applying the metadata log up to `position` (exclusive)."""

    cluster_id: str
    position: int = 0
    controller_id: NodeId = NO_LEADER
    controller_epoch: int = 0
    """Epoch of the newest controller that has written to the metadata log; each controller has a larger one."""
    brokers: Mapping[NodeId, BrokerInfo] = field(default_factory=lambda: MappingProxyType({}))
    """The brokers by node id, in order of ids."""
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    """The topics by name, in order of names."""
    deleted_topics: Mapping[TopicId, tuple[NodeId, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Ids of deleted topics, with the brokers that may still have data of them. Brokers remove the directories of these
    topics only."""
    moves_throttle: int = NO_THROTTLE
    """Bytes per second that a broker may send, and receive, for replicas that are being moved and are not in sync yet;
    `NO_THROTTLE` when none are."""
    next_producer_id: int = 0
    voters: tuple[Voter, ...] = ()
    """Voters of the metadata log, in order of voter ids."""
    next_voter_id: int = NO_VOTER + 1
    """Next voter id to be given out."""
    voters_end: int = NO_VOTER + 1
    """Exclusive bound of the used voter ids: a smaller id was in a voter set, or was passed over, and is never added
    (again)."""
    voters_founded: int = 0
    """Number of voters with which the cluster was created."""
    voters_leaving: tuple[int, ...] = ()
    """Voter ids of brokers that were removed from the cluster. They leave the voter set as soon as it can be
    changed."""
    snapshot_position: int = 0
    """Metadata position of the newest snapshot."""
    snapshot_agreed: int = 0
    """Newest metadata position of which a majority of the voters hold identical snapshots."""
    recoveries: tuple[ClusterRecovery, ...] = ()
    """The audit records of all recoveries, oldest first."""
    quotas: tuple[Quota, ...] = ()
    """Quotas of users, client ids and addresses, in order of entities."""
    level: int = LEVEL_MIN
    """The feature level at which metadata are written (`model/levels.py`). It never falls."""
    access: Access = NO_ACCESS
    """Users, tokens and ACLs."""

    @property
    def generation(self) -> int:
        """Number of times that an operator began the metadata log anew."""
        return self.recoveries[-1].generation if self.recoveries else 0

    @property
    def live_brokers(self) -> tuple[BrokerInfo, ...]:
        """Returns the brokers that are not fenced, in order of their ids."""
        return tuple(broker for broker in self.brokers.values() if not broker.is_fenced)

    def is_live(self, node_id: int) -> bool:
        """Returns True if the broker is registered and not fenced."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and not broker.is_fenced

    def topic_by_id(self, topic_id: str) -> Topic | None:
        """Returns the topic with this id; None if there is none (any more)."""
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)


def in_order(entries: Mapping[K, V]) -> Mapping[K, V]:
    """Returns the entries as a read-only mapping sorted by key, so that images do not depend on the order of
    insertion."""
    return MappingProxyType({key: entries[key] for key in sorted(entries)})
