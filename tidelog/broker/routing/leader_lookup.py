"""The leader of a partition by the newest metadata, and the wait until that changes.

A broker's image lags behind the metadata log by a little, each broker's by its own. So a request may reach a broker
that leads no longer, or one that does not know yet that it leads. Neither is an error of the client's: whoever notices
waits here until the image has advanced. Nor is a log that is still on its way open. `on_metadata_applied` has to be
called after every change of the image, and when a partition's log has been opened or closed.
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
    """The part of a broker that forwarding uses."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def position_in_force(self) -> int:
        """The metadata position up to which the broker's replicas are in line with `image`."""
        ...

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and could open."""
        ...

    def is_opening(self, partition_id: PartitionId) -> bool:
        """Returns True if this broker holds a replica whose log is on its way open. Who asks waits for it."""
        ...

    @property
    def purgatory(self) -> Purgatory: ...

    def topic(self, name: str) -> Topic:
        """Raises `UnknownTopic`."""
        ...

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the settings in force for a topic. Raises `UnknownTopic`."""
        ...


class LeaderLookup:
    """The partition leaders that one broker knows."""

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
        """The position in the metadata log of this broker's image."""
        return self._host.image.position

    @property
    def position_in_force(self) -> int:
        """The metadata position up to which this broker's replicas are in line with its image."""
        return self._host.position_in_force

    @property
    def is_in_force(self) -> bool:
        """True if it leads what its image has it lead; else it is about to."""
        return self.position_in_force >= self.position

    def on_metadata_applied(self) -> None:
        """Wakes those who wait, since the image, or what is open here, has changed."""
        self._watchers.wake_all()
        for alarm in list(self._alarms):
            alarm()

    @contextmanager
    def alarmed(self, alarm: Callable[[], None]) -> Iterator[None]:
        """Calls `alarm`, which must not raise, whenever something has changed, until the context is left."""
        self._alarms[alarm] = None
        try:
            yield
        finally:
            del self._alarms[alarm]

    async def wait_until(self, is_reached: Callable[[], bool], deadline_s: float) -> None:
        """Returns when `is_reached()`, looked at whenever something has changed, or at the deadline (loop time)."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                while not is_reached():
                    await self._watchers.wait()

    def is_opening(self, topic_id: TopicId, partition: int) -> bool:
        """Returns True if this broker gets the log open, which whoever asks waits for."""
        return self._host.is_opening(PartitionId(topic_id, partition))

    async def until_opened(self, partitions: Collection[tuple[TopicId, int]], deadline_s: float) -> None:
        """Returns when each of these was seen not to be on its way open here, or at the deadline (loop time)."""
        unopened = list(reversed([*partitions]))

        def are_opened() -> bool:
            while unopened and not self.is_opening(*unopened[-1]):
                unopened.pop()
            return not unopened

        if not are_opened():
            await self.wait_until(are_opened, deadline_s)

    def find(self, topic: str, partition: int) -> tuple[Topic, PartitionInfo]:
        """Returns a partition in the image. Raises `UnknownTopic`, `UnknownPartition`."""
        described = self._host.topic(topic)
        if not 0 <= partition < len(described.partitions):
            raise UnknownPartition(
                f"topic {topic} has partitions 0 to {len(described.partitions) - 1}, but no partition {partition}"
            )
        return described, described.partitions[partition]

    def find_again(self, topic: str, topic_id: TopicId, partition: int) -> PartitionInfo:
        """Finds a topic that was looked up before, as `find` does. Raises `UnknownTopic` if it was deleted and created
        again since.
        """
        described, info = self.find(topic, partition)
        if described.topic_id != topic_id:
            raise UnknownTopic(f"topic {topic} was deleted, and created again, while this request was under way")
        return info

    def is_open(self, partition: PartitionId) -> bool:
        """Returns True if this broker leads it, in whatever epoch."""
        return partition in self._host.partitions

    def opened(self, topic: str, partition: PartitionId) -> LedPartition:
        """Returns a partition that this broker leads. Raises `NotLeader` if it is about to, `LeaderNotAvailable` if its
        log is not open."""
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
