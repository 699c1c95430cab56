"""Metadata records: the only way in which a cluster's state changes (Kafka's KRaft records).

Each is one JSON object with a `type`, the value of one record in the metadata log. They are applied in log order, by
`apply.apply`, on every broker alike; a record says what happened, not what was requested. A record of an unknown type,
or with an unknown field, is an error: to skip it would leave this broker with another cluster state than its peers. So
new types and fields are written only once the cluster's feature level shows that all brokers know them
(`RECORD_ADDITIONS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from tidelog.controller.commands import QuotaChange, SpokenLevels, Stamped
from tidelog.model.access import Acl
from tidelog.model.cluster import HTTP, Endpoint, PartitionMember
from tidelog.model.credentials import Token, User
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.levels import FIRST_LEVEL, LEVEL_MAX, LEVEL_MIN, Additions, LevelRange
from tidelog.model.losses import LossStatement
from tidelog.model.wire_numbers import Int64


class MetadataRecord(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """The base class of metadata records; `type` in the JSON is the class name."""


# -- the cluster and its controller --------------------------------------------------------------------------------


class ClusterCreated(MetadataRecord, frozen=True, tag=True, omit_defaults=True):
    cluster_id: str
    level: int = LEVEL_MIN
    """The feature level at which the cluster begins."""


class LevelRaised(MetadataRecord, frozen=True, tag=True):
    """The cluster's feature level was raised, so that later records may need it. `spoken` has the levels that each
    broker supported then."""

    level: int
    spoken: tuple[SpokenLevels, ...]


class SyncedReplicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The replicas of a partition whose logs reach furthest, as found on the brokers' disks."""

    topic_id: str
    partition: int
    nodes: tuple[int, ...]


class ClusterRecovered(MetadataRecord, frozen=True, tag=True, omit_defaults=True):
    """An operator has rebuilt the metadata log; this is its first record. All fields but `synced` are those of
    `ClusterRecovery`."""

    generation: int
    at_ms: int
    by: str
    kept: int
    given_up: tuple[str, ...]
    synced: tuple[SyncedReplicas, ...] = ()
    """In-sync sets that replace those of the image, since the last decisions about them may be lost."""
    recovery_id: str = ""


class ControllerElected(MetadataRecord, frozen=True, tag=True):
    """A controller was elected; this is the first record of its term. Once it is applied, the controller's image is up
    to date, and it may decide."""

    node_id: int
    epoch: int


class VoterAssigned(MetadataRecord, frozen=True, tag=True):
    """A disk was assigned the id under which it will vote, before any voter set has it; no other disk ever gets this
    id."""

    node_id: int
    storage: str
    voter_id: int


class SnapshotTaken(MetadataRecord, frozen=True, tag=True):
    """Every broker writes a snapshot of its image after this record."""


class SnapshotAgreed(MetadataRecord, frozen=True, tag=True):
    """A majority of the voters hold this snapshot, byte for byte; the log before it may be deleted. A broker whose own
    snapshot has another hash has diverged, and must fetch this one."""

    position: int
    root_hash: str


# -- brokers -------------------------------------------------------------------------------------------------------


