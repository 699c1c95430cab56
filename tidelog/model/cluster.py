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
"""The end of what is left, where no replica was asked."""
COMMIT_PROTOCOL = "commit.protocol"
CommitProtocol = Literal["isr", "paxos"]
"""The values of `commit.protocol`."""
ISR: Final = "isr"
PAXOS: Final = "paxos"
PROTOCOLS: Final[tuple[str, ...]] = get_args(CommitProtocol)
HTTP = "http"
"""The name of the listener that speaks HTTP."""
KAFKA = "kafka"
"""The name of the listener that speaks Kafka's protocol."""
NO_VOTER = 0
"""In the place of a voter id; the ids that are given out begin with 1."""


class Endpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An address that something listens at, or is told to others."""

    host: str
    port: Int64

    def __str__(self) -> str:
        """The address as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Voter(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A voter of the metadata log: a broker's disk, not the broker. A new disk is another voter."""

    voter_id: int
    """Given out once, never again: what an id has promised stays true for ever."""
    node_id: int
    incarnation: str
    """The id of the disk (`BrokerInfo.storage`)."""
    host: str
    """The host at which its broker listens for peers."""
    port: int


class PartitionMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A voter in the log of a partition that commits by Paxos: a broker's disk, as with `Voter`."""

    engine_id: Int64
    """The voter's id in this partition; given out once, never again: what an id has promised stays true for ever."""
    node_id: Int64
    storage: str
    """`BrokerInfo.storage` of the disk."""


@dataclass(frozen=True, slots=True)
class Regrouping:
    """An operator has had a partition go on from what is left of it: the votes, or the in-sync replicas, were lost. The
    audit record."""

    leader_epoch: int
    """The first one behind it. With Paxos it names the *era*: replicas of an earlier one are listened to no more."""
    end: int
    """The end of what was left: below it nothing is given up."""
    at_ms: int
    by: str
    via: int
    """Node id of the broker that was asked."""
    source: int
    """Node id of the replica that the others follow: the new leader, or with Paxos the one whose log knows more than
    all journals that are left; -1 if none does."""
    statements: tuple[LossStatement, ...] = ()
    """The words of each replica, in order of node ids."""
    members: tuple[PartitionMember, ...] = ()
    """With Paxos: who votes from now on, until the log says otherwise."""
    position: int = 0
    """With `birth`: where the journal of the source begins, behind its log."""
    birth: int = 0


NOWHERE = Endpoint("", 0)
"""The address of what does not listen."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker. A fenced one leads nothing, and is not counted as live (Kafka's word)."""

    node_id: NodeId
    listeners: Mapping[str, Endpoint]
    """The addresses that its clients are told, by the names of its listeners, in their order."""
    rack: str | None
    epoch: int
    """The position of its registration in the metadata log; whoever comes with an older one is a process of the
    past."""
    incarnation: str
    """The incarnation of the broker's process."""
    peer_host: str
    """With `peer_port`, where other brokers find it."""
    peer_port: int
    storage: str
    """Incarnation of its disk: another one means that the disk was lost, and with it every promise made on it."""
    is_fenced: bool = False
    voter_id: int = NO_VOTER
    """The newest id under which this disk votes, or voted, or is about to; `NO_VOTER` if it never got one."""
    starts: int = 0
    """With `stamp`, the most that its data directory has shown: one that shows less is an old copy of it."""
    stamp: int = 0
    levels: LevelRange = FIRST_LEVEL
    """The feature levels that it speaks, as it has registered. While the cluster is at level 1 nobody registers any."""

    @property
    def http(self) -> Endpoint:
        """The address that HTTP clients are told; `NOWHERE` if there is none."""
        return self.listeners.get(HTTP, NOWHERE)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The leader, replicas and epochs of a partition. `replicas[0]` is the preferred leader; the other tuples are
    subsets, in the same order."""

    partition: int
    leader: NodeId
    """The leader: a member of `isr`, or `NO_LEADER` while that is empty; with Paxos, while it is no majority of
    `members`."""
    leader_epoch: int
    """Rises when another leads, also when nobody does, and when a replica is removed."""
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    """In sync: live, and holding everything that was ever acknowledged. Each commit waits for all of them. With Paxos:
    the live members, of which a commit waits for a majority of all members."""
    partition_epoch: int = 0
    """Rises with every change of this entry, but of `losses`: who asks for one names what it saw, and loses to a change
    in between."""
    elr: tuple[NodeId, ...] = ()
    """Eligible leader replicas (KIP-966): not in sync any more, but they still hold everything acknowledged, because
    nothing was committed since fewer than `min.insync.replicas` are in sync. Empty while enough are."""
    last_known_elr: tuple[NodeId, ...] = ()
    """While nobody is in sync: the last leader, unless its disk was lost."""
    adding: tuple[NodeId, ...] = ()
    """While replicas move: those that were none before."""
    removing: tuple[NodeId, ...] = ()
    """While replicas move: those that will be none any more. One that is also in `adding` was the target of a move
    that was replaced by another."""
    members: tuple[PartitionMember, ...] = ()
    """The voters in the partition's log, by engine id, as its leader said last. Empty with in-sync replicas."""
    wanted: tuple[PartitionMember, ...] = ()
    """The voters that the log is to have, by engine id: one for each of `target`. The leader changes its log's members
    to these, one at a time."""
    next_engine_id: int = 1
    """The next id to be given out."""
    is_founding: bool = False
    """`members` are those that the partition was made with."""
    since: tuple[tuple[NodeId, int], ...] = ()
    """For each replica, the position of the record that had its broker begin the replica: one that made it a replica,
    or that found its log lost. A broker that has begun it, and finds no log, has lost it. While a change is decided, a
    replica that is not here is to begin anew."""
    losses: tuple[AcceptedLoss, ...] = ()
    """Ranges that were given up, disjoint, in order of offsets (`losses.LostRanges` looks them up)."""
    regroupings: tuple[Regrouping, ...] = ()
    """The audit records of the last ones, oldest first."""

    @property
    def eras(self) -> tuple[int, int]:
        """The era of its log, and the one before: leader epochs of regroupings; 0 is the first."""
        epochs = (0, 0, *(one.leader_epoch for one in self.regroupings if one.members))
        return epochs[-1], epochs[-2]

    @property
    def is_moving(self) -> bool:
        """True while it is not yet where it is to be."""
        return bool(self.adding or self.removing)

    @property
    def majority(self) -> int:
        """How many of the members decide."""
        return len(self.members) // 2 + 1

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas once they are reassigned."""
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def original(self) -> tuple[NodeId, ...]:
        """The replicas if the move is called off."""
        return tuple(node for node in self.replicas if node not in self.adding)

    def since_of(self, node: int) -> int:
        """Returns the position at which a broker began its replica; 0 if that was before positions were noted."""
        return next((position for replica, position in self.since if replica == node), 0)

    @property
    def replication_factor(self) -> int:
        """Returns the number of replicas in the smaller of `original` and `target`: replicas that are still being
        filled ask nothing of the ISR."""
        return min(len(self.original), len(self.target))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `configs` holds the overrides only; `partitions` are in order of their numbers."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionInfo, ...]
    volatile_before: int = 0
    """Position in the metadata log at which `ack.durability` was last changed. A broker's life that was registered
    before it may have acknowledged from memory, whatever the setting is now."""

    @property
    def commit_protocol(self) -> str:
        """How its partitions commit, from its creation on: `isr` or `paxos`."""
        return self.configs.get(COMMIT_PROTOCOL, ISR)

    @property
    def is_internal(self) -> bool:
        """Made by the brokers for themselves."""
        return is_internal(self.name)


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """An operator has begun the metadata log anew, from what was left of the one before."""

    generation: int
    at_ms: int
    by: str
    """The user and host that ran the command."""
    kept: int
    """The metadata position up to which the log before was taken over."""
    given_up: tuple[str, ...]
    """Sentences: all that was there, or may have been, and was not taken over."""
    recovery_id: str = ""
    """Drawn for it, since two from different directories may have one generation. Empty if an older version did it."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The result of applying the metadata log up to `position` (exclusive)."""

    cluster_id: str
    position: int = 0
    controller_id: NodeId = NO_LEADER
    controller_epoch: int = 0
    """The epoch of the newest controller that has written; it rises with every term."""
    brokers: Mapping[NodeId, BrokerInfo] = field(default_factory=lambda: MappingProxyType({}))
    """The brokers by node id, in order of ids."""
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    """The topics by name, in order of names."""
    deleted_topics: Mapping[TopicId, tuple[NodeId, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Topics that the log says are gone, with the brokers that may still hold data of them: the only directories that
    a broker may ever remove."""
    moves_throttle: int = NO_THROTTLE
    """How many bytes per second a broker sends, and another receives, for replicas that move and are not in sync yet;
    `NO_THROTTLE` when nothing moves."""
    next_producer_id: int = 0
    voters: tuple[Voter, ...] = ()
    """The voters of the metadata log, by voter id."""
    next_voter_id: int = NO_VOTER + 1
    """The next id to be given out."""
    voters_end: int = NO_VOTER + 1
    """Lower voter ids were in a voter set, or have missed their turn: none of them is ever added (again)."""
    voters_founded: int = 0
    """How many voters the cluster began with."""
    voters_leaving: tuple[int, ...] = ()
    """Voter ids of brokers that were removed from the cluster: they go as soon as the voter set can be changed."""
    snapshot_position: int = 0
    """The position of the newest snapshot in the metadata log: an image of this position."""
    snapshot_agreed: int = 0
    """The newest position of which a majority of the voters hold one and the same snapshot."""
    recoveries: tuple[ClusterRecovery, ...] = ()
    """The audit records of all recoveries, oldest first."""
    quotas: tuple[Quota, ...] = ()
    """The shares of users, client ids and addresses, in the order of entities."""
    level: int = LEVEL_MIN
    """The feature level at which metadata are written (`model/levels.py`). It never falls."""
    access: Access = NO_ACCESS
    """Says who logs in, and what they may do."""

    @property
    def generation(self) -> int:
        """How often the metadata log was begun anew."""
        return self.recoveries[-1].generation if self.recoveries else 0

    @property
    def live_brokers(self) -> tuple[BrokerInfo, ...]:
        """Returns the brokers that are not fenced, in order of their ids."""
        return tuple(broker for broker in self.brokers.values() if not broker.is_fenced)

    def is_live(self, node_id: int) -> bool:
        """Registered and not fenced."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and not broker.is_fenced

    def topic_by_id(self, topic_id: str) -> Topic | None:
        """None if there is no such topic (any more)."""
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)


def in_order(entries: Mapping[K, V]) -> Mapping[K, V]:
    """The entries for an image: frozen, and in an order that does not depend on how they came."""
    return MappingProxyType({key: entries[key] for key in sorted(entries)})
