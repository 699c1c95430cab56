"""The identity of a Paxos replica, and the services that it gets from its broker: peers, tasks, journal bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from tidelog.broker.partitions.led_partition import LeaderContext
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.messages import ReadApplied, ReadValue
from tidelog.model.cluster import PartitionMember, Voter
from tidelog.model.ids import PartitionId
from tidelog.model.levels import LEVEL_MAX
from tidelog.model.ports import Buffer, Entropy
from tidelog.replication.paxos.voters import VoterSet
from tidelog.transport.peer import Answer


def voter_of(member: PartitionMember) -> Voter:
    """Returns a member as a voter of the Paxos log. Its address stays empty: peers are addressed by node id."""
    return Voter(member.engine_id, member.node_id, member.storage, "", 0)


def voters_of(members: Sequence[PartitionMember]) -> VoterSet:
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
    """The voter id that the controller gave this disk, which votes or is to vote under it; 0 for a learner without a
    vote."""
    era: int = 0
    """Leader epoch since when the partition has gone on from what was left of it (`ReplicaMetainfo.era`), 0 if it never
    had to; frames of replicas in another era are dropped."""


class Peers(Protocol):
    """The connections of a replica to the other brokers."""

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> object:
        """Sends a one-way message to a broker; it may be lost."""

    def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Awaitable[Answer]:
        """Sends a request to a broker and returns its answer, within `deadline_s` seconds. Raises the `TidelogError`
        that the broker answers, `PeerUnreachable` or `Overloaded` if it was not asked, `PeerLost` or `TimeoutError` if
        it has not answered."""

    def is_live(self, node_id: int) -> bool:
        """Returns True if this broker is registered, and not fenced."""


class ReplicaPeers(Peers, Protocol):
    """The connections of a replica to other brokers, with the knowledge which replicas are being reassigned."""

    def is_held(self, partition_id: PartitionId, node_id: int) -> bool:
        """Returns True if the replica on this broker is being reassigned, and is copied at the throttled rate of
        reassignments."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """Services of the broker that all its Paxos replicas share."""

    shared: LeaderContext
    peers: ReplicaPeers
    entropy: Entropy
    spawn: Callable[[object, Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Starts a task that a replica owns and ends; an exception of the task is reported, not lost."""
    journal_bounds: JournalBounds = field(default_factory=JournalBounds)
    level: Callable[[], int] = lambda: LEVEL_MAX
    """Returns the cluster's feature level."""
