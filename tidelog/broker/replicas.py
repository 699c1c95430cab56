"""The replicas on this broker, kept equal to what the metadata says.

The image says of which partitions this broker holds a replica, and who leads them in which epoch. Those that it leads
get a runtime (`Partition`), the others follow their leader (`Follower`, by one `Fetcher` for each leader). A new leader
epoch gets a new object over the same log, so that nothing of the old leadership goes on in the new one. What becomes of
data that this broker holds no more is told in `removal`.

Bringing brokers and disk in line takes time, so a task does it, image after image; `position` says how far it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from tidelog.broker.controller.partition_commands import UnfitReason, UnfitReplica
from tidelog.broker.fetching import Fetcher
from tidelog.broker.follower import Follower
from tidelog.broker.isr_inputs import isr_changed, isr_settings, log_state
from tidelog.broker.partition import Partition, Surroundings
from tidelog.broker.removal import Removal
from tidelog.broker.replica_logs import ReplicaLogs, log_settings
from tidelog.broker.settling import Settling, begin_settling, verify_end
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId, PartitionId
from tidelog.replication.isr.events import Tick
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import PartitionLog

TICKS_PER_LAG = 10
REOPEN_S = 5.0
"""How often troubled logs are tried again."""
SETTLING_S_MAX = 3.0
"""After that another replica had better lead."""

logger = structlog.get_logger("tidelog.broker")


class Replicas:
    """One broker's. `run` and `tick` are its tasks; `partitions` are those that it leads and could open."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        manager: LogManager,
        surroundings: Surroundings,
        new_fetcher: Callable[[int], Fetcher],
        moved: Callable[[], None],
        removal: Removal,
        failed: Callable[[], None],
        retired: Callable[[PartitionId], None],
        is_admitted: Callable[[ClusterImage], bool],
        damaged: Callable[[PartitionId], None],
        settle: Callable[[Settling], Coroutine[Any, Any, None]],
    ) -> None:
        """`moved` is called after each change; `removal` removes what is held no more; `failed` is called if a task
        ended by an error that nobody foresaw; `retired` with each leadership that ended; `is_admitted` tells whether
        an image has this very process as its node's broker; `damaged` is called when something of a log is found
        damaged, and when a log that is has got a role; `settle` returns when a leader's epoch may begin."""
        self.partitions: dict[PartitionId, Partition] = {}
        self.followers: dict[PartitionId, Follower] = {}
        self.settling: dict[PartitionId, Settling] = {}
        """Those that it is to lead once it is settled what of their logs was committed."""
        self.position = 0
        """The image of this position is in force here."""
        self._node_id = node_id
        self._config = config
        self._surroundings = surroundings
        self._logs = ReplicaLogs(manager, surroundings.clock, surroundings.stats, damaged)
        self._log_writer = surroundings.log_writer
        self._clock = surroundings.clock
        self._new_fetcher = new_fetcher
        self._moved = moved
        self._removal = removal
        self._failed = failed
        self._retired = retired
        self._is_admitted = is_admitted
        self._damaged = damaged
        self._settle = settle
        self._lives: Mapping[int, int] = {}
        """Broker epochs of all brokers, as of the image that is being brought into force."""
        self._fetchers: dict[int, Fetcher] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._image = ClusterImage("")
        self._has_news = asyncio.Event()

    def follow(self, image: ClusterImage) -> None:
        """The metadata has moved."""
        self._image = image
        self._has_news.set()

    async def run(self) -> None:
        """Brings this broker in line with each image, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(REOPEN_S if self._logs.troubled else None):
                    await self._has_news.wait()
            except TimeoutError:
                await self._let_go_of_troubled()
            self._has_news.clear()
            await self._come_to(self._image)

    async def _let_go_of_troubled(self) -> None:
        """They are opened again."""
        for partition_id in list(self._logs.troubled):
            if self.holder(partition_id) is not None:
                await self._stop(partition_id)
        self._logs.close_troubled()

    async def tick(self) -> None:
        """Tells the leaders' cores the time, until cancelled."""
        interval_s = self._config.replica_lag_time_max_ms / 1000 / TICKS_PER_LAG
        while True:
            await asyncio.sleep(min(interval_s, 1.0))
            for partition in list(self.partitions.values()):
                partition.tell(Tick(self._now_ms()))

    async def _come_to(self, image: ClusterImage) -> None:
        wanted = self._held_in(image)
        for partition_id in [known for known in self._running() if known not in wanted]:
            await self._stop(partition_id)
        epochs = {int(broker.node_id): broker.epoch for broker in image.live_brokers}
        self._lives = {int(node_id): broker.epoch for node_id, broker in image.brokers.items()}
        for partition_id, (topic, info) in wanted.items():
            if await self._serve(partition_id, topic, info, epochs):
                await asyncio.sleep(0)
        for partition_id in await self._removal.follow(image, wanted, is_admitted=self._is_admitted(image)):
            self._logs.forget(partition_id)
        self.position = image.position
        self._moved()

    def _running(self) -> list[PartitionId]:
        return [*self.holders]

    def _held_in(self, image: ClusterImage) -> dict[PartitionId, tuple[Topic, PartitionInfo]]:
        """Nothing before this process is registered: what an older image gives this node was given to an earlier
        process, which may have written more in that leader epoch than there is now."""
        if not self._is_admitted(image):
            return {}
        return {
            PartitionId(topic.topic_id, info.partition): (topic, info)
            for topic in image.topics.values()
            for info in topic.partitions
            if self._node_id in info.replicas
        }

    # -- roles -------------------------------------------------------------------------------------------------------

    async def _serve(
        self, partition_id: PartitionId, topic: Topic, info: PartitionInfo, epochs: Mapping[int, int]
    ) -> bool:
        """Sees to it that the partition has the role of this epoch; True if that took any time."""
        config = topic_config(self._config, topic.configs)
        running = self.holder(partition_id)
        if running is not None and running.leader_epoch == info.leader_epoch:
            if isinstance(running, Partition):
                self._refresh(running, config, info, epochs)
            elif isinstance(running, Follower):
                running.reconfigure(log_settings(config), is_fsynced=config.ack_durability == "fsynced")
            return False
        if running is not None:
            await self._stop(partition_id)
        log = self._logs.get(partition_id, topic.name, config)
        if log is None:
            return True
        if info.leader == self._node_id:
            await self._take_over(partition_id, topic, info, log, config, epochs)
        elif info.leader != NO_LEADER:
            self._follow(partition_id, topic, info, log, config)
        if log.damage:
            self._damaged(partition_id)
        return True

    @property
    def holders(self) -> dict[PartitionId, Partition | Follower | Settling]:
        """All replicas here that have a role."""
        return {**self.partitions, **self.followers, **self.settling}

    def holder(self, partition_id: PartitionId) -> Partition | Follower | Settling | None:
        """What this broker has of a partition, in whatever role."""
        led = self.partitions.get(partition_id)
        return led or self.followers.get(partition_id) or self.settling.get(partition_id)

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Those that the cluster counts on, and should not."""
        settled_s = self._clock.monotonic_s() - SETTLING_S_MAX
        reasons = {known: UnfitReason.OFFLINE for known in self._logs.troubled if not self._logs.is_open(known)}
        for known, holder in self.holders.items():
            if holder.log.offline_reason is not None:
                reasons[known] = UnfitReason.OFFLINE
            elif isinstance(holder, Settling) and holder.begun_s < settled_s:
                reasons[known] = UnfitReason.DAMAGED
        if not reasons:
            return ()
        return tuple(
            UnfitReplica(known.topic_id, known.partition, info.leader_epoch, reasons[known])
            for known, (_, info) in self._held_in(self._image).items()
            if known in reasons and (self._node_id in info.isr or info.leader == self._node_id)
        )

    def _refresh(
        self, partition: Partition, config: TopicConfig, info: PartitionInfo, epochs: Mapping[int, int]
    ) -> None:
        if partition.config != config:
            partition.reconfigure(config, log_settings(config))
        partition.tell(isr_changed(config, info, epochs))

    async def _take_over(
        self,
        partition_id: PartitionId,
        topic: Topic,
        info: PartitionInfo,
        log: PartitionLog,
        config: TopicConfig,
        epochs: Mapping[int, int],
    ) -> None:
        """Leads, if the end of the log is whole; else it has to be settled first what of it was committed."""
        members = {int(node): self._lives.get(node, -1) for node in (*info.isr, *info.elr) if node != self._node_id}
        high_watermark = self._logs.high_watermark(partition_id, log)
        if members and high_watermark < log.log_end_offset:
            try:
                await verify_end(log, high_watermark, self._log_writer)
            except (OSError, TidelogError) as error:
                logger.error("a log cannot be read now", partition=str(partition_id), error=str(error))
                self._logs.troubled[partition_id] = None
                return
        settling = begin_settling(
            topic.name, partition_id, info.leader_epoch, log, high_watermark, members, self._clock.monotonic_s()
        )
        if settling is None:
            self._lead(partition_id, topic, info, log, config, epochs)
            return
        self.settling[partition_id] = settling
        self._spawn(_settlement_of(partition_id), self._lead_when_settled(settling))

    async def _lead_when_settled(self, settling: Settling) -> None:
        partition_id = settling.partition_id
        try:
            await self._settle(settling)
        except (OSError, TidelogError) as error:
            logger.error("a log could not be settled", partition=str(partition_id), error=str(error))
            return
        del self.settling[partition_id]
        image = self._image
        topic, info = self._held_in(image).get(partition_id, (None, None))
        if topic is None or info is None or info.leader_epoch != settling.leader_epoch:
            return  # another role is on its way
        epochs = {int(broker.node_id): broker.epoch for broker in image.live_brokers}
        config = topic_config(self._config, topic.configs)
        self._lead(partition_id, topic, info, settling.log, config, epochs)
        self._moved()

    def _lead(
        self,
        partition_id: PartitionId,
        topic: Topic,
        info: PartitionInfo,
        log: PartitionLog,
        config: TopicConfig,
        epochs: Mapping[int, int],
    ) -> None:
        core = IsrLeader(
            self._node_id,
            info.leader_epoch,
            log_state(log),
            self._logs.high_watermark(partition_id, log),
            isr_changed(config, info, epochs),
            isr_settings(self._config, config),
            self._now_ms(),
        )
        partition = Partition(
            topic.name, partition_id, info.leader_epoch, log, core, config, self._node_id, self._surroundings
        )
        self.partitions[partition_id] = partition
        self._spawn(partition_id, partition.run())

    def _follow(
        self, partition_id: PartitionId, topic: Topic, info: PartitionInfo, log: PartitionLog, config: TopicConfig
    ) -> None:
        core = IsrFollower(info.leader_epoch, log_state(log), self._logs.high_watermark(partition_id, log))
        follower = Follower(
            topic.name, partition_id, info.leader_epoch, log, core, self._log_writer, self._clock, self._spawn
        )
        follower.is_fsynced = config.ack_durability == "fsynced"
        self.followers[partition_id] = follower
        fetcher = self._fetchers.get(info.leader)
        if fetcher is None:
            fetcher = self._fetchers[info.leader] = self._new_fetcher(info.leader)
            self._spawn(f"fetcher-{info.leader}", fetcher.run())
        fetcher.add(follower)

    async def _stop(self, partition_id: PartitionId) -> None:
        """Ends the role. What is appended is made durable before another role begins on the same log, and a truncation
        comes to its end: nothing that the old role began may change the log under the new one."""
        follower = self.followers.pop(partition_id, None)
        if follower is not None:
            follower.close()
            for fetcher in self._fetchers.values():
                fetcher.remove(partition_id)
            await follower.at_rest()
            self._logs.high_watermarks[partition_id] = follower.high_watermark
            return
        settling = self.settling.pop(partition_id, None)
        if settling is not None:
            await self._cancel(_settlement_of(partition_id))
            await self._log_writer.at_rest(settling.log)
            return
        partition = self.partitions.pop(partition_id)
        partition.close(is_deposed=True)
        self._retired(partition_id)
        self._logs.high_watermarks[partition_id] = partition.high_watermark
        await self._cancel(partition_id)
        await self._log_writer.at_rest(partition.log)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _spawn(self, name: object, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"replica-{name}")
        task.add_done_callback(self._ended)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._tasks.pop(name, None) if self._tasks.get(name) is done else None)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a replica's task failed", task=task.get_name(), exc_info=task.exception())
            self._failed()

    async def _cancel(self, name: object) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> dict[PartitionId, int]:
        """Stops all; returns the high watermarks of the open logs."""
        for leader in self._fetchers:
            await self._cancel(f"fetcher-{leader}")
        for partition_id, partition in self.partitions.items():
            partition.close()
            self._logs.high_watermarks[partition_id] = partition.high_watermark
            await self._cancel(partition_id)
        for partition_id in list(self.settling):
            await self._stop(partition_id)
        for partition_id, follower in self.followers.items():
            follower.close()
            await follower.at_rest()
            self._logs.high_watermarks[partition_id] = follower.high_watermark
        self.partitions.clear()
        self.followers.clear()
        return dict(self._logs.high_watermarks)


def _settlement_of(partition_id: PartitionId) -> str:
    """The name of its task."""
    return f"settlement-{partition_id}"
