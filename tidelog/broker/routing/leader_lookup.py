"""Finds the leader of a partition in this broker's metadata, and waits until the metadata change.

The metadata that a broker has applied lag a little behind the metadata log. So a request may reach a broker that does
not lead any more, or that does not know yet that it leads. Neither is an error of the client: the request waits here
until the metadata have advanced. It waits as well for a log that is being opened. `on_metadata_applied` has to be
called after every metadata change, and when a partition's log was opened or closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.errors import LeaderNotAvailable, NotLeader, UnknownPartition, UnknownTopic
from tidelog.model.ids import NodeId, PartitionId, TopicId


class Host(Protocol):
    """The broker, as far as routing uses it."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def position_in_force(self) -> int:
        """The metadata position up to which the broker's replicas have been changed to match `image`."""

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and whose logs are open."""

    def is_opening(self, partition_id: PartitionId) -> bool:
        """Returns True if this broker has a replica whose log is being opened, so that requests should wait for it."""

    @property
    def purgatory(self) -> Purgatory: ...

    def topic(self, name: str) -> Topic:
        """Returns a topic of the metadata image. Raises `UnknownTopic`."""

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the settings in force for a topic. Raises `UnknownTopic`."""


class LeaderLookup:
    """Look-up of partition leaders in one broker's metadata image."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._watchers = Watchers()
        self._alarms: dict[Callable[[], None], None] = {}

    @property
    def node_id(self) -> int:
        """The node id of this broker."""
        return self._host.node_id

    @property
    def position(self) -> int:
        """The metadata log position that this broker's image has reached."""
        return self._host.image.position

    @property
    def position_in_force(self) -> int:
        """The metadata position up to which this broker's replicas have been changed to match its image."""
        return self._host.position_in_force

    @property
    def is_in_force(self) -> bool:
        """True if this broker's replicas match its image, so that it leads all that the image has it lead."""
        return self.position_in_force >= self.position

    def on_metadata_applied(self) -> None:
        """Wakes all waiting requests after a change of the image, or after a log was opened or closed here."""
        self._watchers.wake_all()
        for alarm in list(self._alarms):
            alarm()

    @contextmanager
    def alarmed(self, alarm: Callable[[], None]) -> Iterator[None]:
        """Has `alarm`, which must not raise, called after every change of the image or of the open logs, until the
        context exits.
        """
        self._alarms[alarm] = None
        try:
            yield
        finally:
            del self._alarms[alarm]

    async def wait_until(self, is_reached: Callable[[], bool], deadline_s: float) -> None:
        """Waits until `is_reached()` is true, checked after every change of the image or of the open logs, or until the
        deadline (loop time).
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                while not is_reached():
                    await self._watchers.wait()

    def is_opening(self, topic_id: TopicId, partition: int) -> bool:
        """Returns True if this broker is opening the partition's log, so that requests should wait for it."""
        return self._host.is_opening(PartitionId(topic_id, partition))

    async def until_opened(self, partitions: Collection[tuple[TopicId, int]], deadline_s: float) -> None:
        """Waits until none of these partitions' logs is being opened on this broker, or until the deadline (loop
        time).
        """
        unopened = list(reversed([*partitions]))

        def are_opened() -> bool:
            while unopened and not self.is_opening(*unopened[-1]):
                unopened.pop()
            return not unopened

        if not are_opened():
            await self.wait_until(are_opened, deadline_s)

    def find(self, topic: str, partition: int) -> tuple[Topic, PartitionInfo]:
        """Returns a topic and one of its partitions from the image. Raises `UnknownTopic`, `UnknownPartition`."""
        described = self._host.topic(topic)
        if not 0 <= partition < len(described.partitions):
            raise UnknownPartition(
                f"topic {topic} has partitions 0 to {len(described.partitions) - 1}, but no partition {partition}"
            )
        return described, described.partitions[partition]

    def find_again(self, topic: str, topic_id: TopicId, partition: int) -> PartitionInfo:
        """Returns a partition of a topic that was looked up before. Raises `UnknownTopic` if the topic was deleted
        since, even if it was created again; `UnknownPartition` if the topic does not have the partition.
        """
        described, info = self.find(topic, partition)
        if described.topic_id != topic_id:
            raise UnknownTopic(f"topic {topic} was deleted, and created again, while this request was under way")
        return info

    def is_open(self, partition: PartitionId) -> bool:
        """Returns True if this broker leads the partition, in any epoch, and has its log open."""
        return partition in self._host.partitions

    def opened(self, topic: str, partition: PartitionId) -> LedPartition:
        """Returns a partition that the image has this broker lead. Raises `NotLeader` if this broker's replicas do not
        match the image yet, `LeaderNotAvailable` if they do and the log is not open.
        """
        led = self._host.partitions.get(partition)
        if led is None and not self.is_in_force:
            raise NotLeader(f"broker {self.node_id} does not lead {topic}-{partition.partition} yet; try again")
        if led is None:
            raise LeaderNotAvailable(
                f"partition {topic}-{partition.partition} is not available on its leader now; try again"
            )
        return led

    def config(self, topic: str) -> TopicConfig:
        """Returns the settings in force for a topic. Raises `UnknownTopic`."""
        return self._host.topic_config(topic)
