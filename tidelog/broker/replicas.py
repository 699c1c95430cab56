"""The partitions that this broker serves, kept equal to what the metadata says.

The image says which partitions this broker leads, in which epoch; each of them gets a runtime (`Partition`) over its
log. A new epoch gets a new runtime over the same log, so that nothing of the old leadership goes on in the new one. A
log stays open when its leadership is lost: what was appended is still made durable, and its waiting producers are told.
A deleted topic's data is removed, on the metadata's word alone; a directory that no metadata knows is left alone.

Bringing brokers and disk in line takes time, so a task does it, image after image; `position` says how far it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from tidelog.broker.log_writer import LogWriter
from tidelog.broker.partition import Partition, Surroundings
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import topic_config
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.replication.registry import new_protocol
from tidelog.storage.load_report import LoadReport
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog

logger = structlog.get_logger("tidelog.broker")


class Replicas:
    """One broker's. `run` is its task; `partitions` are those that it leads and could open."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        manager: LogManager,
        surroundings: Surroundings,
        moved: Callable[[], None],
        removed: Callable[[TopicId], None],
        failed: Callable[[], None],
    ) -> None:
        """`moved` is called after each change; `removed` with each deleted topic of which nothing is left here;
        `failed` if a partition's task ended by an error that nobody foresaw."""
        self.partitions: dict[PartitionId, Partition] = {}
        self.position = 0
        """The image of this position is in force here."""
        self._node_id = node_id
        self._config = config
        self._manager = manager
        self._surroundings = surroundings
        self._log_writer: LogWriter = surroundings.log_writer
        self._moved = moved
        self._removed = removed
        self._failed = failed
        self._tasks: dict[PartitionId, asyncio.Task[None]] = {}
        self._unopened: dict[PartitionId, int] = {}
        self._image = ClusterImage("")
        self._has_news = asyncio.Event()
        self._gone: dict[TopicId, None] = {}

    def follow(self, image: ClusterImage) -> None:
        """The metadata has moved."""
        self._image = image
        self._has_news.set()

    async def run(self) -> None:
        """Brings this broker in line with each image, until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await self._come_to(self._image)

    async def _come_to(self, image: ClusterImage) -> None:
        wanted = self._led_in(image)
        for partition_id in [known for known in self.partitions if known not in wanted]:
            await self._stop(partition_id)
        for partition_id, (topic, info) in wanted.items():
            if await self._lead(partition_id, topic, info):
                await asyncio.sleep(0)
        await self._remove_deleted(image)
        self.position = image.position
        self._moved()

    def _led_in(self, image: ClusterImage) -> dict[PartitionId, tuple[Topic, PartitionInfo]]:
        return {
            PartitionId(topic.topic_id, info.partition): (topic, info)
            for topic in image.topics.values()
            for info in topic.partitions
            if info.leader == self._node_id
        }

    # -- leading -----------------------------------------------------------------------------------------------------

    async def _lead(self, partition_id: PartitionId, topic: Topic, info: PartitionInfo) -> bool:
        """Sees to it that the partition is served in this epoch; True if that took any time."""
        config = topic_config(self._config, topic.configs)
        running = self.partitions.get(partition_id)
        if running is not None and running.leader_epoch == info.leader_epoch:
            if running.config != config:
                running.reconfigure(config, log_settings(config))
            return False
        if running is not None:
            await self._stop(partition_id)
        if self._unopened.get(partition_id) == info.leader_epoch:
            return False
        log = self._log(partition_id, topic.name, config)
        if log is None:
            self._unopened[partition_id] = info.leader_epoch
            return True
        protocol = new_protocol(
            node_id=self._node_id,
            leader_epoch=info.leader_epoch,
            replicas=info.isr,
            log_end_offset=log.log_end_offset,
            is_fsynced=config.ack_durability == "fsynced",
        )
        # The replicas beyond those in sync hold nothing yet, so a default is not to count on them.
        partition = Partition(
            topic.name, partition_id, info.leader_epoch, log, protocol, config, len(info.isr), self._surroundings
        )
        self.partitions[partition_id] = partition
        self._tasks[partition_id] = asyncio.get_running_loop().create_task(
            partition.run(), name=f"partition-{partition_id}"
        )
        self._tasks[partition_id].add_done_callback(self._ended)
        return True

    def _log(self, partition_id: PartitionId, topic: str, config: TopicConfig) -> PartitionLog | None:
        log = self._manager.logs.get(partition_id)
        if log is not None:
            return log
        now_ms = self._surroundings.clock.wall_ms()
        try:
            log, report = self._manager.open_log(partition_id, log_settings(config), now_ms)
        except OSError as error:
            logger.error("partition cannot be opened", topic=topic, partition=partition_id.partition, error=str(error))
            return None
        self.report(f"{topic}-{partition_id.partition}", report)
        return log

    def report(self, name: str, report: LoadReport) -> None:
        """Tells what opening a log found."""
        self._surroundings.stats.load_findings += len(report.findings)
        for finding in report.findings:
            logger.warning("loading", log=name, finding=finding)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a partition's task failed", task=task.get_name(), exc_info=task.exception())
            self._failed()

    async def _stop(self, partition_id: PartitionId) -> None:
        """Takes no more for it; what is appended is still made durable."""
        self.partitions.pop(partition_id).close()
        task = self._tasks.pop(partition_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    # -- deleted topics ----------------------------------------------------------------------------------------------

    async def _remove_deleted(self, image: ClusterImage) -> None:
        """Removes what the metadata says is gone; at the next change of the image if the disk refuses now."""
        mine = [topic_id for topic_id, holders in image.deleted_topics.items() if self._node_id in holders]
        self._gone = {topic_id: None for topic_id in mine if topic_id in self._gone}
        left = [topic_id for topic_id in mine if topic_id not in self._gone]
        if not left:
            return
        await self._log_writer.drain()
        for topic_id in left:
            try:
                self._manager.remove_topic(topic_id)
            except (OSError, TidelogError) as error:
                logger.error("a deleted topic's data could not be removed", topic_id=topic_id, error=str(error))
            else:
                self._gone[topic_id] = None
                self._removed(topic_id)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> dict[PartitionId, int]:
        """Stops all; returns their high watermarks."""
        marks = {partition_id: partition.high_watermark for partition_id, partition in self.partitions.items()}
        for partition_id in list(self.partitions):
            await self._stop(partition_id)
        return marks


def log_settings(config: TopicConfig) -> LogSettings:
    """A topic's settings, as far as its logs are concerned."""
    return LogSettings(segment_bytes=config.segment_bytes, segment_ms=config.segment_ms)
