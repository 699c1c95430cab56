"""Records of `__consumer_offsets`: the only way in which groups change.

A record is the whole new value of its key, never a difference. So the state of a shard is the last record of each key,
a `Gone` is the tombstone of a key, and a record may be copied forward in the log at any time.

Keys and values are JSON, so that anyone can read the topic; equal records have identical bytes. The value repeats its
key, and decoding compares them. An unknown key or value is an error: a coordinator that skipped it would have another
state than the one before it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from tidelog.model.groups import InstanceSettings, TopicPartitions

# -- keys ------------------------------------------------------------------------------------------------------------


class Key(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """Base class of all keys in the log; equal keys name the same value."""

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
"""Key types that belong to one member."""
AnyKey: TypeAlias = GroupKey | MemberKey | TargetKey | CurrentKey | OffsetKey | InstanceKey | ClassicKey
CLASSIC_LEVEL: Final = 3
"""First feature level with classic groups; coordinators of older versions cannot load them."""

# -- values ----------------------------------------------------------------------------------------------------------


class GroupLogRecord(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """Base class of all records, tombstones included."""

    key_type: ClassVar[type[AnyKey]]

    group: str

    @property
    def key(self) -> AnyKey:
        """The key of the record: its fields are fields of the record, too."""
        return self.key_type(*(getattr(self, name) for name in self.key_type.__struct_fields__))


class Gone(GroupLogRecord, frozen=True):
    """A tombstone, which deletes a key."""

    of: AnyKey

    @property
    def key(self) -> AnyKey:
        return self.of


def gone(key: AnyKey) -> Gone:
    """Returns the tombstone of a key."""
    return Gone(key.group, key)


class GroupRecord(GroupLogRecord, frozen=True, tag="group"):
    """A group that has or had members. One that only has committed offsets has no such record."""

    key_type = GroupKey

    epoch: int
    """Group epoch. It rises when members join, leave or change their subscriptions, and when subscribed topics change.
    All targets belong to it."""
    assignor: str
    """Name of the assignor that made the targets."""
    digest: str
    """Digest of the subscribed topics when the targets were made (`rebalance.py`)."""
    empty_since_ms: int | None = None
    """Wall-clock time (ms) since when there are no members; None if there are some."""


class MemberRecord(GroupLogRecord, frozen=True, tag="member"):
    """A member and its subscription."""

    key_type = MemberKey

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


class TargetTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    topic_id: str
    partitions: tuple[int, ...]


class TargetRecord(GroupLogRecord, frozen=True, tag="target"):
    """Target assignment of a member: the partitions that it is to own once reconciled."""

    key_type = TargetKey

    member_id: str
    topics: tuple[TargetTopic, ...]


class HeldTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Partitions of one topic that a member holds. `epochs[i]` is the member epoch at which it got `partitions[i]`."""

    topic: str
    topic_id: str
    partitions: tuple[int, ...]
    epochs: tuple[int, ...]


class CurrentRecord(GroupLogRecord, frozen=True, tag="current"):
    """Current assignment of a member: its epoch, and the partitions that it holds or is revoking."""

    key_type = CurrentKey

    member_id: str
    member_epoch: int
    """Group epoch of the target that the member is being reconciled to; `LEAVE_STATIC` for a static member that is
    away."""
    previous_epoch: int
    """The member's epoch before, which it uses until it has received the new one."""
    held: tuple[HeldTopic, ...] = ()
    """Partitions that the member may own."""
    revoking: tuple[HeldTopic, ...] = ()
    """Partitions that the member was told to revoke and has not confirmed yet."""
    is_told: bool = False
    """True if the member has confirmed that it owns exactly `held`."""


class OffsetRecord(GroupLogRecord, frozen=True, tag="place"):
    """A committed offset: the next offset that the group reads in a partition."""

    key_type = OffsetKey

    topic: str
    topic_id: str
    """Id of the topic at the commit. A topic created anew under the name has another id, and so no committed
    offsets."""
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    member_id: str
    """Member that committed the offset; empty if no member did."""
    sequence: int
    """Number of the commit among the member's commits, so that a delayed one cannot replace a newer one."""
    committed_ms: int
    """Wall-clock time of the commit, in ms."""


class InstanceRecord(GroupLogRecord, frozen=True, tag="instance"):
    """A REST consumer instance: its settings, and what it reads. If it subscribes, it is also a group member."""

    key_type = InstanceKey

    instance: str
    settings: InstanceSettings
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartitions, ...] = ()


class KeptMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A member of a classic group in one generation."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    """Metadata of the member for the chosen protocol."""
    assignment: bytes = b""
    instance_id: str | None = None


class ClassicRecord(GroupLogRecord, frozen=True, tag="classic"):
    """A classic group in its newest generation (Kafka's `GroupMetadataValue`)."""

    key_type = ClassicKey

    generation: int
    """Generation: 1 for the first members, 0 for a group that had none yet."""
    protocol_type: str = ""
    protocol: str | None = None
    """Name of the chosen protocol."""
    leader: str | None = None
    members: tuple[KeptMember, ...] = ()
    is_assigned: bool = False
    """True once the leader has sent the assignments."""
    empty_since_ms: int | None = None
    """Wall-clock time (ms) since when there are no members; None if there are some."""


_AnyRecord: TypeAlias = (
    GroupRecord | MemberRecord | TargetRecord | CurrentRecord | OffsetRecord | InstanceRecord | ClassicRecord
)

# -- bytes -----------------------------------------------------------------------------------------------------------


class UnknownGroupRecord(ValueError):
    """A record that this version cannot decode: damaged, or of a later version."""


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
