"""In-sync replicas at work on one broker. The parts meet here.

metadata -> IsrRoles: leaders (Partition) and followers (Follower), each over its log
a leader's log has grown -> ReplicationService answers the fetches that wait -> Fetcher on the follower's broker
a leader wants another in-sync set -> IsrRequests asks the controller
a leader's damaged end -> Settler, before it leads
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
    """The `ProtocolRuntime` of one broker, and the `Replication` of its leaders."""

    def __init__(self, context: ProtocolContext) -> None:
        clock, stats, log_writer = context.clock, context.stats, context.log_writer
        self._context = context
        self._isr_requests = IsrRequests(context)
        shared = IsrContext(clock, stats, log_writer, context.purgatory, self, context.lease)
        settler = Settler(context.copies, context.repairer, log_writer, clock)
        self.roles = IsrRoles(context, shared, self._new_fetcher, self._retired, settler.settle)
        self._service = ReplicationService(self.roles.partitions, self._epoch_of, clock, stats, context.throttle)
        self.progressed = self._service.progressed
        """Is called for each append, so the service itself stands here."""
        self.requests: dict[type[msgspec.Struct], AnswerPeer] = {FetchReplicas: self._service.fetch}
        self.notifications: dict[type[msgspec.Struct], TakeNotice] = {
            ReplicasFlushed: lambda _node_id, report, _payload: self._service.flushed(report)
        }

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """See `ProtocolRuntime.tasks`."""
        return {"ticks": self.roles.tick(), "isr-requests": self._isr_requests.run()}

    def journals(self) -> Mapping[PartitionId, JournalOwner]:
        """Returns nothing: there are no files but the logs."""
        return {}

    def replica_state(self, partition_id: PartitionId) -> ReplicaState | None:
        """See `ProtocolRuntime.replica_state`."""
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
        """Returns the leaders to be that wait for others' word on the end of their logs."""
        now_s = self._context.clock.monotonic_s()
        return {
            partition_id: WaitingElection(0, now_s - settling.begun_s, settling.core.awaited)
            for partition_id, settling in self.roles.settling.items()
        }

    def mark_idle(self) -> None:
        """Does nothing: there are no files but the logs."""

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
        """Has followers that wait told that a leadership of this broker has ended."""
        self._service.forget(partition_id)

    def _epoch_of(self, node_id: int) -> int:
        broker = self._context.image().brokers.get(NodeId(node_id))
        return -1 if broker is None else broker.epoch
