"""The contract between a broker and a commit protocol at work on it.

`Replicas` compares the metadata with the replicas that are here, and leaves the rest to the `Roles` of the topic's
protocol. A protocol is its rooms (`broker.isr`, `broker.paxos`), each with one `ProtocolRuntime`; what it leads is a
`LedPartition`, what it follows at least a `Holder`. The controller's side of it is a row of `controller.protocols`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.local_copy import Replica
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.repair.copies import Copies, Holder
from tidelog.broker.repair.repair_messages import ReplicaState
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.repair.scrub_targets import JournalOwner
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.controller.partition_commands import UnfitReason
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.ports import Clock, Entropy
from tidelog.transport.peer import Answer, Hello, PeerNode


class Assignment(NamedTuple):
    """A replica that this broker is to hold, as an image has it."""

    partition_id: PartitionId
    topic: Topic
    info: PartitionInfo
    config: TopicConfig
    """In force for the topic."""


@dataclass(frozen=True, slots=True)
class ProtocolContext:
    """The parts of a broker that its commit protocols share; `LeaderContext` for their partitions."""

    node_id: NodeId
    config: BrokerConfig
    clock: Clock
    entropy: Entropy
    stats: Stats
    log_writer: LogWriter
    purgatory: Purgatory
    lease: Lease
    logs: ReplicaLogs
    tasks: RoleTasks
    throttle: Throttle
    copies: Copies
    repairer: Repairer
    peers: PeerNode
    channel: ControllerChannel
    image: Callable[[], ClusterImage]
    own_epoch: Callable[[], int]
    """Returns the epoch of this broker's registration."""
    in_force: Callable[[int], Awaitable[bool]]
    """Waits a while until the metadata up to a position is in force here; False if it is not."""
    newest: Callable[[PartitionId], tuple[Assignment, ClusterImage] | None]
    """Returns what the newest image has of a partition; None if this broker is to hold no replica of it."""
    on_metadata_applied: Callable[[], None]
    """Is called when a partition is led later than its image came into force."""


class Roles(Protocol):
    """The roles of this broker in partitions that commit by one protocol."""

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and could open."""
        ...

    @property
    def holders(self) -> Mapping[PartitionId, Holder]:
        """All replicas here that have a role, whichever."""
        ...

    @property
    def readable(self) -> Mapping[PartitionId, Replica]:
        """The replicas of which readers may be shown what is committed."""
        ...

    async def serve(self, assigned: Assignment, image: ClusterImage) -> bool:
        """Sees to it that a partition has the role of this image; True if that took any time."""
        ...

    async def stop(self, partition_id: PartitionId) -> None:
        """Ends the role. Nothing that it began changes the disk any more when this returns."""
        ...

    def unfit(self) -> dict[PartitionId, UnfitReason]:
        """Returns the replicas that the cluster should not count on, and why."""
        ...

    async def close(self) -> None:
        """Ends all roles: this broker stops."""
        ...


AnswerPeer = Callable[[Hello, Any], Awaitable[Answer]]
"""Answers a message of the broker that said hello."""
TakeNotice = Callable[[int, Any, memoryview], None]
"""Takes a message of the broker with that node id, and the payload behind it."""


class WaitingElection(NamedTuple):
    """An election here whose leader cannot begin yet, for want of what may have been agreed on."""

    positions: int
    """The number of a journal's positions that are awaited. What is damaged in a log counts by itself."""
    seconds: float
    """The seconds for which it has waited."""
    brokers: frozenset[int]
    """Node ids of the brokers whose answers are awaited."""


class ProtocolRuntime(Protocol):
    """Does a broker's part in one commit protocol."""

    @property
    def roles(self) -> Roles: ...

    @property
    def requests(self) -> Mapping[type[msgspec.Struct], AnswerPeer]:
        """How messages of other brokers are answered, by their type."""
        ...

    @property
    def notifications(self) -> Mapping[type[msgspec.Struct], TakeNotice]:
        """The messages of other brokers that need no answer, by type, and the functions that take them."""
        ...

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns what runs as long as the broker does, by name."""
        ...

    def journals(self) -> Mapping[PartitionId, JournalOwner]:
        """Returns the engines of the replicas here that have journals beside their logs."""
        ...

    def replica_state(self, partition_id: PartitionId) -> ReplicaState | None:
        """Returns what the replica here has, for an operator who has its partition go on without a majority, or without
        those in sync; None if there is none that takes part. Raises `Overloaded`."""
        ...

    def waiting_elections(self) -> Mapping[PartitionId, WaitingElection]:
        """Returns the elections of replicas here that wait, and what else has to be known before a leader begins."""
        ...

    def mark_idle(self) -> None:
        """Vouches for what is durable in files beside the partitions' logs that are at rest."""
        ...
