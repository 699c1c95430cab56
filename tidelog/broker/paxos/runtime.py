"""The parts of one broker that serve Paxos partitions, and their connections:

metadata -> PaxosRoles: a PaxosReplica for each partition, with a PaxosPartition where this broker leads
frames of other brokers' replicas -> PaxosService, throttled (MoveThrottle) where a replica is being reassigned
members of a partition's log -> VoterReconciler, from and to the controller
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from tidelog.broker.partitions.roles import AnswerPeer, ProtocolContext, TakeNotice, WaitingElection
from tidelog.broker.paxos.lanes import Lanes
from tidelog.broker.paxos.messages import AppliedDurable, PartitionFrame, ReadApplied, ReadValue
from tidelog.broker.paxos.move_throttle import MoveThrottle
from tidelog.broker.paxos.regrouping import state_of
from tidelog.broker.paxos.roles import PaxosRoles
from tidelog.broker.paxos.service import PaxosService
from tidelog.broker.paxos.voter_reconciler import VoterReconciler
from tidelog.broker.repair.repair_messages import ReplicaState
from tidelog.broker.repair.scrub_targets import JournalOwner
from tidelog.model.ids import PartitionId


class PaxosRuntime:
    """The parts of one broker that serve Paxos partitions (a `ProtocolRuntime`)."""

    def __init__(self, context: ProtocolContext) -> None:
        move_throttle = MoveThrottle(context.node_id, context.throttle)
        lanes = Lanes(context.clock, context.stats) if context.config.paxos_peer_lanes > 1 else None
        self.roles = PaxosRoles(context, move_throttle, lanes)
        self._voter_reconciler = VoterReconciler(context, self.roles)
        service = PaxosService(self.roles.holders.get, move_throttle, lanes)
        self.requests: dict[type[msgspec.Struct], AnswerPeer] = {
            ReadApplied: lambda caller, request: service.read(caller.node_id, request),
            ReadValue: lambda _, request: service.read_value(request),
        }
        self.notifications: dict[type[msgspec.Struct], TakeNotice] = {
            PartitionFrame: service.take_frame,
            AppliedDurable: service.take_durable,
        }

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the background tasks of this runtime, by name."""
        return {"paxos-members": self._voter_reconciler.run()}

    def journals(self) -> Mapping[PartitionId, JournalOwner]:
        """Returns the engines that own a journal, by partition, for verification and repair; halted ones are
        left out."""
        return {
            partition_id: replica.engine
            for partition_id, replica in self.roles.holders.items()
            if not replica.is_halted
        }

    def replica_state(self, partition_id: PartitionId) -> ReplicaState | None:
        """Returns the state of a replica, for the case that its partition has to go on from what is left of it; None if
        it is not here or has halted."""
        replica, info = self.roles.holders.get(partition_id), self.roles.infos.get(partition_id)
        if replica is None or info is None or replica.is_halted:
            return None
        epoch, era, engine_id = info.partition_epoch, replica.era, replica.engine_id
        return state_of(replica.engine, replica.log, partition_epoch=epoch, era=era, engine_id=engine_id)

    def waiting_elections(self) -> Mapping[PartitionId, WaitingElection]:
        """Returns the elections that wait for a damaged value, by partition."""
        waits = {partition_id: replica.wait.current for partition_id, replica in self.roles.holders.items()}
        return {partition_id: wait for partition_id, wait in waits.items() if wait is not None}

    def mark_idle(self) -> None:
        """Records on disk how far the journals are durable, so that a later loss below that is noticed."""
        for replica in self.roles.holders.values():
            replica.mark_journal()
