"""The records of `__consumer_offsets`: the only way in which groups change.

A record is the whole new value of its key; none is a change to another. So the state of a shard is the last record of
each key, a `Gone` takes a key away, and a record may be copied forward in the log at any time without a difference.

Keys and values are JSON, so that whoever reads the topic can read them; equal records give identical bytes. The value
repeats its key, and decoding compares them. A key or a value that is not known is an error: a coordinator that skipped
it would have another group than the one before it had.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from tidelog.model.groups import InstanceSettings, TopicPartitions

# -- keys ------------------------------------------------------------------------------------------------------------


class Key(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """The base of all keys of the log; equal keys name the same value."""

    group: str


class GroupKey(Key, frozen=True, tag="group"):
    pass


class MemberKey(Key, frozen=True, tag="member"):
    member_id: str


class TargetKey(Key, frozen=True, tag="target"):
    member_id: str


class CurrentKey(Key, frozen=True, tag="current"):
    member_id: str


class OffsetKey(Key, frozen=True, tag="place"):  # the word in the logs of the first version, which stay readable
    topic: str
    partition: int


class InstanceKey(Key, frozen=True, tag="instance"):
    instance: str


class ClassicKey(Key, frozen=True, tag="classic"):
    pass


MEMBER_KEYS: Final = (MemberKey, TargetKey, CurrentKey)
"""The kinds that say something of one member."""
AnyKey: TypeAlias = GroupKey | MemberKey | TargetKey | CurrentKey | OffsetKey | InstanceKey | ClassicKey
CLASSIC_LEVEL: Final = 3
"""Since which feature level there are classic groups: a coordinator of an older version cannot load one."""

# -- values ----------------------------------------------------------------------------------------------------------


class GroupLogRecord(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all, also of `Gone`."""

    group: str

    @property
    def key(self) -> AnyKey:
        """Returns the key that this record is the newest value of."""
        raise NotImplementedError  # each kind has its own; a msgspec.Struct cannot be an abstract class


class Gone(GroupLogRecord, frozen=True):
    """A tombstone."""

    of: AnyKey

    @property
    def key(self) -> AnyKey:
        return self.of


def gone(key: AnyKey) -> Gone:
    """Returns the tombstone of a key."""
    return Gone(key.group, key)


class GroupRecord(GroupLogRecord, frozen=True, tag="group"):
    """A group that has members, or had. One that only ever had committed offsets has no such record."""

    epoch: int
    """Rises when members come or go or want other topics, and when those topics change. All targets are of it."""
    assignor: str
    """The one that made the targets."""
    digest: str
    """The digest of the topics, as they were then, that the members subscribe to: see `rebalance.py`."""
    empty_since_ms: int | None = None
    """Since when there are no members; wall clock."""

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.group)


class MemberRecord(GroupLogRecord, frozen=True, tag="member"):
    """A member, and what it said that it wants."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    topics: tuple[str, ...]
    pattern: str
    assignor: str | None
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None

    @property
    def key(self) -> MemberKey:
        return MemberKey(self.group, self.member_id)


class TargetTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    topic_id: str
    partitions: tuple[int, ...]


class TargetRecord(GroupLogRecord, frozen=True, tag="target"):
    """The partitions that a member will own when all is settled."""

    member_id: str
    topics: tuple[TargetTopic, ...]

    @property
    def key(self) -> TargetKey:
        return TargetKey(self.group, self.member_id)


class HeldTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`epochs[i]`: the member epoch at which `partitions[i]` was given to the member."""

    topic: str
    topic_id: str
    partitions: tuple[int, ...]
    epochs: tuple[int, ...]


class CurrentRecord(GroupLogRecord, frozen=True, tag="current"):
    """The state of a member: its epoch, and the partitions that it holds or is giving up."""

    member_id: str
    member_epoch: int
    """The group epoch whose target the member is being brought to; `LEAVE_STATIC` for one that is away."""
    previous_epoch: int
    """The one before, which the member goes by until it has heard of the new one."""
    held: tuple[HeldTopic, ...] = ()
    """The partitions that the member may own."""
    revoking: tuple[HeldTopic, ...] = ()
    """The partitions that it was told to give up and has not yet said that it did."""
    is_told: bool = False
    """It has said that it owns exactly what is held."""

    @property
    def key(self) -> CurrentKey:
        return CurrentKey(self.group, self.member_id)


class OffsetRecord(GroupLogRecord, frozen=True, tag="place"):
    """The next offset that the group reads in a partition."""

    topic: str
    topic_id: str
    """A topic that is created anew has another, and thereby no committed offsets."""
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    member_id: str
    """The member that committed the offset; "" if no member did."""
    sequence: int
    """The number of that commit among the member's, so that one that comes late is told from a newer one."""
    committed_ms: int
    """Wall clock."""

    @property
    def key(self) -> OffsetKey:
        return OffsetKey(self.group, self.topic, self.partition)


class InstanceRecord(GroupLogRecord, frozen=True, tag="instance"):
    """A REST consumer: how it was created, and what it reads. If it subscribes it is a member, too."""

    instance: str
    settings: InstanceSettings
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartitions, ...] = ()

    @property
    def key(self) -> InstanceKey:
        return InstanceKey(self.group, self.instance)


class KeptMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A member of a classic group in one generation."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    """The member says this of itself for the protocol that was chosen."""
    assignment: bytes = b""
    instance_id: str | None = None


class ClassicRecord(GroupLogRecord, frozen=True, tag="classic"):
    """A classic group in its newest generation (Kafka's `GroupMetadataValue`)."""

    generation: int
    """Begins at 1 with the first members; 0 for a group that had none yet."""
    protocol_type: str = ""
    protocol: str | None = None
    """The one that was chosen."""
    leader: str | None = None
    members: tuple[KeptMember, ...] = ()
    is_assigned: bool = False
    """The leader has said who gets what."""
    empty_since_ms: int | None = None
    """Since when there are no members; wall clock."""

    @property
    def key(self) -> ClassicKey:
        return ClassicKey(self.group)


_AnyRecord: TypeAlias = (
    GroupRecord | MemberRecord | TargetRecord | CurrentRecord | OffsetRecord | InstanceRecord | ClassicRecord
)

# -- bytes -----------------------------------------------------------------------------------------------------------


class UnknownGroupRecord(ValueError):
    """Not a record that this version knows: damaged, or of a later version."""


_keys: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyKey)
_values: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_AnyRecord)


def encode(record: GroupLogRecord) -> tuple[bytes, bytes | None]:
    """Returns a record's key and value in the log; the value of a `Gone` is None."""
    key = msgspec.json.encode(record.key)
    return key, None if isinstance(record, Gone) else msgspec.json.encode(record)


def decode(key: bytes, value: bytes | None) -> GroupLogRecord:
    """Returns the record of a key and a value from the log. Raises `UnknownGroupRecord`."""
    try:
        # An unknown key is an error, too: a coordinator that skipped it would have another group than the one before it
        # had.
        log_key: AnyKey = _keys.decode(key)
        if value is None:
            return gone(log_key)
        record: GroupLogRecord = _values.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownGroupRecord(
            f"__consumer_offsets holds a record that this version does not know, under the key {key[:200]!a}: "
            f"{error}; start a version of tidelog that is not older than the one that wrote it"
        ) from None
    # The value repeats its key, so that a record under a wrong key is noticed instead of applied to another group.
    if record.key != log_key:
        raise UnknownGroupRecord(f"__consumer_offsets holds, under the key {key[:200]!a}, the record of another")
    return record
