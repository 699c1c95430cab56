"""A broker leads and follows partitions, repairs and scrubs their data. The parts meet here.

metadata -> Replicas -> the roles of each topic's commit protocol (`broker.isr.runtime`, `broker.paxos.runtime`)
something is damaged -> Repairer, with other replicas' copies
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final

from tidelog.broker.isr.runtime import IsrRuntime
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.partition_handle import ReadHandle
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.roles import Assignment, ProtocolContext, ProtocolRuntime
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.paxos.runtime import PaxosRuntime
from tidelog.broker.repair.copies import Copies, Holder
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
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import PeerNode

RUNTIMES: Final[Mapping[str, Callable[[ProtocolContext], ProtocolRuntime]]] = MappingProxyType(
    {ISR: IsrRuntime, PAXOS: PaxosRuntime}
)
"""The commit protocols that topics may have, as a broker does its part in them."""


class DataPlane:
    """The data of one broker's partitions. `tasks` run from when the metadata is open; `close` when they have ended."""

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
        self._throttle = Throttle(node_id, config, clock, stats)
        self._logs = ReplicaLogs(manager, clock, stats, self._damaged)
        self.copies = Copies(self._holder, own_epoch, peers)
        """Answers other brokers' questions about damaged batches."""
        self._repairer = Repairer(node_id, self._holder, image, self.copies, log_writer, stats)
        context = ProtocolContext(
            node_id=node_id,
            config=config,
            clock=clock,
            entropy=entropy,
            stats=stats,
            log_writer=log_writer,
            purgatory=purgatory,
            lease=lease,
            logs=self._logs,
            tasks=RoleTasks(failed),
            throttle=self._throttle,
            copies=self.copies,
            repairer=self._repairer,
            peers=peers,
            channel=channel,
            image=image,
            own_epoch=own_epoch,
            in_force=in_force,
            newest=self._newest,
            on_metadata_applied=on_metadata_applied,
        )
        self.protocols = {name: runtime(context) for name, runtime in RUNTIMES.items()}
        self.replicas = Replicas(
            node_id,
            config,
            self._logs,
            {name: protocol.roles for name, protocol in self.protocols.items()},
            on_metadata_applied,
            Removal(node_id, manager, log_writer, topic_removed),
            is_admitted,
        )
        self.scrubber = BackgroundScrubber(lambda: dict(self.replicas.holders), log_writer, config, stats)
        self.verifier = Verifier(node_id, self._holder, log_writer, peers)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the tasks that keep this broker in line with the metadata."""
        tasks = {"replicas": self.replicas.run()}
        for protocol in self.protocols.values():
            tasks |= protocol.tasks()
        return {**tasks, "repairs": self._repairer.run()}

    def upkeep(self, mark_metadata: Callable[[], None]) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the tasks that work by the clock, once the broker serves."""

        def mark_others() -> None:
            mark_metadata()
            for protocol in self.protocols.values():
                protocol.mark_idle()

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
        """Returns this broker's copy of a partition, leader or not; None if it holds none, or cannot open it."""
        replica = self.replicas.readable.get(partition_id)
        return None if replica is None else LocalCopy(replica, self._node_id, self._purgatory, self._stats)

    # -- for the parts ----------------------------------------------------------------------------------------------

    def _holder(self, partition_id: PartitionId) -> Holder | None:
        return self.replicas.holders.get(partition_id)

    def _damaged(self, partition_id: PartitionId) -> None:
        """Something of a log here is damaged."""
        self._repairer.noticed(partition_id)

    def _newest(self, partition_id: PartitionId) -> tuple[Assignment, ClusterImage] | None:
        return self.replicas.newest(partition_id)
