"""The requests of a classic group's members, and their answers: Kafka's group protocol from before KIP-848.

The members assign. All of them join, the coordinator makes one the leader and tells it who they are, the leader says
who gets what, and the coordinator passes that on:

    JoinGroup  ->  member id, generation, who leads; for the leader all members with their metadata
    SyncGroup  ->  the member's assignment; the leader brings the assignments of all
    Heartbeat  ->  nothing, or that it is time to join again

Metadata and assignments are bytes that only members understand. The requests are answered by the coordinator and by no
other broker, as with Kafka, whose clients look for it by themselves. Each of them may be repeated.
"""

from __future__ import annotations

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.groups import CommittedOffset

NO_GENERATION = -1
"""The generation of whoever commits without being a member."""


class Protocol(msgspec.Struct, frozen=True):
    """A way to assign that a member knows, by its name, and what it says of itself for that."""

    name: str
    metadata: bytes


class ClassicRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is asked about one group by one member."""

    group: str
    member_id: str = ""
    instance_id: str | None = None
    """The name of a static member (`group.instance.id`, KIP-345)."""


class JoinGroup(ClassicRequest, frozen=True, kw_only=True):
    """A member wants to be in the next generation. Answered by `JoinAnswer`, when all have joined.

    Raises `MemberIdRequired`, `UnknownMember`, `FencedInstance`, `InconsistentProtocol`, `GroupFull`,
    `InvalidGroupName`, `InvalidSessionTimeout`, `InvalidRequest`, `UnsupportedLevel`; `RebalanceInProgress` if the
    caller waits no longer, or the same member has joined once more.
    """

    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    """Expelled after so long a silence."""
    rebalance_timeout_ms: int
    """How long the others wait for it to join again, and to sync."""
    protocol_type: str
    """`consumer` for consumers; all members of a group have the same."""
    protocols: tuple[Protocol, ...]
    """The one that it likes best first."""
    requires_known_id: bool = True
    """A member without an id is given one, and has to join again with it (versions from 4 on)."""
    can_skip_assignment: bool = False
    """It knows that a leader may be told not to assign (versions from 9 on)."""


class JoinedMember(msgspec.Struct, frozen=True):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(msgspec.Struct, frozen=True):
    """The member is in a generation, which begins with its sync."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    """Member id of the leader."""
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader alone."""
    skip_assignment: bool = False
    """The leader has nothing to assign: a static member came back, and all stays as it was."""


class MemberAssignment(msgspec.Struct, frozen=True):
    """The leader's word on what a member gets."""

    member_id: str
    assignment: bytes


class SyncGroup(ClassicRequest, frozen=True, kw_only=True):
    """A member asks for its assignment; the leader brings those of all. Answered by `SyncAnswer`, when the leader has.

    Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `InconsistentProtocol`, `RebalanceInProgress`, and
    `TooLarge` for assignments that cannot be kept.
    """

    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    """The choice that the member believes in; None from clients that do not say."""
    assignments: tuple[MemberAssignment, ...] = ()


class SyncAnswer(msgspec.Struct, frozen=True):
    """The member has this in its generation."""

    protocol_type: str
    protocol: str
    assignment: bytes


class ClassicHeartbeat(ClassicRequest, frozen=True, kw_only=True):
    """ "I am here." Answered by nothing. Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, and
    `RebalanceInProgress`: the member has to join again."""

    generation: int


class Leaving(msgspec.Struct, frozen=True):
    """A member that leaves; a static one may be named by its instance id alone, by an operator."""

    member_id: str = ""
    instance_id: str | None = None


class LeaveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Members leave. Answered by `LeaveAnswer`."""

    group: str
    members: tuple[Leaving, ...]


class LeaveVerdict(msgspec.Struct, frozen=True):
    """The fate of one of them: None if it has left, else `UnknownMember` or `FencedInstance`."""

    member: Leaving
    error: TidelogError | None = None


class LeaveAnswer(msgspec.Struct, frozen=True):
    """The verdicts are in the order of the request."""

    verdicts: tuple[LeaveVerdict, ...]


class CommitAsMember(ClassicRequest, frozen=True, kw_only=True):
    """Keeps committed offsets, whatever the kind of the group: `generation` is a member's epoch in one whose
    coordinator assigns. Answered by `CommitAnswer`, which says it of each partition.

    Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `RebalanceInProgress`; in a group whose coordinator
    assigns as `CommitOffsets`.
    """

    generation: int = NO_GENERATION
    offsets: tuple[CommittedOffset, ...]
