"""What a broker does with the data of partitions: it leads and follows, repairs and scrubs. The parts meet here.

metadata -> Replicas -> IsrRoles: leaders (Partition) and followers (Follower), each over its log
                     -> PaxosRoles: PaxosReplica, and PaxosPartition beside it where this broker leads
a leader's log has grown -> ReplicationService answers the fetches that wait -> Fetcher on the follower's broker
a leader wants another in-sync set -> IsrRequests asks the controller
members of a Paxos partition's log -> VoterReconciler, from and to the controller
something is damaged -> Repairer, with other replicas' copies; a leader's damaged end -> Settler, before it leads
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from tidelog.broker.isr.fetching import Fetcher
from tidelog.broker.isr.isr_requests import IsrRequests
from tidelog.broker.isr.isr_roles import IsrRoles
from tidelog.broker.isr.partition import Partition, Surroundings
from tidelog.broker.isr.replication_service import ReplicationService
from tidelog.broker.isr.settling import Settler, Settling
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.partition_handle import ReadHandle
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.roles import Assignment
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.move_throttle import MoveThrottle
from tidelog.broker.paxos.roles import PaxosRoles
from tidelog.broker.paxos.service import PaxosService
from tidelog.broker.paxos.voter_reconciler import VoterReconciler
from tidelog.broker.repair.copies import Copies
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.repair.scrubbing import BackgroundScrubber
from tidelog.broker.repair.verifying import Verifier
from tidelog.broker.replicas.housekeeping import Housekeeper
from tidelog.broker.replicas.removal import Removal
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.controller.partition_commands import UnfitReplica
from tidelog.model.cluster import ISR, PAXOS, ClusterImage
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.model.ports import Clock, Entropy
from tidelog.replication.isr.events import AlterPartition
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import PeerNode


class DataPlane:
    """One broker's. `tasks` are to be run from when the metadata is open; `close` when they have ended."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        manager: LogManager,
        log_writer: LogWriter,
        purgatory: Purgatory,
        stats: Stats,
        clock: Clock,
        entropy: Entropy,
        lease: Lease,
        peers: PeerNode,
        channel: ControllerChannel,
        *,
        image: Callable[[], ClusterImage],
        own_epoch: Callable[[], int],
        is_admitted: Callable[[ClusterImage], bool],
        in_force: Callable[[int], Awaitable[bool]],
        on_metadata_applied: Callable[[], None],
        topic_removed: Callable[[TopicId], None],
        failed: Callable[[], None],
    ) -> None:
        """The callbacks are the broker's: its metadata, its registration's epoch, whether an image has this very
        process as its node's broker; waiting for a position, and being told of each change of it; a deleted topic of
        which nothing is left; an error that nobody foresaw."""
        self._node_id = node_id
        self._config = config
        self._log_writer = log_writer
        self._purgatory = purgatory
        self._stats = stats
        self._clock = clock
        self._image = image
        self._throttle = Throttle(node_id, config, clock, stats)
        self._isr_requests = IsrRequests(node_id, own_epoch, channel, in_force, clock)
        tasks = RoleTasks(failed)
        self._logs = ReplicaLogs(manager, clock, stats, self._damaged)
        surroundings = Surroundings(clock, stats, log_writer, purgatory, self, lease)
        self.isr = IsrRoles(
            node_id,
            config,
            self._logs,
            tasks,
            surroundings,
            lambda leader: Fetcher(node_id, leader, own_epoch, peers, clock, entropy, self._throttle),
            self._retired,
            self._settle,
            self._newest,
            on_metadata_applied,
        )
        bounds = JournalBounds(config.paxos_journal_max_bytes, config.paxos_journal_max_entries)
        move_throttle = MoveThrottle(node_id, self._throttle)
        self.paxos = PaxosRoles(node_id, self._logs, tasks, surroundings, peers, entropy, image, move_throttle, bounds)
        self._voter_reconciler = VoterReconciler(
            node_id, self.paxos, own_epoch, image, channel, in_force, clock, tasks.spawn
        )
        self.paxos_service = PaxosService(self.paxos.holders.get, move_throttle)
        """Answers the other replicas of Paxos partitions."""
        self.replicas = Replicas(
            node_id,
            config,
            self._logs,
            {ISR: self.isr, PAXOS: self.paxos},
            on_metadata_applied,
            Removal(node_id, manager, log_writer, topic_removed),
            is_admitted,
        )
        holder = self.replicas.holders.get
        self.copies = Copies(holder, own_epoch, peers)
        """Answers other brokers' questions about damaged batches."""
        self._repairer = Repairer(node_id, holder, image, self.copies, log_writer, stats)
        self._settler = Settler(self.copies, self._repairer, log_writer, clock)
        self.scrubber = BackgroundScrubber(lambda: dict(self.replicas.holders), log_writer, config, stats)
        self.verifier = Verifier(node_id, holder, log_writer, peers)
        self.replication = ReplicationService(self.isr.partitions, self._epoch_of, clock, stats, self._throttle)
        """Answers followers."""

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What keeps this broker in line with the metadata."""
        return {
            "replicas": self.replicas.run(),
            "ticks": self.isr.tick(),
            "paxos-members": self._voter_reconciler.run(),
            "isr-requests": self._isr_requests.run(),
            "repairs": self._repairer.run(),
        }

    def upkeep(self, mark_metadata: Callable[[], None]) -> dict[str, Coroutine[Any, Any, None]]:
        """What is done by the clock, once the broker serves."""

        def mark_others() -> None:
            mark_metadata()
            self.paxos.mark_journals()

        housekeeper = Housekeeper(
            self.replicas.partitions,
            self.replicas.holders,
            self._log_writer,
            self._config,
            self._clock,
            mark_others,
        )
        return {"housekeeping": housekeeper.run(), "scrubbing": self.scrubber.run()}

    def follow(self, image: ClusterImage) -> None:
        """The metadata has advanced."""
        self._throttle.follow(image)
        self.replicas.follow(image)

    async def close(self) -> dict[PartitionId, int]:
        """Ends all roles; returns the high watermarks of the open logs."""
        await self.replicas.close()
        return dict(self._logs.high_watermarks)

    # -- what is here -----------------------------------------------------------------------------------------------

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Replicas here that the cluster should not count on."""
        return self.replicas.unfit()

    @property
    def damaged_ranges(self) -> int:
        """Ranges of offsets that are known to be damaged on this broker's disk, and not repaired yet."""
        return sum(len(holder.log.damaged_ranges()) for holder in self.replicas.holders.values())

    def local_copy(self, partition_id: PartitionId) -> ReadHandle | None:
        """What this broker holds of a partition, leader or not; None if it holds nothing, or cannot open it."""
        replica = self.replicas.holders.get(partition_id)
        if replica is None or isinstance(replica, Settling):
            return None
        return LocalCopy(replica, self._node_id, self._purgatory, self._stats)

    def _epoch_of(self, node_id: int) -> int:
        broker = self._image().brokers.get(NodeId(node_id))
        return -1 if broker is None else broker.epoch

    # -- for the partitions: `Replication` --------------------------------------------------------------------------

    def progressed(self, partition: Partition) -> None:
        self.replication.progressed(partition)

    def ask_anew(self, partition: Partition, nodes: Sequence[int]) -> None:
        self.replication.ask_anew(partition.partition_id, nodes)

    def alter(self, partition: Partition, effect: AlterPartition) -> None:
        self._isr_requests.add(partition, effect)

    # -- for the replicas -------------------------------------------------------------------------------------------

    def _retired(self, partition_id: PartitionId) -> None:
        """A leadership of this broker has ended: followers that wait are told."""
        self.replication.forget(partition_id)

    def _damaged(self, partition_id: PartitionId) -> None:
        """Something of a log here is damaged."""
        self._repairer.noticed(partition_id)

    def _newest(self, partition_id: PartitionId) -> tuple[Assignment, ClusterImage] | None:
        return self.replicas.newest(partition_id)

    async def _settle(self, settling: Settling) -> None:
        """Finds out what of a damaged log's end was committed, before this broker leads."""
        await self._settler.settle(settling)
