"""Requests to a consumer group's coordinator, and its answers.

The protocol is that of KIP-848: the coordinator assigns the partitions, and one request, the heartbeat, carries what a
member wants and owns, and its answer the member's epoch and what it may own. A member never owns a partition before its
previous owner has reported that it gave the partition up, or was expelled; no other member is interrupted.

    member_epoch 0: join    > 0: still there    -1: leave    -2: leave, but keep the partitions for `instance_id`

A joining member has drawn its own `member_id` (KIP-1082), so a repeated join is recognised. Every request may be
repeated without harm; in a commit, `sequence` tells a late one from a new one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from tidelog.model.errors import InvalidGroupName, InvalidRequest, UnknownInstance
from tidelog.model.records import RecordForm
from tidelog.model.wire_numbers import Int64

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_STATIC: Final = -2
NO_EPOCH: Final = -1
"""Member epoch in the commit of a client that is not a member."""
NO_OFFSET: Final = -1
"""Stands for no committed offset."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
NAME_LENGTH_MAX: Final = 255


class TopicPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic, in ascending order."""

    topic: str
    partitions: tuple[Int64, ...]


# -- requests --------------------------------------------------------------------------------------------------------


class GroupRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the requests about one group."""

    group: str


class Heartbeat(GroupRequest, frozen=True, tag=True, kw_only=True):
    """A member's heartbeat. Answered by `HeartbeatAnswer`. A field that is None is unchanged since the last heartbeat;
    a join sets all fields.

    Raises `UnknownMember` or `FencedMember` if the member owns nothing any more. It then joins again under another id,
    so that commits of the old id that are still on their way do not count. Raises `InstanceIdInUse`,
    `UnsupportedAssignor`, `GroupFull`, `InvalidRequest`; `UnknownGroup` in a classic group, whose members assign their
    partitions themselves.
    """

    member_id: str
    member_epoch: Int64
    instance_id: str | None = None
    """The `group.instance.id` of a static member. If the member comes back with it within its session timeout, it has
    its partitions again."""
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    """Names of the subscribed topics. A topic that does not exist is assigned once it does."""
    pattern: str | None = None
    """Regular expression for the names of subscribed topics (RE2 syntax, full match), in addition to `topics`. An empty
    one cancels it."""
    assignor: str | None = None
    """Preferred assignor: `uniform`, `range` or `roundrobin`. The group uses the one that most members prefer."""
    session_timeout_ms: Int64 | None = None
    """Milliseconds without a heartbeat after which the member is expelled; the broker's default if it was never set."""
    rebalance_timeout_ms: Int64 | None = None
    """Milliseconds after which the member is expelled if it keeps a partition that it has to give up."""
    owned: tuple[TopicPartitions, ...] | None = None
    """Partitions that the member owns now. Must be set after each answer that had an `assignment`."""
    wait_ms: Int64 = 0
    """Milliseconds that the answer may wait for a new assignment (a long poll). The answer to a join or a leave never
    waits."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """A group's committed offset in a partition: `offset` is the next offset to read."""

    topic: str
    partition: Int64
    offset: Int64
    leader_epoch: Int64 = -1
    metadata: str = ""


class CommitOffsets(GroupRequest, frozen=True, tag=True, kw_only=True):
    """A commit of offsets. Answered by `CommitAnswer`, with a result for each partition. Raises `UnknownMember`,
    `FencedMember` if the member never had the epoch `member_epoch`, `InvalidRequest`; `GroupNotEmpty` if the sender is
    no member (`member_id` is empty) of a group that has members.

    A member's commit counts for partitions that it has owned since an epoch not later than `member_epoch` (KIP-1251).
    So a late commit for a partition that it owned once, or owns again, does not count.
    """

    member_id: str = ""
    member_epoch: Int64 = NO_EPOCH
    sequence: Int64 = 0
    """Number that rises with each commit of a member. A commit that arrives after a later one is ignored, and answered
    as `stale`."""
    offsets: tuple[CommittedOffset, ...]


class FetchOffsets(GroupRequest, frozen=True, tag=True, kw_only=True):
    """A request for committed offsets: of these partitions, or of all if None. Answered by `OffsetsAnswer`.

    If the sender is a member, its epoch must be the current one (else `FencedMember`), so that no member starts reading
    where an outdated coordinator says.
    """

    member_id: str = ""
    member_epoch: Int64 = NO_EPOCH
    partitions: tuple[TopicPartitions, ...] | None = None


