"""The data plane of a broker: it leads and follows partitions, repairs and scrubs them. It connects these parts:

metadata -> Replicas -> the roles of each topic's commit protocol (`broker.isr.runtime`, `broker.paxos.runtime`)
damage -> Repairer, with other replicas' copies
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from msgspec import UNSET

from tidelog.broker.isr.runtime import IsrRuntime
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.partition_handle import ReadHandle
from tidelog.broker.partitions.replica_logs import ReplicaLogs, may_deny
from tidelog.broker.partitions.roles import Assignment, ProtocolContext, ProtocolRuntime, WaitingElection
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.paxos.runtime import PaxosRuntime
from tidelog.broker.repair.copies import Copies, Holder
from tidelog.broker.repair.loss_finding import LossFinder
from tidelog.broker.repair.remains_finding import RemainsFinder
from tidelog.broker.repair.repair_messages import ReplicaState
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.repair.scrub_targets import JournalOwner, Means, Target
from tidelog.broker.repair.scrubbing import BackgroundScrubber
from tidelog.broker.repair.verifying import Verifier
from tidelog.broker.repair.verifying_files import FilesVerifier
from tidelog.broker.replicas.housekeeping import Housekeeper
from tidelog.broker.replicas.removal import Removal
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replicas.scrub_list import replica_targets
from tidelog.broker.runtime.resources import Resources
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.model.cluster import ISR, NO_LEADER, PAXOS, ClusterImage
from tidelog.model.ids import PartitionId, TopicId

RUNTIMES: Final[Mapping[str, Callable[[ProtocolContext], ProtocolRuntime]]] = MappingProxyType(
    {ISR: IsrRuntime, PAXOS: PaxosRuntime}
)
"""The broker's side of each commit protocol that topics may have, by its name."""


class ReplicaHost(Protocol):
    """The parts of a broker that its replicas use."""

    @property
    def image(self) -> ClusterImage: ...

    def own_epoch(self) -> int:
        """Returns the epoch of this broker's registration (broker epoch)."""

    def is_admitted(self, image: ClusterImage) -> bool:
        """Returns True if a metadata image has this very process registered as its node's broker."""

    async def in_force(self, position: int) -> bool:
        """Returns True when this broker has applied the metadata up to a position; False if that takes too long."""

    def on_metadata_applied(self) -> None:
        """Called when this broker has applied more of the metadata."""

    def on_topic_removed(self, topic_id: TopicId) -> None:
        """Called when nothing of a deleted topic is left on this broker's disk."""

    def on_failed(self) -> None:
        """Called when a replica's task has failed with an unexpected error."""


class WaitingPartition(NamedTuple):
    """A partition that waits for repairs on this broker. `damaged_ranges` also counts journal positions that its
    election waits for."""

    damaged_ranges: int
    without_copy: int
    """Number of damaged ranges of which no broker that answered had a good copy."""
    seconds: float
    """Seconds that the oldest damaged range has waited for its repair."""
    awaited: frozenset[int]
    """Node ids of brokers that may have good copies, and could not be asked or have not answered yet."""