class BrokerRegistered(MetadataRecord, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """A broker process has registered. The record's offset is its broker epoch. It is fenced until it has applied this
    record."""

    node_id: int
    incarnation: str
    host: str | None = None
    """The HTTP address, with `port`, in a record that was written before brokers had several listeners."""
    port: int | None = None
    listeners: dict[str, Endpoint] = {}
    """The advertised addresses, by listener name."""
    rack: str | None
    peer_host: str
    peer_port: int
    storage: str
    is_clean: bool
    """True if the broker's previous process stopped cleanly, so that everything it acknowledged is on its disk."""
    starts: int = 0
    """The number of process starts on the data directory; with `stamp` it shows how recent the directory was
    (`BrokerInfo`)."""
    stamp: int = 0
    levels: LevelRange = FIRST_LEVEL
    """The feature levels that the broker supports."""

    @property
    def advertised(self) -> Mapping[str, Endpoint]:
        """The advertised addresses by listener name, also of a record from before brokers had several listeners."""
        return self.listeners if self.host is None else {HTTP: Endpoint(self.host, self.port or 0)}


class BrokerFenced(MetadataRecord, frozen=True, tag=True):
    """The broker was not heard of for too long, or is stopping; it leads no partitions."""

    node_id: int
    epoch: int


class BrokerUnfenced(MetadataRecord, frozen=True, tag=True):
    node_id: int
    epoch: int


class BrokersStamped(MetadataRecord, frozen=True, tag=True):
    """The time marks (regularly growing counters) in the data directories of brokers, each under its broker epoch."""

    stamps: list[Stamped]


class BrokerUnregistered(MetadataRecord, frozen=True, tag=True):
    """The broker was removed from the cluster; only a new registration adds it again."""

    node_id: int
    epoch: int


# -- topics and partitions -----------------------------------------------------------------------------------------


class TopicCreated(MetadataRecord, frozen=True, tag=True):
    """A topic was created. `assignments[p]` are the replicas of partition p, the preferred leader first. All are empty,
    so the live ones are in sync, and the first of them leads. With `commit.protocol=paxos` each replica's disk, as
    registered, is a member of its partition, under the engine ids 1, 2, ... in that order; the first live one leads if
    a majority is live."""

    name: str
    topic_id: str
    assignments: list[list[int]]
    configs: dict[str, str]


class TopicDeleted(MetadataRecord, frozen=True, tag=True):
    """The topic was deleted for clients; brokers may remove its data."""

    topic_id: str


class TopicRemoved(MetadataRecord, frozen=True, tag=True):
    """A broker holds no data of the deleted topic any more."""

    topic_id: str
    node_id: int


class PartitionsAdded(MetadataRecord, frozen=True, tag=True):
    topic_id: str
    assignments: list[list[int]]


class PartitionChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The new state of all of a partition's fields that can change."""

    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    elr: list[int] = []
    last_known_elr: list[int] = []
    replicas: list[int] | None = None
    """The new replicas; None if they are unchanged."""
    adding: list[int] = []
    removing: list[int] = []
    members: list[PartitionMember] | None = None
    """The members of a Paxos partition; None if unchanged, as for the next two fields."""
    wanted: list[PartitionMember] | None = None
    next_engine_id: int | None = None
    renewed: list[int] = []
    """The replicas whose logs are lost: their brokers begin them anew, empty, at this record."""


class PartitionsChanged(MetadataRecord, frozen=True, tag=True):
    """All changes of partitions by one event, applied at once."""

    changes: list[PartitionChange]


class GivenUpRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The offsets [start, end) that were given up, each replica's statement about them, and the digests of the lost
    batches (`AcceptedLoss`)."""

    start: Int64
    end: Int64
    statements: tuple[LossStatement, ...] = ()
    digests: tuple[str, ...] = ()


class LossAccepted(MetadataRecord, frozen=True, tag=True):
    """An operator has given up ranges of a partition, of which no copy is left; consumers skip them from now on. The
    fields are those of `AcceptedLoss`."""

    topic_id: str
    partition: int
    ranges: tuple[GivenUpRange, ...]
    at_ms: int
    by: str
    via: int


class PartitionRegrouped(MetadataRecord, frozen=True, tag=True):
    """An operator has let a partition continue with its remaining replicas. The fields behind `change` are those of
    `Regrouping`; its leader epoch is that of the change."""

    change: PartitionChange
    end: int
    at_ms: int
    by: str
    via: int
    source: int
    statements: tuple[LossStatement, ...] = ()
    position: int = 0
    birth: int = 0


class MovesThrottled(MetadataRecord, frozen=True, tag=True):
    """The throttle of reassignments was set, in bytes per second on each sending and each receiving broker, until no
    partition is being reassigned; 0 for no limit."""

    bytes_per_s: int


class ConfigsAltered(MetadataRecord, frozen=True, tag=True):
    """Configuration overrides of a topic were changed; null removes an override."""

    topic_id: str
    changes: dict[str, str | None]


class ProducerIdsAllocated(MetadataRecord, frozen=True, tag=True):
    """All producer ids below `next_producer_id` are allocated."""

    next_producer_id: int


QUOTAS_LEVEL: Final = 3
"""The feature level from which on clusters have quotas."""


class QuotasAltered(MetadataRecord, frozen=True, tag=True):
    """The quotas of entities were changed."""

    changes: tuple[QuotaChange, ...]


# -- who logs in, and what they may do -----------------------------------------------------------------------------


class UserStored(MetadataRecord, frozen=True, tag=True):
    """A user was created, or its password was changed."""

    user: User


class UserRemoved(MetadataRecord, frozen=True, tag=True):
    name: str


class TokenStored(MetadataRecord, frozen=True, tag=True):
    token: Token


class TokensRemoved(MetadataRecord, frozen=True, tag=True):
    token_ids: tuple[str, ...]


class AclsAdded(MetadataRecord, frozen=True, tag=True):
    acls: tuple[Acl, ...]


class AclsRemoved(MetadataRecord, frozen=True, tag=True):
    acls: tuple[Acl, ...]


AccessRecord = UserStored | UserRemoved | TokenStored | TokensRemoved | AclsAdded | AclsRemoved
ACCESS_LEVEL: Final = 3
"""The feature level from which on clusters have users, tokens and ACLs."""

RECORD_KINDS: Final = tuple(MetadataRecord.__subclasses__())
"""The classes of all metadata records."""
_decoder: Final[msgspec.json.Decoder[MetadataRecord]] = msgspec.json.Decoder(reduce(or_, RECORD_KINDS))


SETTING_LEVELS: Final[Mapping[str, int]] = {"min.insync.racks": 2, "commit.order": 3, "commit.hole.span": 3}
"""The feature level from which on topics may have each setting; settings that are not listed exist since the first
level. A broker that does not know a setting cannot open the topic."""


def check_setting_levels(names: Iterable[str], level: int) -> None:
    """Raises `UnsupportedLevel` if one of these settings does not exist at this feature level."""
    for name in names:
        if SETTING_LEVELS.get(name, LEVEL_MIN) > level:
            raise UnsupportedLevel(
                f"{name} needs feature level {SETTING_LEVELS[name]}, and the cluster is at level {level}: brokers of "
                "an older version would not know it. Upgrade all, then run `tidelog cluster upgrade --finalize`"
            )


def _check_settings(record: TopicCreated | ConfigsAltered, level: int) -> MetadataRecord:
    check_setting_levels(record.configs if isinstance(record, TopicCreated) else record.changes, level)
    return record


def _check_changed(record: PartitionsChanged, level: int) -> PartitionsChanged:
    # Below this level brokers may not know the field, and would take a lost replica for one that has its log.
    if level < RENEWED_LEVEL and any(change.renewed for change in record.changes):
        raise UnsupportedLevel(f"replicas cannot begin anew at feature level {level}")
    return record


RENEWED_LEVEL: Final = 2
"""The feature level from which on the metadata records when each replica was assigned, and can have a replica begin
anew."""

RECORD_ADDITIONS: Final = Additions(
    types={
        **dict.fromkeys((LevelRaised, ClusterRecovered, BrokersStamped, LossAccepted, PartitionRegrouped), 2),
        **dict.fromkeys((UserStored, UserRemoved, TokenStored, TokensRemoved, AclsAdded, AclsRemoved), ACCESS_LEVEL),
        QuotasAltered: QUOTAS_LEVEL,
    },
    fields={ClusterCreated: {"level": 2}, BrokerRegistered: {"levels": 2, "starts": 2, "stamp": 2}},
    values={TopicCreated: _check_settings, ConfigsAltered: _check_settings, PartitionsChanged: _check_changed},
    order="deterministic",
)
"""The feature level from which on each record type, field and value may be written."""


def level_of(record: MetadataRecord) -> int:
    """Returns the smallest feature level of a cluster that can have this record."""
    kind = type(record)
    fields = RECORD_ADDITIONS.fields.get(kind, {})
    # Defaults belong to the last fields, so both tuples are matched from their ends.
    defaults = dict(zip(kind.__struct_fields__[::-1], kind.__struct_defaults__[::-1], strict=False)) if fields else {}
    shown = [since for name, since in fields.items() if getattr(record, name) != defaults[name]]
    return max([RECORD_ADDITIONS.types.get(kind, LEVEL_MIN), *shown])


def encode_record(record: MetadataRecord, level: int = LEVEL_MAX) -> bytes:
    """Returns the bytes of a record in a cluster of this feature level; equal records give identical bytes. Raises
    `UnsupportedLevel` if the record needs a higher level."""
    encoded = RECORD_ADDITIONS.at(record, level)
    return msgspec.json.encode(encoded, order="deterministic" if isinstance(encoded, msgspec.Struct) else None)


def encode_records(records: Iterable[MetadataRecord], level: int) -> bytes:
    """Returns the bytes of consecutive records, one line each, in a cluster that has this feature level before them.
    Raises `UnsupportedLevel` if one of them needs a higher level."""
    lines = []
    for record in records:
        # What stands behind the record, and the record itself, may need the level that it names.
        if isinstance(record, ClusterCreated | LevelRaised):
            level = record.level
        lines.append(encode_record(record, level))
    return b"\n".join(lines)


def decode_record(value: bytes) -> MetadataRecord:
    """Returns the record that the bytes encode. Raises `msgspec.DecodeError` for any other bytes."""
    try:
        # The decoder knows `RECORD_KINDS` only, so a newer broker's record stops this one here.
        return _decoder.decode(value)
    except UnicodeDecodeError as error:  # msgspec lets it through
        raise msgspec.DecodeError(str(error)) from error
