"""The requests to a consumer group's coordinator and its answers; between clients, brokers and the coordinator.

The protocol is that of KIP-848: the coordinator assigns, and one call, the heartbeat, carries all that a member has to
say (what it wants, what it owns) and all that it is told (its epoch, what it may own). A member never owns a partition
before whoever owned it has said that it does not any more, or was expelled; nobody else stops meanwhile.

    member_epoch 0: join    > 0: "I am here"    -1: leave for good    -2: leave, keeping those of `instance_id`

Whoever joins has drawn its own `member_id` (KIP-1082): so a repeated join is the same one. Every request but a commit
may be repeated without harm, and a commit, too: `sequence` tells a late one from a new one.
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
"""The member epoch of whoever commits without being a member."""
NO_OFFSET: Final = -1
"""In an answer: nothing was committed."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
NAME_LENGTH_MAX: Final = 255


class TopicPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic, ascending."""

    topic: str
    partitions: tuple[Int64, ...]


# -- requests --------------------------------------------------------------------------------------------------------


class GroupRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what is asked about one group."""

    group: str


class Heartbeat(GroupRequest, frozen=True, tag=True, kw_only=True):
    """ "I am here." Answered by `HeartbeatAnswer`. None means "as I said before"; a join must say it all.

    Raises `UnknownMember`, `FencedMember`: the member owns nothing any more, and joins anew, under another id, so that
    no commit of its that is still under way counts; `InstanceIdInUse`, `UnsupportedAssignor`, `GroupFull`,
    `InvalidRequest`; `UnknownGroup` in a group whose members assign their partitions themselves.
    """

    member_id: str
    member_epoch: Int64
    instance_id: str | None = None
    """The `group.instance.id` of a static member: one that comes back with it within the session has its partitions
    again."""
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    """Subscribed by name; those that do not exist are waited for."""
    pattern: str | None = None
    """Subscribed by a regular expression (RE2's syntax, full match), beside `topics`; "" takes it back."""
    assignor: str | None = None
    """`uniform`, `range` or `roundrobin`; the group goes by what most of its members want."""
    session_timeout_ms: Int64 | None = None
    """Expelled after so long a silence; the broker's default if it was never said."""
    rebalance_timeout_ms: Int64 | None = None
    """Expelled if it keeps a partition that it was told to give away for so long."""
    owned: tuple[TopicPartitions, ...] | None = None
    """The partitions that the member owns now. Must be said after each answer that had an `assignment`."""
    wait_ms: Int64 = 0
    """How long the answer may wait for news (a long poll); it is never waited for after a join or a leave."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """The committed offset of a group in a partition: `offset` is the next one to be read."""

    topic: str
    partition: Int64
    offset: Int64
    leader_epoch: Int64 = -1
    metadata: str = ""


class CommitOffsets(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Keeps committed offsets. Answered by `CommitAnswer`, which says it of each partition; or raises as `Heartbeat`,
    or `GroupNotEmpty` for whoever is no member (`member_id` "") where there are members.

    A member's commit counts for partitions that it owns, since an epoch that is not later than `member_epoch`
    (KIP-1251): a late commit of what it owned once, or owns again, does not."""

    member_id: str = ""
    member_epoch: Int64 = NO_EPOCH
    sequence: Int64 = 0
    """Rises with each commit of a member; one that comes late is not obeyed any more (and answered as `stale`)."""
    offsets: tuple[CommittedOffset, ...]