class SetOffsets(GroupRequest, frozen=True, tag=True, kw_only=True):
    """An operator's reset of committed offsets, whatever they were; an `offset` of `NO_OFFSET` deletes the committed
    offset. Answered by `GroupDone`. Raises `GroupNotEmpty` while the group has members, which could commit over it."""

    offsets: tuple[CommittedOffset, ...]


class DeleteGroup(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Deletes a group and its committed offsets. Answered by `GroupDone`. Raises `UnknownGroup`, `GroupNotEmpty`."""


class DescribeGroup(GroupRequest, frozen=True, tag=True, kw_only=True):
    """A request for a group's description. Answered by `GroupDescription`. Raises `UnknownGroup`."""


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a REST consumer instance was created with; they never change."""

    format: RecordForm = "binary"
    reset: Literal["earliest", "latest", "none"] = "latest"
    """Offset at which the instance begins in partitions without a committed offset (`auto.offset.reset`)."""
    auto_commit: bool = False
    fetch_bytes_min: Int64 = 1
    request_timeout_ms: Int64 = 1000
    """Milliseconds that a read waits for records, unless the read request says another time."""
    on_loss: Literal["fail", "skip"] = "fail"
    """Result of a read at offsets whose loss an operator has accepted: an error, or a skip (`on.loss`)."""
    owner: str = ""
    """Principal that created the instance; empty without authentication, and if a version without owners created it."""


class CreateInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Creates a REST consumer instance. Answered by `GroupDone`. Raises `InstanceExists`, also for a repeated
    request."""

    instance: str
    settings: InstanceSettings


class ConfigureInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Sets what a REST consumer instance reads, as a whole: a subscription (`topics` or `pattern`), assigned
    partitions, or nothing. Answered by `GroupDone`. Raises `UnknownInstance`; `IllegalState` for a change from
    subscription to assigned partitions or back, unless it was set to read nothing in between."""

    instance: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartitions, ...] = ()


class DeleteInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Deletes a REST consumer instance. If it is a member of its group, the member leaves with a request of its own
    before. Answered by `GroupDone`. Raises `UnknownInstance`."""

    instance: str


class DescribeInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """A request for the description of a REST consumer instance. Answered by `InstanceDescription`. Raises
    `UnknownInstance`."""

    instance: str


class ListInstances(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """A request for the REST consumer instances in one partition of `__consumer_offsets`. The partition's leader
    answers with `InstancesListed`."""

    partition: Int64


class ListGroups(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """A request for the groups in one partition of `__consumer_offsets`. The partition's leader answers with
    `GroupsListed`."""

    partition: Int64


AnyGroupRequest: TypeAlias = (
    Heartbeat
    | CommitOffsets
    | FetchOffsets
    | SetOffsets
    | DeleteGroup
    | DescribeGroup
    | CreateInstance
    | ConfigureInstance
    | DeleteInstance
    | DescribeInstance
    | ListInstances
    | ListGroups
)

# -- answers ---------------------------------------------------------------------------------------------------------


class HeartbeatAnswer(msgspec.Struct, frozen=True, tag=True):
    """A member's epoch and assignment. The member gives up the partitions that it owns and that `assignment` lacks,
    reports that in `owned`, and then owns the assignment."""

    member_id: str
    member_epoch: Int64
    heartbeat_interval_ms: Int64
    """Milliseconds, from this answer on, within which the member has to send its next heartbeat."""
    session_timeout_ms: Int64
    """Session timeout of this member, in milliseconds."""
    assignment: tuple[TopicPartitions, ...] | None
    """All partitions that the member may own now; None if they are those that it reported to own."""
    coordinator: Int64 = -1
    """Node id of the broker to send the next request to."""


class CommitVerdict(msgspec.Struct, frozen=True):
    """The result of one offset's commit."""

    topic: str
    partition: Int64
    code: Int64 = 0
    """0 if the offset is stored, else an error code: 40401 or 40402, no such topic or partition; 40915, not owned, or
    only since a later epoch; 40916, a later commit of this member is stored already; 42212, the metadata is too
    long."""
    message: str = ""


class CommitAnswer(msgspec.Struct, frozen=True, tag=True):
    """The results of a commit: one for each offset of the request, in its order."""

    verdicts: tuple[CommitVerdict, ...]


class OffsetsAnswer(msgspec.Struct, frozen=True, tag=True):
    """The committed offsets of a group. A partition that was asked for and has none gets the `offset` `NO_OFFSET`."""

    offsets: tuple[CommittedOffset, ...]


class MemberDescription(msgspec.Struct, frozen=True):
    """A group member in the description of its group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    member_epoch: Int64
    topics: tuple[str, ...]
    pattern: str
    owned: tuple[TopicPartitions, ...]
    """The partitions that the member may own, or has not given up yet."""
    target: tuple[TopicPartitions, ...]
    """Partitions that the member will own after the rebalance."""
    metadata: bytes = b""
    """Metadata of a member of a classic group, for the group's leader."""
    assignment: bytes = b""
    """Assignment of a member of a classic group, as its leader encoded it."""


GroupKind: TypeAlias = Literal["consumer", "classic"]
"""Kafka's names for the kinds of groups: `consumer` if the coordinator assigns (KIP-848), `classic` if the members
do."""


class GroupDescription(msgspec.Struct, frozen=True, tag=True):
    """Describes a group. Its `state` is Kafka's: `Empty`, `Assigning`, `Reconciling`, `Stable`; a classic group's
    `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable`. The epoch of a classic group is its generation, the
    assignor its protocol."""

    group: str
    state: str
    group_epoch: Int64
    assignor: str
    coordinator: Int64
    members: tuple[MemberDescription, ...]
    is_simple: bool = False
    """True if the group has committed offsets and never had a member."""
    kind: GroupKind = "consumer"
    protocol_type: str = ""
    """Protocol type of a classic group: `consumer` if its members are consumers."""


class GroupListed(msgspec.Struct, frozen=True):
    """A group in a list: the fields of `GroupDescription`, with the number of members instead of the members."""

    group: str
    state: str
    group_epoch: Int64
    assignor: str
    coordinator: Int64
    members: Int64
    is_simple: bool = False
    kind: GroupKind = "consumer"
    protocol_type: str = ""


class GroupsListed(msgspec.Struct, frozen=True, tag=True):
    groups: tuple[GroupListed, ...]


class InstanceDescription(msgspec.Struct, frozen=True, tag=True):
    """A REST consumer instance: its settings, and what it reads."""

    settings: InstanceSettings
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartitions, ...] = ()

    @property
    def is_subscribed(self) -> bool:
        """True if the instance has a subscription. It is then a member of its group, with its name as the member id."""
        return bool(self.topics or self.pattern)


class InstanceListed(msgspec.Struct, frozen=True):
    """A REST consumer instance in a list."""

    group: str
    instance: str


class InstancesListed(msgspec.Struct, frozen=True, tag=True):
    instances: tuple[InstanceListed, ...]


class GroupDone(msgspec.Struct, frozen=True, tag=True):
    """The answer to a request that succeeded and has no other result."""


def check_group_name(name: str) -> str:
    """Returns the group name if it is valid: any text, as in Kafka, but of at most 255 characters. Raises
    `InvalidGroupName`."""
    if not _is_text(name):
        raise InvalidGroupName(f"{_shown(name)} is no group name: use 1 to {NAME_LENGTH_MAX} characters")
    return name


def check_member_id(member_id: str) -> str:
    """Returns the member id if it is valid: any text of at most 255 characters. Raises `InvalidRequest`."""
    if not _is_text(member_id):
        raise InvalidRequest(f"{_shown(member_id)} is no member id: use 1 to {NAME_LENGTH_MAX} characters")
    return member_id


def check_instance_name(name: str, what: str = "instance") -> str:
    """Returns the name of an instance if it is valid. Raises `InvalidRequest`, whose message calls the name's owner
    `what`."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{_shown(name)} is no {what} name: use 1 to 255 of the characters A-Z a-z 0-9 . _ -")
    return name


def _is_text(name: str) -> bool:
    """Returns True for text of 1 to 255 characters without lone surrogates, which cannot be encoded."""
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        return False
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:80]}...")


def unknown_instance(group: str, instance: str) -> UnknownInstance:
    """Returns the error for a REST consumer instance that does not exist, or that its caller may not know of."""
    return UnknownInstance(
        f"group {group} has no consumer instance {instance}: it was deleted, or was quiet for too long; create it"
    )


def pairs(listed: Sequence[TopicPartitions]) -> list[tuple[str, int]]:
    """Returns sorted pairs of topic and partition number."""
    return sorted((entry.topic, partition) for entry in listed for partition in entry.partitions)


def grouped(partitions: Sequence[tuple[str, int]]) -> tuple[TopicPartitions, ...]:
    """Returns pairs of topic and partition number as entries per topic, sorted, each partition once."""
    by_topic = dict[str, list[int]]()
    for topic, partition in sorted(dict.fromkeys(partitions)):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in by_topic.items())
