"""The interface between a broker and its commit protocols.

`Replicas` compares the metadata with the replicas on this broker, and leaves their roles to the `Roles` of the topic's
protocol. Each protocol (`broker.isr`, `broker.paxos`) has one `ProtocolRuntime`; a partition that it leads is a
`LedPartition`, one that it follows at least a `Holder`. The controller's side of a protocol is a row of
`controller.protocols`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.repair.copies import Copies, Holder, Replica
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
    """A replica that is assigned to this broker, as one metadata image has it."""

    partition_id: PartitionId
    topic: Topic
    info: PartitionInfo
    config: TopicConfig
    """The topic's settings in force."""


@dataclass(frozen=True, slots=True)
class ProtocolContext:
    """The parts of a broker that its commit protocols share; also the `LeaderContext` of the partitions it leads."""

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
    """Returns True when the metadata up to a position is in force on this broker; False if that takes too long."""
    newest: Callable[[PartitionId], tuple[Assignment, ClusterImage] | None]
    """Returns a partition's assignment in the newest metadata image, and that image; None if this broker is assigned no
    replica of it."""
    on_metadata_applied: Callable[[], None]
    """Listener that is called when a partition begins to be led here some time after its metadata came into force,
    because the end of its log had to be settled first."""


class Roles(Protocol):
    """The roles (leader or follower) of this broker in the partitions of one commit protocol."""

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads, and whose logs are open."""

    @property
    def holders(self) -> Mapping[PartitionId, Holder]:
        """All replicas on this broker that have a role, leading or following."""

    @property
    def readable(self) -> Mapping[PartitionId, Replica]:
        """The replicas whose committed records readers may be given."""

    async def serve(self, assigned: Assignment, image: ClusterImage) -> bool:
        """Gives a replica the role that this metadata image says; returns True if it did more than compare."""

    async def stop(self, partition_id: PartitionId) -> None:
        """Ends the replica's role. When this returns, no work of the role changes the disk any more."""

    def unfit(self) -> dict[PartitionId, UnfitReason]:
        """Returns the replicas that the cluster should not count on, with the reasons."""

    async def close(self) -> None:
        """Ends all roles, since this broker stops."""


AnswerPeer = Callable[[Hello, Any], Awaitable[Answer]]
"""Answers a request of another broker, which is described by its `Hello`."""
TakeNotice = Callable[[int, Any, memoryview], None]
"""Takes a message that needs no answer: the sender's node id, the message, and the payload behind it."""


class WaitingElection(NamedTuple):
    """An election on this broker whose leader cannot begin yet, because it may lack values that were agreed on."""

    positions: int
    """Number of journal positions whose values are awaited, without damaged ranges of the log."""
    seconds: float
    """Seconds that the election has waited."""
    brokers: frozenset[int]
    """Node ids of the brokers whose answers are awaited."""


class ProtocolRuntime(Protocol):
    """A broker's side of one commit protocol."""

    @property
    def roles(self) -> Roles: ...

    @property
    def requests(self) -> Mapping[type[msgspec.Struct], AnswerPeer]:
        """Functions that answer other brokers' requests, by message type."""

    @property
    def notifications(self) -> Mapping[type[msgspec.Struct], TakeNotice]:
        """Functions that take other brokers' messages which need no answer, by message type."""

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the protocol's tasks, by name; they run until the broker stops."""

    def journals(self) -> Mapping[PartitionId, JournalOwner]:
        """Returns, by partition, the Paxos engines of the replicas on this broker that have a journal beside the
        log."""

    def replica_state(self, partition_id: PartitionId) -> ReplicaState | None:
        """Returns how far the log and journal of this broker's replica go, for an operator who wants the partition to
        continue without a majority, or without the in-sync replicas; None if this broker has no replica that takes
        part. Raises `Overloaded`."""

    def waiting_elections(self) -> Mapping[PartitionId, WaitingElection]:
        """Returns, by partition, the elections on this broker that wait for values they may lack."""

    def mark_idle(self) -> None:
        """Records in the idle journals how far they are durable, so that a later loss below that is noticed."""
