"""A classic group as its coordinator has it.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^             |   ^                  |                |
      +-------------+   +------------------+----------------+

Empty: no members. Preparing: everybody joins, and each join waits for the others. Completing: the generation is known,
and its leader assigns; each sync waits for that. Stable: all have, or can have, what the leader gave them. (Kafka's
`Dead` is a group that is not there.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from msgspec import json, structs

from tidelog.groups.records import ClassicRecord, KeptMember
from tidelog.model.classic_groups import Protocol

PENDING_BYTES: Final = 256
"""About how many bytes an id takes that was given away."""


class Phase(Enum):
    """The phases have Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Member:
    """A member. `join_wait` and `sync_wait` are the numbers of its requests that wait for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_wait: int | None = None
    sync_wait: int | None = None
    has_synced: bool = True
    newcomer_until_s: float | None = None
    """How long it may wait for its first generation; None if it has been in one."""
    kept_size: int = 0
    """How many bytes it takes in the group's record before the leader has assigned, whatever is chosen: `sized`."""

    def says_as(self, other: Member) -> bool:
        """Returns True if the other one is this member with the same protocols and client, in another state."""
        return (
            self.protocols is other.protocols
            and self.client_id is other.client_id
            and self.client_host is other.client_host
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for a protocol; empty if it does not know the protocol."""
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    @property
    def size(self) -> int:
        """Returns about how many bytes the member takes in memory."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        metadata = sum(len(protocol.metadata) for protocol in self.protocols)
        return sum(map(len, names)) + len(self.assignment) + metadata


@dataclass(frozen=True, slots=True)
class Joining:
    """The wait for members to join. `until_s` is its end, unless all have joined before."""

    until_s: float
    longest_s: float | None = None
    """In a group that was empty everybody waits a little for more to come, and again after each that does, until then;
    None elsewhere."""
    has_grown: bool = False
    """True if somebody has come since the wait began, or was last made longer."""


@dataclass(slots=True)
class ClassicGroup:
    """The group. Members are in the order in which they came."""

    name: str
    generation: int = 0
    phase: Phase = Phase.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """The member of each `group.instance.id`."""
    pending: dict[str, int] = field(default_factory=dict)
    """Ids that were given away and whose members have not joined with them yet; with their session timeouts."""
    joining: Joining | None = None
    """Invariant: there is one exactly while the group is preparing."""
    syncing_until_s: float | None = None
    """When members that have not synced are expelled; None if all have."""
    size: int = 0
    """Invariant: the sum of its members' sizes, and of `PENDING_BYTES` for each id that was given away."""
    kept_size: int = 0
    """Invariant: the sum of theirs."""
    awaiting: int = 0
    """Invariant: how many members have a join that waits."""
    supporters: Counter[str] = field(default_factory=Counter)
    """Invariant: how many members know each protocol; none that nobody knows."""

    def copy(self) -> ClassicGroup:
        """Returns an equal group that may be changed without this one."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            pending=dict(self.pending),
            supporters=self.supporters.copy(),
        )

    def put(self, member: Member) -> None:
        """Adds a member, or replaces it by its next state."""
        was = self.members.get(member.member_id)
        self.members[member.member_id] = member
        # Most changes are of waits and assignments; sums over protocols need not be made anew for these.
        if was is not None and was.says_as(member):
            self.size += len(member.assignment) - len(was.assignment)
            self.awaiting += (member.join_wait is not None) - (was.join_wait is not None)
            return
        self._count(was, -1)
        self._count(member, 1)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def drop(self, member_id: str) -> Member:
        """Takes a member out, and returns it."""
        member = self.members.pop(member_id)
        self._count(member, -1)
        # The instance id may be another member's by now.
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = None
        return member

    def promise(self, member_id: str, session_timeout_ms: int) -> None:
        """Gives an id away, with which a client is to join within its session timeout."""
        self.pending[member_id] = session_timeout_ms
        self.size += PENDING_BYTES

    def keep_promise(self, member_id: str) -> bool:
        """Takes an id back, as its member has joined, or will not; False if it was not given away."""
        if self.pending.pop(member_id, None) is None:
            return False
        self.size -= PENDING_BYTES
        return True

    def _count(self, member: Member | None, by: int) -> None:
        if member is not None:
            self.size += by * member.size
            self.kept_size += by * member.kept_size
            self.awaiting += by * (member.join_wait is not None)
            for protocol in member.protocols:
                self.supporters[protocol.name] += by
                if not self.supporters[protocol.name]:
                    del self.supporters[protocol.name]

    def common_protocols(self, without: Member | None = None) -> list[str]:
        """Returns the protocols that all members know, or all but one."""
        # Counted, not intersected: a join to a group of thousands must not look at all of its members.
        own = () if without is None else [protocol.name for protocol in without.protocols]
        needed = len(self.members) - (without is not None)
        return [name for name, count in self.supporters.items() if count - (name in own) == needed > 0]

    @property
    def is_in_use(self) -> bool:
        """True if there are members, or ids that were given away."""
        return bool(self.members or self.pending)

    @property
    def rebalance_s(self) -> float:
        """Returns how long the slowest member may take to join or sync, in seconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    @property
    def due_s(self) -> float | None:
        """Returns when the group's wait for its members ends if none of them is heard; None if it does not wait."""
        return self.syncing_until_s if self.joining is None else self.joining.until_s


def record_of(group: ClassicGroup, empty_since_ms: int | None = None) -> ClassicRecord:
    """Returns the record of the group's generation."""
    return ClassicRecord(
        group=group.name,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(_kept(member, group.protocol) for member in group.members.values()),
        is_assigned=group.phase is Phase.STABLE,
        empty_since_ms=empty_since_ms,
    )


def _kept(member: Member, protocol: str | None) -> KeptMember:
    return KeptMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        metadata=member.metadata(protocol),
        assignment=member.assignment,
        instance_id=member.instance_id,
    )


def sized(member: Member) -> Member:
    """Returns the member with its `kept_size`."""
    # Which protocol will be chosen is not known yet, so the largest metadata count.
    largest = max(member.protocols, key=lambda protocol: len(protocol.metadata))
    kept = structs.replace(_kept(member, largest.name), assignment=b"")
    return replace(member, kept_size=len(json.encode(kept)))


def from_record(record: ClassicRecord) -> ClassicGroup:
    """Returns the group as a record says that it is. Nobody waits, and no deadline is known."""
    phase = Phase.EMPTY
    if record.members:
        # Whoever was joining meanwhile is not in the record, and joins anew.
        phase = Phase.STABLE if record.is_assigned else Phase.COMPLETING
    group = ClassicGroup(record.group, record.generation, phase, record.protocol_type, record.protocol, record.leader)
    for kept in record.members:
        group.put(_member(kept, record))
    return group


def _member(kept: KeptMember, record: ClassicRecord) -> Member:
    member = Member(
        member_id=kept.member_id,
        instance_id=kept.instance_id,
        client_id=kept.client_id,
        client_host=kept.client_host,
        session_timeout_ms=kept.session_timeout_ms,
        rebalance_timeout_ms=kept.rebalance_timeout_ms,
        # Only the chosen protocol is in the log. A member that joins again names the others.
        protocols=(Protocol(record.protocol or "", kept.metadata),),
        assignment=kept.assignment,
        # Who has fetched its assignment is not in the log; in a stable group nobody is expelled for not having done so.
        has_synced=record.is_assigned,
    )
    return sized(member)
