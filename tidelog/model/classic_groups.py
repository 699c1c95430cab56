"""The requests of a classic group's members, and their answers: Kafka's group protocol from before KIP-848.

The members assign partitions themselves. All of them join; the coordinator makes one the leader and sends it the list
of members; the leader computes the assignments, and the coordinator forwards them:

    JoinGroup  ->  member id, generation, who leads; for the leader all members with their metadata
    SyncGroup  ->  the member's assignment; the leader brings the assignments of all
    Heartbeat  ->  nothing, or the error that the member has to join again

Metadata and assignments are bytes that only members understand. Only the coordinator answers the requests; as in Kafka,
clients find it themselves. Each request may be repeated.
"""

from __future__ import annotations

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.groups import CommittedOffset

NO_GENERATION = -1
"""Generation in the commit of a client that is not a member."""


class Protocol(msgspec.Struct, frozen=True):
    """An assignment protocol that a member supports: its name, and the member's metadata for it."""

    name: str
    metadata: bytes


class ClassicRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the requests of one member of a group."""

    group: str
    member_id: str = ""
    instance_id: str | None = None
    """The `group.instance.id` of a static member (KIP-345)."""


class JoinGroup(ClassicRequest, frozen=True, kw_only=True):
    """A request to be a member in the next generation. Answered by `JoinAnswer` when all members have joined.

    Raises `MemberIdRequired`, `UnknownMember`, `FencedInstance`, `InconsistentProtocol`, `GroupFull`,
    `InvalidGroupName`, `InvalidSessionTimeout`, `InvalidRequest`, `UnsupportedLevel`; `RebalanceInProgress` if the
    caller stopped waiting, or the same member has sent another join.
    """

    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    """Milliseconds without a heartbeat after which the member is expelled."""
    rebalance_timeout_ms: int
    """Milliseconds for which a rebalance waits for this member to join again, and to sync."""
    protocol_type: str
    """Protocol type, `consumer` for consumers. All members of a group have the same."""
    protocols: tuple[Protocol, ...]
    """Supported protocols, the preferred one first."""
    requires_known_id: bool = True
    """True if a member without an id is given one and has to join again with it (JoinGroup versions from 4 on)."""
    can_skip_assignment: bool = False
    """True if the member understands an answer that makes it leader without an assignment to do (versions from 9
    on)."""


class JoinedMember(msgspec.Struct, frozen=True):
    """A member in the list that the group's leader receives."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(msgspec.Struct, frozen=True):
    """Answer to a join. The member belongs to the new generation, and has to sync next."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    """Member id of the leader."""
    members: tuple[JoinedMember, ...] = ()
    """All members; empty unless the answer is for the leader."""
    skip_assignment: bool = False
    """True if the leader has nothing to assign, because a static member came back and the assignment stays as it
    was."""


class MemberAssignment(msgspec.Struct, frozen=True):
    """The assignment of a member, as the group's leader computed it."""

    member_id: str
    assignment: bytes


class SyncGroup(ClassicRequest, frozen=True, kw_only=True):
    """A member's request for its assignment. The leader's request carries the assignments of all members, and all
    requests are answered by `SyncAnswer` once it has come.

    Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `InconsistentProtocol`, `RebalanceInProgress`, and
    `TooLarge` for assignments too large to store.
    """

    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    """Protocol that the member believes was chosen; None from clients that do not send it."""
    assignments: tuple[MemberAssignment, ...] = ()


class SyncAnswer(msgspec.Struct, frozen=True):
    """A member's assignment in its generation."""

    protocol_type: str
    protocol: str
    assignment: bytes


class ClassicHeartbeat(ClassicRequest, frozen=True, kw_only=True):
    """A member's heartbeat in a classic group. It has no answer but an error: `UnknownMember`, `FencedInstance`,
    `IllegalGeneration`, or `RebalanceInProgress` if the member has to join again."""

    generation: int


class Leaving(msgspec.Struct, frozen=True):
    """A member to remove from its group. Operators may name a static member by its instance id alone."""

    member_id: str = ""
    instance_id: str | None = None


class LeaveGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A request that members leave the group. Answered by `LeaveAnswer`."""

    group: str
    members: tuple[Leaving, ...]


class LeaveVerdict(msgspec.Struct, frozen=True):
    """The result for one leaving member: None if it has left, else `UnknownMember` or `FencedInstance`."""

    member: Leaving
    error: TidelogError | None = None


class LeaveAnswer(msgspec.Struct, frozen=True):
    """The results of a `LeaveGroup` request, in the order of its members."""

    verdicts: tuple[LeaveVerdict, ...]


class CommitAsMember(ClassicRequest, frozen=True, kw_only=True):
    """A commit of offsets to a group of either kind. If the coordinator assigns the partitions (KIP-848), `generation`
    is the member's epoch. Answered by `CommitAnswer`, with a result for each partition.

    Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `RebalanceInProgress`; in a KIP-848 group
    `UnknownMember`, `FencedMember` or `InvalidRequest`.
    """

    generation: int = NO_GENERATION
    offsets: tuple[CommittedOffset, ...]