class DataPlane:
    """The data of one broker's partitions. Run `tasks` once the metadata is open; call `close` when they have ended."""

    def __init__(self, resources: Resources, channel: ControllerChannel, host: ReplicaHost) -> None:
        self._resources = resources
        node_id, config, clock, stats = resources.node_id, resources.config, resources.clock, resources.stats
        log_writer, peers = resources.log_writer, resources.peers
        self._throttle = Throttle(node_id, config, clock, stats)
        self._logs = ReplicaLogs(resources.manager, clock, stats, log_writer, self._damaged)
        self.copies = Copies(self._holder, self._may_deny, host.own_epoch, peers)
        """Copies of damaged batches: answers other brokers' requests, and sends this broker's."""
        self._repairer = Repairer(node_id, self._holder, lambda: host.image, self.copies, log_writer, stats)
        context = ProtocolContext(
            node_id=node_id,
            config=config,
            clock=clock,
            entropy=resources.entropy,
            stats=stats,
            log_writer=log_writer,
            purgatory=resources.purgatory,
            lease=resources.lease,
            logs=self._logs,
            tasks=RoleTasks(host.on_failed),
            throttle=self._throttle,
            copies=self.copies,
            repairer=self._repairer,
            peers=peers,
            channel=channel,
            image=lambda: host.image,
            own_epoch=host.own_epoch,
            in_force=host.in_force,
            newest=self._newest,
            on_metadata_applied=host.on_metadata_applied,
        )
        self.protocols = {name: runtime(context) for name, runtime in RUNTIMES.items()}
        self._removal = Removal(node_id, resources.manager, log_writer, host.on_topic_removed)
        self.replicas = Replicas(
            node_id,
            config,
            self._logs,
            {name: protocol.roles for name, protocol in self.protocols.items()},
            host.on_metadata_applied,
            self._removal,
            host.is_admitted,
        )
        self._means = Means(log_writer, stats)
        self._extra_targets: Callable[[Means], Mapping[str, Target]] = lambda _: {}
        self.scrubber = BackgroundScrubber(self.targets, log_writer, config, stats)
        self.verifier = Verifier(node_id, self._holder, log_writer, peers)
        self.files_verifier = FilesVerifier(node_id, self.targets, peers)
        self.loss_finder = LossFinder(node_id, self._holder, lambda: host.image, self.copies, self.verifier, peers)
        self.remains_finder = RemainsFinder(node_id, self._replica_state, lambda: host.image, peers)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the tasks that keep this broker's replicas in line with the metadata, by name."""
        tasks = {"replicas": self.replicas.run(), "openings": self._logs.openings.run(), "removal": self._removal.run()}
        for protocol in self.protocols.values():
            tasks |= protocol.tasks()
        return {**tasks, "repairs": self._repairer.run()}

    def targets(self) -> dict[str, Target]:
        """Returns everything on this broker that is to be scrubbed or verified, by name."""
        replicas = replica_targets(self.replicas.holders, self._journals, self._means)
        return {**replicas, **self._extra_targets(self._means)}

    def _journals(self) -> dict[PartitionId, JournalOwner]:
        return {
            partition_id: owner
            for runtime in self.protocols.values()
            for partition_id, owner in runtime.journals().items()
        }

    def upkeep(
        self, mark_metadata: Callable[[], None], extra_targets: Callable[[Means], Mapping[str, Target]]
    ) -> dict[str, Coroutine[Any, Any, None]]:
        """Returns the periodic tasks by name, to be started when the broker serves. `others` returns further scrubber
        targets."""
        self._extra_targets = extra_targets

        def mark_journals() -> None:
            mark_metadata()
            for protocol in self.protocols.values():
                protocol.mark_idle()

        housekeeper = Housekeeper(
            self.replicas.partitions,
            self.replicas.holders,
            self._resources.log_writer,
            self._resources.config,
            self._resources.clock,
            mark_journals,
        )
        return {"housekeeping": housekeeper.run(), "scrubbing": self.scrubber.run()}

    def follow(self, image: ClusterImage) -> None:
        """Takes a newer metadata image, which the tasks apply."""
        self._resources.stats.traffic.keep(image.topics)
        self._throttle.follow(image)
        self.replicas.follow(image)

    async def close(self) -> dict[PartitionId, int]:
        """Ends all roles of this broker's replicas; returns the high watermark of each open log, by partition."""
        await self.replicas.close()
        return dict(self._logs.high_watermarks)

    # -- what is here -----------------------------------------------------------------------------------------------

    @property
    def opening(self) -> int:
        """Number of partitions whose logs are being opened on this broker, or wait for it."""
        return len(self._logs.openings.pending)

    @property
    def damaged_ranges(self) -> int:
        """Number of offset ranges on this broker's disk that are known to be damaged and not repaired yet."""
        return sum(len(holder.log.damaged_ranges()) for holder in self.replicas.holders.values())

    def waiting(self) -> dict[tuple[str, int], WaitingPartition]:
        """Returns the partitions that wait for repairs here, or whose election on this broker waits for values that may
        have been chosen and cannot be read here, by topic and partition number."""
        repairs, damaged_s = self._repairer, self._repairer.damaged_for_s()
        elections: dict[PartitionId, WaitingElection] = {}
        for protocol in self.protocols.values():
            elections |= protocol.waiting_elections()
        partitions: dict[tuple[str, int], WaitingPartition] = {}
        for partition_id in damaged_s | elections:
            holder = self._holder(partition_id)
            if holder is None:
                continue
            wait = elections.get(partition_id, WaitingElection(0, 0.0, frozenset()))
            partitions[holder.topic, partition_id.partition] = WaitingPartition(
                len(holder.log.damaged_ranges()) + wait.positions,
                repairs.without_copy.get(partition_id, 0) + wait.positions,
                max(damaged_s.get(partition_id, 0.0), wait.seconds),
                repairs.unasked.get(partition_id, frozenset()) | wait.brokers,
            )
        return partitions

    def local_copy(self, partition_id: PartitionId) -> LocalCopy | None:
        """Returns this broker's copy of a partition, leader or not; None if it has none, or cannot open it."""
        replica = self.replicas.readable.get(partition_id)
        if replica is None:
            return None
        resources, is_leading = self._resources, partition_id in self.replicas.partitions
        return LocalCopy(replica, resources.node_id, resources.purgatory, resources.stats, is_leading)

    def any_copy(self, partition_id: PartitionId) -> ReadHandle | None:
        """Returns `local_copy` for a reader that would accept another replica's copy as well. A log that replaces a
        lost one is not returned while the partition has a leader; without a leader, reads at its end are refused."""
        copy, newest = self.local_copy(partition_id), self.replicas.newest(partition_id)
        if copy is None or copy.replica.log.stands_in_since is UNSET:
            return copy
        if newest is None or may_deny(copy.replica.log, newest[0].info, self._resources.node_id):
            return copy
        return replace(copy, is_filling=True) if newest[0].info.leader == NO_LEADER else None

    # -- for the parts ----------------------------------------------------------------------------------------------

    def _holder(self, partition_id: PartitionId) -> Holder | None:
        return self.replicas.holders.get(partition_id)

    def _replica_state(self, partition_id: PartitionId) -> ReplicaState | None:
        states = [protocol.replica_state(partition_id) for protocol in self.protocols.values()]
        return next((state for state in states if state is not None), None)

    def _may_deny(self, holder: Holder) -> bool:
        newest = self.replicas.newest(holder.partition_id)
        return newest is not None and may_deny(holder.log, newest[0].info, self._resources.node_id)

    def _damaged(self, partition_id: PartitionId) -> None:
        """Reports a partition with damage to the repairer."""
        self._repairer.noticed(partition_id)

    def _newest(self, partition_id: PartitionId) -> tuple[Assignment, ClusterImage] | None:
        return self.replicas.newest(partition_id)
