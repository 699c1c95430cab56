"""The runtime of in-sync replication on one broker, which connects its parts.

metadata -> IsrRoles: leaders (Partition) and followers (Follower), each over its log
a leader's log has grown -> ReplicationService answers the waiting fetches -> Fetcher on the follower's broker
a leader wants another in-sync set -> IsrRequests sends it to the controller
the damaged end of a future leader's log -> Settler, before it leads
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from tidelog.broker.isr.fetching import Fetcher
from tidelog.broker.isr.isr_requests import IsrRequests
from tidelog.broker.isr.isr_roles import IsrRoles
from tidelog.broker.isr.partition import IsrContext, Partition
from tidelog.broker.isr.replica_messages import FetchReplicas, ReplicasFlushed
from tidelog.broker.isr.replication_service import ReplicationService
from tidelog.broker.isr.settling import Settler
from tidelog.broker.partitions.roles import AnswerPeer, ProtocolContext, TakeNotice, WaitingElection
from tidelog.broker.repair.repair_messages import ReplicaState
from tidelog.broker.repair.scrub_targets import JournalOwner
from tidelog.model.cluster import ISR
from tidelog.model.ids import NodeId, PartitionId
from tidelog.replication.isr.events import AlterPartition


class IsrRuntime:
    """In-sync replication on one broker (implements `ProtocolRuntime`, and `Replication` for its leaders)."""

    def __init__(self, context: ProtocolContext) -> None:
        clock, stats, log_writer = context.clock, context.stats, context.log_writer
        self._context = context
        self._isr_requests = IsrRequests(context)
        shared = IsrContext(clock, stats, log_writer, context.purgatory, self, context.lease)
        settler = Settler(context.copies, context.repairer, log_writer, clock)
        self.roles = IsrRoles(context, shared, self._new_fetcher, self._retired, settler.settle)
        self._service = ReplicationService(self.roles.partitions, self._epoch_of, clock, stats, context.throttle)
        self.progressed = self._service.progressed
        """Called with a partition whose log or high watermark has advanced: `ReplicationService.progressed` itself,
        without a wrapper, because it is called for each append."""
        self.requests: dict[type[msgspec.Struct], AnswerPeer] = {FetchReplicas: self._service.fetch}
        self.notifications: dict[type[msgspec.Struct], TakeNotice] = {
            ReplicasFlushed: lambda _node_id, report, _payload: self._service.flushed(report)
        }

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the tasks that run as long as the broker does, by name."""
        return {"ticks": self.roles.tick(), "isr-requests": self._isr_requests.run()}

    def journals(self) -> Mapping[PartitionId, JournalOwner]:
        """Returns no journals: in-sync replication has no files beside the logs."""
        return {}

    def replica_state(self, partition_id: PartitionId) -> ReplicaState | None:
        """Returns the state of this broker's replica, for an operator who regroups the partition; None if the replica
        has no role here. Raises `Overloaded`."""
        log, newest = self._context.logs.find(partition_id), self._context.newest(partition_id)
        if log is None or newest is None or newest[0].topic.commit_protocol != ISR:
            return None
        settling = self.roles.settling.get(partition_id)
        return ReplicaState(
            log.log_start_offset,
            log.log_end_offset,
            log.tail.epoch,
            newest[0].info.partition_epoch,
            awaited=() if settling is None else tuple(sorted(settling.core.awaited)),
        )

    def waiting_elections(self) -> Mapping[PartitionId, WaitingElection]:
        """Returns, by partition, what is awaited where this broker is to lead and the damaged end of its log waits for
        other brokers' answers."""
        now_s = self._context.clock.monotonic_s()
        return {
            partition_id: WaitingElection(0, now_s - settling.begun_s, settling.core.awaited)
            for partition_id, settling in self.roles.settling.items()
        }

    def mark_idle(self) -> None:
        """Does nothing: in-sync replication has no files beside the logs."""

    # -- for the leaders: `Replication` ------------------------------------------------------------------------------

    def ask_anew(self, partition: Partition, nodes: Sequence[int]) -> None:
        self._service.ask_anew(partition.partition_id, nodes)

    def alter(self, partition: Partition, effect: AlterPartition) -> None:
        self._isr_requests.add(partition, effect)

    # -- for the roles -----------------------------------------------------------------------------------------------

    def _new_fetcher(self, leader: int) -> Fetcher:
        context = self._context
        return Fetcher(
            context.node_id,
            leader,
            context.own_epoch,
            context.peers,
            context.clock,
            context.entropy,
            context.throttle,
        )

    def _retired(self, partition_id: PartitionId) -> None:
        """Answers waiting followers, because a leadership of this broker has ended."""
        self._service.forget(partition_id)

    def _epoch_of(self, node_id: int) -> int:
        broker = self._context.image().brokers.get(NodeId(node_id))
        return -1 if broker is None else broker.epoch
