"""The replicas on this broker, kept equal to what the metadata says.

The image says of which partitions this broker holds a replica, and who leads them in which epoch. What that means is
the commit protocol's business (`Roles`): of each partition, the roles of its topic's protocol are told. What becomes of
data that this broker holds no more is told in `removal`.

Bringing brokers and disk in line takes time, so a task does it, image after image; `position` says how far it is. Most
images change one partition, or none: the others' roles are not told again what they know (`Served`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.local_copy import Replica
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.roles import Assignment, Roles
from tidelog.broker.repair.copies import Holder
from tidelog.broker.replicas.removal import Removal
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.mapping_union import MappingUnion
from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import topic_config
from tidelog.controller.partition_commands import LostReplica, UnfitReason, UnfitReplica
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, PartitionId

REOPEN_S = 5.0
"""How often troubled logs are tried again."""


BrokerStates = tuple[tuple[NodeId, int, str, bool], ...]
"""Epoch and storage of each broker, and whether it is fenced."""


class Served(NamedTuple):
    """All that a partition's roles go by: they were told just this. An image shares with the one before it what did
    not change, so these are compared by identity."""

    info: PartitionInfo
    configs: Mapping[str, str]
    brokers: BrokerStates

    def is_same(self, other: Served | None) -> bool:
        return other is not None and all(mine is theirs for mine, theirs in zip(self, other, strict=True))


class Replicas:
    """One broker's. `run` is its task."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        logs: ReplicaLogs,
        roles: Mapping[str, Roles],
        on_metadata_applied: Callable[[], None],
        removal: Removal,
        is_admitted: Callable[[ClusterImage], bool],
        log_writer: LogWriter,
    ) -> None:
        """`roles` are by commit protocol. `on_metadata_applied` is called after each change; `removal` removes what is
        held no more; `is_admitted` tells whether an image has this very process as its node's broker."""
        self.position = 0
        """The image of this position is in force here."""
        self.partitions: Mapping[PartitionId, LedPartition] = MappingUnion(
            *(role.partitions for role in roles.values())
        )
        """Those that this broker leads and could open."""
        self.holders: Mapping[PartitionId, Holder] = MappingUnion(*(role.holders for role in roles.values()))
        """What this broker has of partitions, in whatever role."""
        self.readable: Mapping[PartitionId, Replica] = MappingUnion(*(role.readable for role in roles.values()))
        """The replicas of which readers may be shown what is committed."""
        self._node_id = node_id
        self._config = config
        self._logs = logs
        self._roles = roles
        self._on_metadata_applied = on_metadata_applied
        self._removal = removal
        self._is_admitted = is_admitted
        self._log_writer = log_writer
        self._image = ClusterImage("")
        self._brokers: BrokerStates = ()
        self._served: dict[PartitionId, Served] = {}
        """What the roles of each replica were told last. Those with troubled logs are told again with each image."""
        self._has_news = asyncio.Event()
        self._searched: ClusterImage | None = None
        self._found: Mapping[PartitionId, tuple[Topic, PartitionInfo]] = {}
        """The replicas here, in the image that was searched last: all partitions of the cluster are looked at for
        it, and each heartbeat asks."""

    def follow(self, image: ClusterImage) -> None:
        """The metadata has advanced."""
        self._image = image
        self._has_news.set()

    async def run(self) -> None:
        """Brings this broker in line with each image, until cancelled."""
        loop = asyncio.get_running_loop()
        reopen_at_s: float | None = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(reopen_at_s):
                    await self._has_news.wait()
            self._has_news.clear()
            if reopen_at_s is not None and loop.time() >= reopen_at_s:  # however much news there is
                reopen_at_s = None
                await self._let_go_of_troubled()
            await self._come_to(self._image)
            if not self._logs.troubled:
                reopen_at_s = None
            elif reopen_at_s is None:
                reopen_at_s = loop.time() + REOPEN_S

    async def _let_go_of_troubled(self) -> None:
        """They are opened again."""
        for partition_id in list(self._logs.troubled):
            await self._stop(partition_id)
        self._logs.close_troubled()

    async def _come_to(self, image: ClusterImage) -> None:
        wanted = self._held_in(image)
        for partition_id in [known for known in self.holders if known not in wanted]:
            await self._stop(partition_id)
        for partition_id in [known for known in self._served if known not in wanted]:
            del self._served[partition_id]
        brokers = _states_of(image)
        if brokers != self._brokers:
            self._brokers = brokers
        for partition_id, (topic, info) in wanted.items():
            told = Served(info, topic.configs, self._brokers)
            if partition_id in self._logs.troubled or not told.is_same(self._served.get(partition_id)):
                self._served[partition_id] = told
                await self._serve(self._assignment(partition_id, topic, info), image)
        for partition_id in await self._removal.follow(image, wanted, is_admitted=self._is_admitted(image)):
            self._logs.forget(partition_id)
        await self._note_held(wanted, image)
        self.position = image.position
        self._on_metadata_applied()

    async def _serve(self, assigned: Assignment, image: ClusterImage) -> None:
        self._give_up(assigned.partition_id, assigned.info)
        if await self._roles[assigned.topic.commit_protocol].serve(assigned, image):
            await asyncio.sleep(0)

    def _give_up(self, partition_id: PartitionId, info: PartitionInfo) -> None:
        """Tells the log what of it is given up, and whoever waits for a repair of that."""
        if self._logs.give_up(partition_id, info.losses) and partition_id in self.holders:
            holder = self.holders[partition_id]
            holder.watchers.wake_all()
            holder.on_flushed()

    async def _note_held(self, wanted: Mapping[PartitionId, tuple[Topic, PartitionInfo]], image: ClusterImage) -> None:
        """Before this image counts as in force here: from then on a log of it that is missing is lost."""
        held = self._logs.held_position
        since = {known: info.since_of(self._node_id) for known, (_, info) in wanted.items()}
        fresh = {known: began for known, began in since.items() if began >= held}
        if fresh:
            await self._logs.note_held(image.position, fresh, self._log_writer)

    def _held_in(self, image: ClusterImage) -> Mapping[PartitionId, tuple[Topic, PartitionInfo]]:
        """Nothing before this process is registered: what an older image gives this node was given to an earlier
        process, which may have written more in that leader epoch than there is now."""
        if not self._is_admitted(image):
            return {}
        if image is not self._searched:
            self._searched, self._found = (
                image,
                {
                    PartitionId(topic.topic_id, info.partition): (topic, info)
                    for topic in image.topics.values()
                    for info in topic.partitions
                    if self._node_id in info.replicas
                },
            )
        return self._found

    def _assignment(self, partition_id: PartitionId, topic: Topic, info: PartitionInfo) -> Assignment:
        return Assignment(partition_id, topic, info, topic_config(self._config, topic.configs))

    def newest(self, partition_id: PartitionId) -> tuple[Assignment, ClusterImage] | None:
        """What the newest image has of a partition; None if this broker is to hold no replica of it."""
        image, topic = self._image, self._image.topic_by_id(partition_id.topic_id)
        if topic is None or partition_id.partition >= len(topic.partitions) or not self._is_admitted(image):
            return None
        info = topic.partitions[partition_id.partition]
        return (self._assignment(partition_id, topic, info), image) if self._node_id in info.replicas else None

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Those that the cluster counts on, and should not."""
        reasons = {known: UnfitReason.OFFLINE for known in self._logs.troubled if not self._logs.is_open(known)}
        for roles in self._roles.values():
            reasons |= roles.unfit()
        if not reasons:
            return ()
        return tuple(
            UnfitReplica(known.topic_id, known.partition, info.leader_epoch, reasons[known])
            for known, (_, info) in self._held_in(self._image).items()
            if known in reasons and (self._node_id in info.isr or info.leader == self._node_id)
        )

    def lost(self) -> tuple[LostReplica, ...]:
        """Returns the replicas whose logs are gone, and that the cluster takes for what they were."""
        return tuple(
            LostReplica(known.topic_id, known.partition, since)
            for known, (_, info) in self._held_in(self._image).items()
            if self._logs.stands_in(known, since := info.since_of(self._node_id))
        )

    async def _stop(self, partition_id: PartitionId) -> None:
        self._served.pop(partition_id, None)
        for roles in self._roles.values():
            if partition_id in roles.holders:
                await roles.stop(partition_id)

    async def close(self) -> None:
        """Ends all roles."""
        for roles in self._roles.values():
            await roles.close()


def _states_of(image: ClusterImage) -> BrokerStates:
    return tuple((one.node_id, one.epoch, one.storage, one.is_fenced) for one in image.brokers.values())
