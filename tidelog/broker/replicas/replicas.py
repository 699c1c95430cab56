"""The replicas on this broker, kept in line with the metadata.

The metadata image says of which partitions this broker holds a replica, and who leads them in which epoch. The commit
protocol of each topic acts on it (`Roles`). Data that this broker no longer holds is removed by `removal`.

To apply an image takes time, so a task does it, image after image; `position` is the last one applied. Most images
change one partition, or none: the roles of the others are not called (`Served`).

An image is in force here when all roles that it ends have ended. Roles that it begins may begin later: a log that is
not open yet is opened meanwhile (`ReplicaLogs`), and its replica has no role until then. With one exception: a process
that has just started first opens the logs that the cluster might elect. Before it is live it has to report which of
them are lost, or have lost their end: a leader is elected from the replicas believed to have everything, and the
others count no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.roles import Assignment, Roles
from tidelog.broker.repair.copies import Holder, Replica
from tidelog.broker.replicas.removal import Removal
from tidelog.broker.runtime.mapping_union import MappingUnion
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.controller.partition_commands import LostReplica, UnfitReason, UnfitReplica
from tidelog.controller.records import RENEWED_LEVEL
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, PartitionId, TopicId

REOPEN_S = 5.0
"""Seconds between attempts to open logs that could not be opened or written."""


BrokerStates = tuple[tuple[NodeId, int, str, bool], ...]
"""Node id, broker epoch, storage id and fencing of each broker."""


class Served(NamedTuple):
    """The metadata of a partition on which its roles depend, as last passed to them. An image shares with the previous
    one whatever did not change, so these are compared by identity."""

    info: PartitionInfo
    configs: Mapping[str, str]
    brokers: BrokerStates

    def is_same(self, previous: Served | None) -> bool:
        return previous is not None and all(value is old for value, old in zip(self, previous, strict=True))


class Replicas:
    """The replicas of one broker, kept in line with the metadata. `run` is its task."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        logs: ReplicaLogs,
        roles: Mapping[str, Roles],
        on_metadata_applied: Callable[[], None],
        removal: Removal,
        is_admitted: Callable[[ClusterImage], bool],
    ) -> None:
        """`roles` are by commit protocol. `on_metadata_applied` is called after each applied image; `removal` removes
        what is no longer held; `is_admitted` returns whether an image has this very process registered as its node's
        broker."""
        self.position = 0
        """The metadata position whose image is in force on this broker."""
        self.partitions: Mapping[PartitionId, LedPartition] = MappingUnion(
            *(role.partitions for role in roles.values())
        )
        """The partitions that this broker leads, and whose logs are open."""
        self.holders: Mapping[PartitionId, Holder] = MappingUnion(*(role.holders for role in roles.values()))
        """All replicas on this broker that have a role, leading or following."""
        self.readable: Mapping[PartitionId, Replica] = MappingUnion(*(role.readable for role in roles.values()))
        """The replicas whose committed records readers may be given."""
        self._node_id = node_id
        self._config = config
        self._logs = logs
        self._roles = roles
        self._on_metadata_applied = on_metadata_applied
        self._removal = removal
        self._is_admitted = is_admitted
        self._image = ClusterImage("")
        self._brokers: BrokerStates = ()
        self._configs: dict[TopicId, tuple[Mapping[str, str], TopicConfig]] = {}
        self._served: dict[PartitionId, Served] = {}
        """The metadata last passed to the roles, by partition. For a log that could not be opened or written, the roles
        are called again with each image."""
        self._has_image = False
        """True if a newer image waits to be applied."""
        self._has_begun = False
        """True once an image in which this process is registered has been applied, or is being applied."""
        self._opened: dict[PartitionId, None] = {}
        """Partitions whose logs are open, and whose roles are to be started."""
        self._wake = asyncio.Event()
        self._searched: ClusterImage | None = None
        self._held: Mapping[PartitionId, tuple[Topic, PartitionInfo]] = {}
        """This broker's replicas in the image that was last searched: kept because the search goes over all partitions
        of the cluster, and each heartbeat needs the result."""
        logs.on_opened = self._wake.set

    def follow(self, image: ClusterImage) -> None:
        """Sets a newer metadata image, which `run` applies."""
        self._image = image
        self._has_image = True
        self._wake.set()

    def is_opening(self, partition_id: PartitionId) -> bool:
        """Returns True if this broker is assigned the partition, and its log is being opened; its opening is moved
        before others, since a request waits for it."""
        self._logs.openings.hurry(partition_id)
        return partition_id in self._opened or self._logs.is_opening(partition_id)

    async def run(self) -> None:
        """Applies each metadata image to this broker's replicas, until cancelled."""
        await self._removal.begin()
        loop = asyncio.get_running_loop()
        reopen_at_s: float | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(reopen_at_s):
                    await self._wake.wait()
            self._wake.clear()
            if reopen_at_s is not None and loop.time() >= reopen_at_s:  # however much news there is
                reopen_at_s = None
                self._has_image = True
                await self._let_go_of_troubled()
            if self._has_image:
                self._has_image = False
                await self._come_to(self._image)
            await self._serve_opened(self.position)
            if not self._logs.troubled:
                reopen_at_s = None
            elif reopen_at_s is None:
                reopen_at_s = loop.time() + REOPEN_S

    async def _let_go_of_troubled(self) -> None:
        """Ends the roles of logs that could not be opened or written, and closes these logs, so that they are opened
        again."""
        for partition_id in list(self._logs.troubled):
            await self._stop(partition_id)
        self._logs.close_troubled()

    async def _come_to(self, image: ClusterImage) -> None:
        assigned = self._held_in(image)
        for partition_id in [name for name in self.holders if name not in assigned]:
            await self._stop(partition_id)
        for partition_id in [name for name in self._served if name not in assigned]:
            del self._served[partition_id]
        await self._logs.withdraw([name for name in self._logs.pending if name not in assigned])
        for topic_id in [key for key in self._configs if image.topic_by_id(key) is None]:
            del self._configs[topic_id]
        brokers = _states_of(image)
        if brokers != self._brokers:
            self._brokers = brokers
        for partition_id, (topic, info) in assigned.items():
            served = Served(info, topic.configs, self._brokers)
            if partition_id in self._logs.troubled or not served.is_same(self._served.get(partition_id)):
                self._served[partition_id] = served
                await self._serve(self._assignment(partition_id, topic, info), image)
        for partition_id in await self._removal.follow(image, assigned, is_admitted=self._is_admitted(image)):
            self._logs.forget(partition_id)
        if not self._has_begun and self._is_admitted(image):
            self._has_begun = True
            await self._open_counted_on(assigned, image)
        self.position = image.position
        self._on_metadata_applied()

    async def _serve(self, assigned: Assignment, image: ClusterImage) -> None:
        self._give_up(assigned.partition_id, assigned.info)
        if await self._roles[assigned.topic.commit_protocol].serve(assigned, image):
            await asyncio.sleep(0)

    def _give_up(self, partition_id: PartitionId, info: PartitionInfo) -> None:
        """Passes newly given-up offsets to the partition's log, and wakes the readers that wait for their repair."""
        if self._logs.give_up(partition_id, info.losses) and partition_id in self.holders:
            holder = self.holders[partition_id]
            holder.watchers.wake_all()
            holder.on_flushed()

    async def _open_counted_on(
        self, assigned: Mapping[PartitionId, tuple[Topic, PartitionInfo]], image: ClusterImage
    ) -> None:
        """Opens the logs from before this process that may be elected in place of others, and waits for them."""
        held_position = self._logs.held_position
        unopened = [
            partition_id
            for partition_id, (_, info) in assigned.items()
            if len(info.replicas) > 1
            and info.since_of(self._node_id) < held_position
            and _is_counted_on(info, self._node_id)
        ]
        while unopened:
            self._wake.clear()
            await self._serve_opened(image.position)
            while unopened and not self.is_opening(unopened[-1]):
                unopened.pop()
            if unopened:
                await self._wake.wait()
        self._wake.set()

    async def _serve_opened(self, position: int) -> None:
        """Starts the roles, by the newest image, of replicas whose logs have been opened. All logs assigned up to the
        metadata position `position` have been asked for, which is stored: one that is missing later is lost. Below
        `RENEWED_LEVEL` nothing is stored, and no log is taken for lost."""
        noted = position if self._image.level >= RENEWED_LEVEL else 0
        self._opened |= dict.fromkeys(await self._logs.release(noted))
        if not self._opened:
            return
        for partition_id in list(self._opened):
            newest = self.newest(partition_id)
            if newest is not None:
                assigned, image = newest
                self._served[partition_id] = Served(assigned.info, assigned.topic.configs, self._brokers)
                await self._serve(assigned, image)
            self._opened.pop(partition_id, None)
        self._on_metadata_applied()

    def _held_in(self, image: ClusterImage) -> Mapping[PartitionId, tuple[Topic, PartitionInfo]]:
        """Returns topic and metadata, by partition, of the replicas that an image assigns to this broker; none before
        this process is registered."""
        # What an older image gives this node was given to an earlier process, which may have written more in that
        # leader epoch than there is now: to go on in it could give the same offsets to other records.
        if not self._is_admitted(image):
            return {}
        if image is not self._searched:
            self._searched, self._held = (
                image,
                {
                    PartitionId(topic.topic_id, info.partition): (topic, info)
                    for topic in image.topics.values()
                    for info in topic.partitions
                    if self._node_id in info.replicas
                },
            )
        return self._held

    def _assignment(self, partition_id: PartitionId, topic: Topic, info: PartitionInfo) -> Assignment:
        return Assignment(partition_id, topic, info, self._settings(topic))

    def _settings(self, topic: Topic) -> TopicConfig:
        """Returns the settings of a topic, computed once for each change of its overrides."""
        cached = self._configs.get(topic.topic_id)
        if cached is None or cached[0] is not topic.configs:
            cached = self._configs[topic.topic_id] = (topic.configs, topic_config(self._config, topic.configs))
        return cached[1]

    def newest(self, partition_id: PartitionId) -> tuple[Assignment, ClusterImage] | None:
        """Returns a partition's assignment in the newest image, and that image; None if this broker is assigned no
        replica."""
        image, topic = self._image, self._image.topic_by_id(partition_id.topic_id)
        if topic is None or partition_id.partition >= len(topic.partitions) or not self._is_admitted(image):
            return None
        info = topic.partitions[partition_id.partition]
        return (self._assignment(partition_id, topic, info), image) if self._node_id in info.replicas else None

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Returns the replicas that the cluster counts on, and should not, with the reasons."""
        reasons = {
            partition_id: UnfitReason.OFFLINE
            for partition_id in self._logs.troubled
            if not self._logs.is_open(partition_id)
        }
        for roles in self._roles.values():
            reasons |= roles.unfit()
        if not reasons:
            return ()
        return tuple(
            UnfitReplica(partition_id.topic_id, partition_id.partition, info.leader_epoch, reasons[partition_id])
            for partition_id, (_, info) in self._held_in(self._image).items()
            if partition_id in reasons and (self._node_id in info.isr or info.leader == self._node_id)
        )

    def lost(self) -> tuple[LostReplica, ...]:
        """Returns the replicas whose logs are lost, while the metadata still counts on these logs."""
        replacements = self._logs.replacements()
        if not replacements:
            return ()
        return tuple(
            LostReplica(partition_id.topic_id, partition_id.partition, since)
            for partition_id, (_, info) in self._held_in(self._image).items()
            if replacements.get(partition_id) == (since := info.since_of(self._node_id))
        )

    async def _stop(self, partition_id: PartitionId) -> None:
        self._served.pop(partition_id, None)
        for roles in self._roles.values():
            if partition_id in roles.holders:
                await roles.stop(partition_id)

    async def close(self) -> None:
        """Stops opening logs, and ends all roles of this broker's replicas."""
        await self._logs.openings.close()
        for roles in self._roles.values():
            await roles.close()


def _is_counted_on(info: PartitionInfo, node_id: NodeId) -> bool:
    """Returns True if the metadata counts on this broker as having all committed records of a partition."""
    return node_id in (info.leader, *info.isr, *info.elr, *info.last_known_elr)


def _states_of(image: ClusterImage) -> BrokerStates:
    return tuple((broker.node_id, broker.epoch, broker.storage, broker.is_fenced) for broker in image.brokers.values())
