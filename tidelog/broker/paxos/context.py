"""The context of a Paxos replica when it is made: which one it is, and how it reaches the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tidelog.broker.partitions.led_partition import LeaderContext
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.messages import ReadApplied, ReadValue
from tidelog.model.cluster import Voter
from tidelog.model.ids import PartitionId
from tidelog.model.levels import LEVEL_MAX
from tidelog.model.ports import Buffer, Entropy
from tidelog.replication.paxos.voters import VoterSet
from tidelog.transport.peer import Answer


class Member(Protocol):
    """A replica that votes, as the metadata has it (`PartitionMember`)."""

    @property
    def engine_id(self) -> int: ...
    @property
    def node_id(self) -> int: ...
    @property
    def storage(self) -> str: ...


def voter_of(member: Member) -> Voter:
    """Returns a member as a voter of the log, which needs no address: peers are found by node id."""
    return Voter(member.engine_id, member.node_id, member.storage, "", 0)


def voters_of(members: Sequence[Member]) -> VoterSet:
    """Returns the members as the voters of a partition's log. Raises `InvalidVoters`."""
    voters = tuple(voter_of(member) for member in sorted(members, key=lambda member: member.engine_id))
    return VoterSet(voters, max((voter.voter_id for voter in voters), default=0) + 1)


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Identity of a replica: its partition and its broker."""

    topic: str
    partition_id: PartitionId
    node_id: int
    engine_id: int
    """The id that the controller gave this disk, as a member or a wanted one; 0 if it has no vote, and learns."""
    era: int = 0
    """`ReplicaMetainfo.era`. Only replicas of the same are listened to."""


class Peers(Protocol):
    """The way to the other brokers."""

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> object:
        """Sends a one-way message; it may be lost."""

    def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Awaitable[Answer]:
        """Asks a broker, within so many seconds. Raises as `PeerNode.request`."""

    def is_live(self, node_id: int) -> bool:
        """Returns True if this broker is registered, and not fenced."""


class ReplicaPeers(Peers, Protocol):
    """The same, for replicas of which some are being reassigned."""

    def is_held(self, partition_id: PartitionId, node_id: int) -> bool:
        """Returns True if the replica on this broker is being reassigned, and copied at the rate of moves."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """The means that all Paxos replicas of a broker share."""

    shared: LeaderContext
    peers: ReplicaPeers
    entropy: Entropy
    spawn: Callable[[object, Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Runs a task of a replica, which ends it; whoever spawns sees to it that a failure is not lost."""
    journal_bounds: JournalBounds = field(default_factory=JournalBounds)
    level: Callable[[], int] = lambda: LEVEL_MAX
    """The cluster's feature level."""
