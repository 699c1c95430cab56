"""State of a classic group in its coordinator's memory.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^             |   ^                  |                |
      +-------------+   +------------------+----------------+

Empty: no members. Preparing: all members join, and each join waits for the others. Completing: the generation is fixed,
its leader assigns, and each sync waits for that. Stable: all members have, or can fetch, their assignments. (Kafka's
`Dead` is a group that does not exist.)
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
"""Estimated bytes of memory of a member id that was handed out but not yet used."""


class Phase(Enum):
    """Phases of a classic group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Member:
    """A member. `join_wait` and `sync_wait` are the numbers of its waiting requests, or None."""

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
    """Monotonic time, in seconds, until which it may wait for its first generation; None once it has been in one."""
    kept_size: int = 0
    """Bytes of the member in the group's record without its assignment, for its protocol with the largest metadata (set
    by `sized`)."""

    def says_as(self, other: Member) -> bool:
        """Returns True if `other` is the same member with the same protocols and client, so that only waiting requests
        or the assignment differ."""
        return (
            self.protocols is other.protocols
            and self.client_id is other.client_id
            and self.client_host is other.client_host
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for a protocol; empty if it does not support it."""
        return next((supported.metadata for supported in self.protocols if supported.name == protocol), b"")

    @property
    def size(self) -> int:
        """Estimated bytes of memory of the member."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        metadata = sum(len(protocol.metadata) for protocol in self.protocols)
        return sum(map(len, names)) + len(self.assignment) + metadata


@dataclass(frozen=True, slots=True)
class Joining:
    """The wait for members to join, until `until_s` (monotonic) or until all have joined."""

    until_s: float
    longest_s: float | None = None
    """Latest end of the wait of a group that was empty, which is extended as new members come; None for other
    groups."""
    has_grown: bool = False
    """True if a member has joined since the wait began or was last extended."""


@dataclass(slots=True)
class ClassicGroup:
    """A classic group. Its members are in the order in which they joined."""

    name: str
    generation: int = 0
    phase: Phase = Phase.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Member id of each `group.instance.id`."""
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids that were handed out but not yet used, with their session timeouts in ms."""
    joining: Joining | None = None
    """The wait for joins. Invariant: set exactly while the phase is PREPARING."""
    syncing_until_s: float | None = None
    """Monotonic time, in seconds, at which members that have not synced are removed; None if all have."""
    size: int = 0
    """Estimated bytes of memory. Invariant: the sum of the members' sizes, and of `PENDING_BYTES` per pending id."""
    kept_size: int = 0
    """Bytes of the members in the group's record. Invariant: the sum of the members' `kept_size`."""
    awaiting: int = 0
    """Number of members with a waiting join (invariant)."""
    supporters: Counter[str] = field(default_factory=Counter)
    """Number of members that support each protocol, without zeros (invariant)."""

    def copy(self) -> ClassicGroup:
        """Returns a copy that can be changed independently."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            pending=dict(self.pending),
            supporters=self.supporters.copy(),
        )

    def put(self, member: Member) -> None:
        """Adds a member, or replaces the one with the same id."""
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
        """Removes a member, and returns it."""
        member = self.members.pop(member_id)
        self._count(member, -1)
        # The instance id may be another member's by now.
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = None
        return member

    def promise(self, member_id: str, session_timeout_ms: int) -> None:
        """Records a member id that was handed out to a client, which must join with it within its session timeout."""
        self.pending[member_id] = session_timeout_ms
        self.size += PENDING_BYTES

    def keep_promise(self, member_id: str) -> bool:
        """Removes a handed-out member id, because it is used or will not be. Returns False if it was not handed out."""
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
        """Returns the protocols that all members support; `without` is one member to ignore."""
        # Counted, not intersected: a join to a group of thousands must not look at all of its members.
        own = () if without is None else [protocol.name for protocol in without.protocols]
        needed = len(self.members) - (without is not None)
        return [name for name, count in self.supporters.items() if count - (name in own) == needed > 0]

    @property
    def is_in_use(self) -> bool:
        """True if there are members or handed-out member ids."""
        return bool(self.members or self.pending)

    @property
    def rebalance_s(self) -> float:
        """The longest rebalance timeout of the members, in seconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    @property
    def due_s(self) -> float | None:
        """Deadline of the group's wait for its members to join or sync; None if it does not wait."""
        return self.syncing_until_s if self.joining is None else self.joining.until_s


def record_of(group: ClassicGroup, empty_since_ms: int | None = None) -> ClassicRecord:
    """Returns the log record of the group's generation."""
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
    """Returns the member with `kept_size` set: its bytes in the group's record."""
    # Which protocol will be chosen is not known yet, so the largest metadata count.
    largest = max(member.protocols, key=lambda protocol: len(protocol.metadata))
    kept = structs.replace(_kept(member, largest.name), assignment=b"")
    return replace(member, kept_size=len(json.encode(kept)))


def from_record(record: ClassicRecord) -> ClassicGroup:
    """Returns the group described by a record, without waiting requests and deadlines."""
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