class FetchOffsets(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Asks for committed offsets: of these partitions, or of all that there are (None). Answered by `OffsetsAnswer`.

    With a member, its epoch must be the one in force (`FencedMember`): so nobody begins where a coordinator of the past
    believes it should."""

    member_id: str = ""
    member_epoch: Int64 = NO_EPOCH
    partitions: tuple[TopicPartitions, ...] | None = None


class SetOffsets(GroupRequest, frozen=True, tag=True, kw_only=True):
    """An operator's reset: these committed offsets, whatever they were; an `offset` of `NO_OFFSET` takes the committed
    offset away. Answered by `GroupDone`. Raises `GroupNotEmpty`, as long as anybody could commit over it."""

    offsets: tuple[CommittedOffset, ...]


class DeleteGroup(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Forgets a group and its committed offsets. Answered by `GroupDone`. Raises `UnknownGroup`, `GroupNotEmpty`."""


class DescribeGroup(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Answered by `GroupDescription`. Raises `UnknownGroup`."""


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a REST consumer instance was created with; they never change."""

    format: RecordForm = "binary"
    reset: Literal["earliest", "latest", "none"] = "latest"
    """The offset at which it begins in partitions of which the group has no committed offset (`auto.offset.reset`)."""
    auto_commit: bool = False
    fetch_bytes_min: Int64 = 1
    request_timeout_ms: Int64 = 1000
    """How long a read waits for records, if it does not say."""
    on_loss: Literal["fail", "skip"] = "fail"
    """The conduct of a read where records are lost, and an operator has accepted that (`on.loss`)."""
    owner: str = ""
    """The principal that has created it; empty where nobody has to log in, and before there were owners."""


class CreateInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """A REST consumer instance. Answered by `GroupDone`. Raises `InstanceExists`, also when it is repeated."""

    instance: str
    settings: InstanceSettings


class ConfigureInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Sets what an instance reads, as a whole: a subscription (`topics` or `pattern`), partitions, or nothing. Answered
    by `GroupDone`. Raises `UnknownInstance`; `IllegalState` for one that subscribed and is assigned partitions, or the
    other way round: it has to say that it reads nothing first."""

    instance: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartitions, ...] = ()


class DeleteInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Forgets an instance; its member, if it is one, leaves by itself before. Answered by `GroupDone`. Raises
    `UnknownInstance`."""

    instance: str


class DescribeInstance(GroupRequest, frozen=True, tag=True, kw_only=True):
    """Answered by `InstanceDescription`. Raises `UnknownInstance`."""

    instance: str


class ListInstances(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """The instances of one partition of `__consumer_offsets`, of its leader. Answered by `InstancesListed`."""

    partition: Int64


class ListGroups(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """The groups of one partition of `__consumer_offsets`, of its leader. Answered by `GroupsListed`."""

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
    """A member's epoch and assignment. It gives up what it owns and `assignment` lacks, says so (`owned`), has the
    rest."""

    member_id: str
    member_epoch: Int64
    heartbeat_interval_ms: Int64
    """Be heard again within this time, from this answer on."""
    session_timeout_ms: Int64
    """In force for this member."""
    assignment: tuple[TopicPartitions, ...] | None
    """All that the member may own now; None if that is what it said it owns."""
    coordinator: Int64 = -1
    """Node id of the broker that is worth asking next time."""


class CommitVerdict(msgspec.Struct, frozen=True):
    """The fate of one offset that was to be committed."""

    topic: str
    partition: Int64
    code: Int64 = 0
    """0: it is kept. Else an error's: 40401, 40402; 40915: not owned, or not by this epoch; 40916: a later commit of
    this member is kept already; 42212: the metadata is too long."""
    message: str = ""


class CommitAnswer(msgspec.Struct, frozen=True, tag=True):
    """The verdicts on a commit: one for each committed offset of the request, in its order."""

    verdicts: tuple[CommitVerdict, ...]


class OffsetsAnswer(msgspec.Struct, frozen=True, tag=True):
    """The committed offsets of a group. For a partition that was named and has none, `offset` is `NO_OFFSET`."""

    offsets: tuple[CommittedOffset, ...]


class MemberDescription(msgspec.Struct, frozen=True):
    """A member, as its coordinator sees it."""

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
    """The partitions that the member will own when all is settled."""
    metadata: bytes = b""
    """In a classic group, what it says of itself to the group's leader."""
    assignment: bytes = b""
    """In a classic group, what the leader gave it."""


GroupKind: TypeAlias = Literal["consumer", "classic"]
"""The name that Kafka has for whoever assigns: the coordinator (KIP-848), or the members."""


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
    """It has committed offsets, and never had a member."""
    kind: GroupKind = "consumer"
    protocol_type: str = ""
    """The type of a classic group: `consumer` if its members are consumers."""


class GroupListed(msgspec.Struct, frozen=True):
    """A group in a list: as it is described, with its members counted."""

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
    """A REST consumer instance: how it was created, and what it reads."""

    settings: InstanceSettings
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartitions, ...] = ()

    @property
    def is_subscribed(self) -> bool:
        """True if it is a member of its group: the one whose id is the instance's name."""
        return bool(self.topics or self.pattern)


class InstanceListed(msgspec.Struct, frozen=True):
    """A REST consumer instance in a list."""

    group: str
    instance: str


class InstancesListed(msgspec.Struct, frozen=True, tag=True):
    instances: tuple[InstanceListed, ...]


class GroupDone(msgspec.Struct, frozen=True, tag=True):
    """It is in force."""


def check_group_name(name: str) -> str:
    """Returns the name of a group, if it is one: as with Kafka any text, but of a bounded length. Raises
    `InvalidGroupName`."""
    if not _is_text(name):
        raise InvalidGroupName(f"{_shown(name)} is no group name: use 1 to {NAME_LENGTH_MAX} characters")
    return name


def check_member_id(member_id: str) -> str:
    """Returns the id of a member, if it is one: any text, as it may begin with what its client calls itself. Raises
    `InvalidRequest`."""
    if not _is_text(member_id):
        raise InvalidRequest(f"{_shown(member_id)} is no member id: use 1 to {NAME_LENGTH_MAX} characters")
    return member_id


def check_instance_name(name: str, what: str = "instance") -> str:
    """Returns the name of an instance, if it is one. Raises `InvalidRequest`."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{_shown(name)} is no {what} name: use 1 to 255 of the characters A-Z a-z 0-9 . _ -")
    return name


def _is_text(name: str) -> bool:
    """Half of a surrogate pair has no bytes, and could not be kept."""
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        return False
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:80]}...")


def unknown_instance(group: str, instance: str) -> UnknownInstance:
    """Returns what is said of a REST consumer instance that is not there, or that its caller may not know of."""
    return UnknownInstance(
        f"group {group} has no consumer instance {instance}: it was deleted, or was quiet for too long; create it"
    )


def pairs(listed: Sequence[TopicPartitions]) -> list[tuple[str, int]]:
    """(topic, partition), sorted."""
    return sorted((entry.topic, partition) for entry in listed for partition in entry.partitions)


def grouped(partitions: Sequence[tuple[str, int]]) -> tuple[TopicPartitions, ...]:
    """The other way round; by topic, sorted, each partition once."""
    found = dict[str, list[int]]()
    for topic, partition in sorted(dict.fromkeys(partitions)):
        found.setdefault(topic, []).append(partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in found.items())
