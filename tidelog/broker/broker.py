"""A broker: the cluster image, and a runtime for every partition that it leads. No HTTP in here.

The listener calls it, the simulator calls it, and both see the same: topics are created when the metadata log has them
and their logs are open; a partition is served from `partition(...)`; `stop` leaves everything durable.

Order at start: lock the directory, open and replay the metadata log, register (which starts new leader epochs), open
the partitions' logs, remove what the metadata log says is deleted. A log that cannot be opened costs its partition,
not the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import structlog

from tidelog.broker.controller.metadata_log import LocalMetadataLog
from tidelog.broker.controller.records import (
    BrokerRegistered,
    ClusterCreated,
    ConfigsAltered,
    MetadataRecord,
    TopicDeleted,
    TopicRemoved,
)
from tidelog.broker.controller.runtime import Controller
from tidelog.broker.controller.state import (
    PRODUCER_ID_BLOCK,
    NewTopic,
    decide_add_partitions,
    decide_create_topic,
    decide_producer_ids,
    topic_named,
)
from tidelog.broker.housekeeping import Housekeeper
from tidelog.broker.log_writer import LogWriter
from tidelog.broker.partition import Partition, Surroundings
from tidelog.broker.purgatory import Purgatory
from tidelog.broker.stats import Stats
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.config.topics import is_fixed, topic_config
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import InvalidRequest, LeaderNotAvailable, TidelogError, UnknownPartition
from tidelog.model.ids import NodeId, PartitionId, ProducerId, TopicId
from tidelog.model.ports import BlockingRunner, Clock, Entropy, Files
from tidelog.replication.registry import new_protocol
from tidelog.storage.load_report import LoadReport
from tidelog.storage.log_manager import METADATA, METADATA_LOG, LogManager
from tidelog.storage.partition_log import LogSettings

OPEN_FILES_MAX = 1_024
METADATA_SETTINGS = LogSettings(segment_bytes=64 << 20, segment_ms=365 * 24 * 3_600_000, producers_max=1)
CLUSTER_ID_BYTES = 8

__all__ = ["Broker", "NewTopic"]

logger = structlog.get_logger("tidelog.broker")


class Broker:
    """One broker of a cluster. `start` before anything else; `stop` once at the end."""

    def __init__(
        self, config: BrokerConfig, files: Files, clock: Clock, entropy: Entropy, runner: BlockingRunner
    ) -> None:
        self.config = config
        self.node_id = NodeId(config.node_id)
        self.http_address: tuple[str, int] = ("127.0.0.1", 0)
        self.stats = Stats()
        self.purgatory = Purgatory()
        self.failed = asyncio.Event()
        """Set when a task of the broker died of an error that nobody foresaw; the process should stop."""
        self.is_ready = False
        self._clock = clock
        self._entropy = entropy
        self._manager = LogManager(files, open_max=OPEN_FILES_MAX, new_incarnation=lambda: entropy.token_hex(16))
        self.log_writer = LogWriter(runner, clock, self.stats)
        self._surroundings = Surroundings(clock, self.stats, self.log_writer, self.purgatory)
        self._partitions: dict[PartitionId, Partition] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._controller: Controller
        self._metadata: LocalMetadataLog
        self._producer_ids = range(0)

    # -- start and stop -------------------------------------------------------------------------------------------

    async def start(self, http_address: tuple[str, int]) -> None:
        """Opens everything and registers under the address that clients will find in the metadata.

        Raises `MetadataDamaged`, `InvalidRequest` or `OSError`: this broker cannot run; call `stop` all the same.
        """
        self.http_address = http_address
        self._spawn("log-writer", self.log_writer.run())
        self._open_metadata()
        await self._controller.submit(self._register)
        for topic in self.image.topics.values():
            for info in topic.partitions:
                self._open_partition(topic, info)
        for topic_id in self.image.deleted_topics:
            await self._remove_topic(topic_id)
        self._report_unknown_topics()
        housekeeper = Housekeeper(self._partitions, self.log_writer, self.config, self._clock)
        self._spawn("housekeeping", housekeeper.run())
        self.is_ready = True

    def _report_unknown_topics(self) -> None:
        known = [topic.topic_id for topic in self.image.topics.values()]
        for topic_id in self._manager.topic_ids():
            if topic_id not in known and topic_id not in self.image.deleted_topics:
                logger.warning("a directory belongs to no known topic; it is left alone", topic_id=topic_id)

    def _open_metadata(self) -> None:
        log, report = self._manager.open_log(METADATA_LOG, METADATA_SETTINGS, self._clock.wall_ms(), directory=METADATA)
        self._report("metadata", report)
        self._metadata = LocalMetadataLog(log, log.tail.epoch + 1, self.log_writer, self._clock)
        self._controller = Controller(self._metadata)
        self._controller.replay()

    def _register(self, image: ClusterImage) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        if not image.cluster_id:
            records.append(ClusterCreated(self._entropy.token_hex(CLUSTER_ID_BYTES)))
        elif self.node_id not in image.brokers:
            raise InvalidRequest(
                f"this data directory belongs to node {', '.join(map(str, image.brokers))} of cluster "
                f"{image.cluster_id}, not to node {self.node_id}; set node.id to match, or choose another log.dir"
            )
        host, port = self.http_address
        rack = self.config.broker_rack
        records.append(BrokerRegistered(self.node_id, self._entropy.token_hex(16), host, port, rack))
        return records

    async def stop(self) -> None:
        """Refuses new requests, commits what is appended, marks the logs clean, gives the directory back."""
        self.is_ready = False
        for partition in self._partitions.values():
            partition.close()
        if not self.failed.is_set():
            await self.log_writer.drain()
        await self._cancel(list(self._tasks))
        marks = {key: partition.high_watermark for key, partition in self._partitions.items()}
        for finding in self._manager.close(marks):
            logger.error("closing", finding=finding)

    # -- tasks ----------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks[name] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a task of the broker failed; stopping", task=task.get_name(), exc_info=task.exception())
            self.failed.set()

    async def _cancel(self, names: Iterable[str]) -> None:
        for name in names:
            task = self._tasks.pop(name)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- topics ---------------------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last applied metadata record."""
        return self._controller.image

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def clock(self) -> Clock:
        """The broker's time, for timestamps of records that came without one."""
        return self._clock

    @property
    def partitions(self) -> Mapping[PartitionId, Partition]:
        """The partitions that this broker leads and could open."""
        return self._partitions

    async def create_topic(self, request: NewTopic, *, validate_only: bool = False) -> Topic:
        """Creates a topic; its partitions serve when this returns. Raises `InvalidRequest`, or as the metadata log."""
        topic_config(self.config, request.configs)
        partitions = self.config.num_partitions if request.partitions is None else request.partitions
        factor = request.replication_factor
        topic_id = TopicId(self._entropy.token_hex(16))

        def decide(image: ClusterImage) -> list[MetadataRecord]:
            default = self.config.replication_factor_for(len(image.brokers))
            return [
                decide_create_topic(
                    image,
                    request,
                    topic_id,
                    partitions=partitions,
                    replication_factor=default if factor is None else factor,
                )
            ]

        if validate_only:
            return self._controller.preview(decide).topics[request.name]
        image = await self._controller.submit(decide)
        topic = image.topics[request.name]
        await self._open_topic(topic)
        return topic

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic and its data. Raises `UnknownTopic`, `InvalidRequest` if deletion is turned off."""
        if not self.config.delete_topic_enable:
            raise InvalidRequest("topics cannot be deleted here: delete.topic.enable is false")
        topic_id = self.topic(name).topic_id
        await self._controller.submit(lambda image: [TopicDeleted(topic_named(image, name).topic_id)])
        await self._remove_topic(topic_id)

    async def add_partitions(self, name: str, total: int) -> Topic:
        """Grows a topic to `total` partitions. Raises `UnknownTopic`, `InvalidRequest`."""
        image = await self._controller.submit(lambda image: [decide_add_partitions(image, name, total)])
        await self._open_topic(image.topics[name])
        return image.topics[name]

    async def remove_broker(self, node_id: NodeId) -> None:
        """Unregisters a broker for good. Raises `InvalidRequest` as long as it has what others need."""
        raise InvalidRequest(f"broker {node_id} is the only one of its cluster; stop it and remove its data instead")

    async def alter_topic_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets overrides of a topic, or takes them back (None). Raises `UnknownTopic`, `InvalidRequest`."""

        def decide(image: ClusterImage) -> list[MetadataRecord]:
            topic = topic_named(image, name)
            merged: dict[str, str | None] = {**topic.configs, **changes}
            topic_config(self.config, {key: value for key, value in merged.items() if value is not None})
            fixed = [key for key in changes if is_fixed(key)]
            if fixed:
                raise InvalidRequest(f"{fixed[0]} is fixed when a topic is created")
            return [ConfigsAltered(topic.topic_id, dict(changes))] if changes else []

        if validate_only:
            self._controller.preview(decide)
            return
        image = await self._controller.submit(decide)
        config = self._config_of(image.topics[name])
        for info in image.topics[name].partitions:
            partition = self._partitions.get(PartitionId(image.topics[name].topic_id, info.partition))
            if partition is not None:
                partition.reconfigure(config, _log_settings(config))

    def topic(self, name: str) -> Topic:
        """Raises `UnknownTopic`."""
        return topic_named(self.image, name)

    def topic_config(self, name: str) -> TopicConfig:
        """The settings in force for a topic. Raises `UnknownTopic`."""
        return self._config_of(self.topic(name))

    def _config_of(self, topic: Topic) -> TopicConfig:
        return topic_config(self.config, topic.configs)

    async def allocate_producer_id(self) -> ProducerId:
        """An id that nobody else has, nor will have. Raises as the metadata log."""
        if not self._producer_ids:
            image = await self._controller.submit(lambda image: [decide_producer_ids(image)])
            self._producer_ids = range(image.next_producer_id - PRODUCER_ID_BLOCK, image.next_producer_id)
        allocated, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(allocated)

    # -- partitions -----------------------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int) -> Partition:
        """The runtime of a partition. Raises `UnknownTopic`, `UnknownPartition`, `LeaderNotAvailable`."""
        described = self.topic(topic)
        if not 0 <= partition < len(described.partitions):
            raise UnknownPartition(
                f"topic {topic} has partitions 0 to {len(described.partitions) - 1}, but no partition {partition}"
            )
        found = self._partitions.get(PartitionId(described.topic_id, partition))
        if found is None:
            raise LeaderNotAvailable(f"partition {topic}-{partition} is not available on its leader now; try again")
        return found

    async def _open_topic(self, topic: Topic) -> None:
        for info in topic.partitions:
            if PartitionId(topic.topic_id, info.partition) not in self._partitions:
                self._open_partition(topic, info)
                await asyncio.sleep(0)

    def _open_partition(self, topic: Topic, info: PartitionInfo) -> None:
        partition_id = PartitionId(topic.topic_id, info.partition)
        config = self._config_of(topic)
        try:
            log, report = self._manager.open_log(partition_id, _log_settings(config), self._clock.wall_ms())
        except OSError as error:
            logger.error("partition cannot be opened", topic=topic.name, partition=info.partition, error=str(error))
            return
        self._report(f"{topic.name}-{info.partition}", report)
        protocol = new_protocol(
            node_id=self.node_id,
            leader_epoch=info.leader_epoch,
            replicas=info.replicas,
            log_end_offset=log.log_end_offset,
            is_fsynced=config.ack_durability == "fsynced",
        )
        partition = Partition(
            topic.name,
            partition_id,
            info.leader_epoch,
            log,
            protocol,
            config,
            len(info.replicas),
            self._surroundings,
        )
        self._partitions[partition_id] = partition
        self._spawn(f"partition-{partition_id}", partition.run())

    def _report(self, name: str, report: LoadReport) -> None:
        self.stats.load_findings += len(report.findings)
        for finding in report.findings:
            logger.warning("loading", log=name, finding=finding)

    async def _remove_topic(self, topic_id: TopicId) -> None:
        """Closes and removes a deleted topic's logs; at the next start if the disk refuses now."""
        gone = [key for key in self._partitions if key.topic_id == topic_id]
        for key in gone:
            self._partitions[key].close()
        await self.log_writer.drain()
        for key in gone:
            await self._cancel([f"partition-{key}"])
            del self._partitions[key]
        try:
            self._manager.remove_topic(topic_id)
            await self._controller.submit(lambda image: [TopicRemoved(topic_id)])
        except (OSError, TidelogError) as error:
            logger.error("a deleted topic's data could not be removed", topic_id=topic_id, error=str(error))


def _log_settings(config: TopicConfig) -> LogSettings:
    return LogSettings(segment_bytes=config.segment_bytes, segment_ms=config.segment_ms)
