"""The group coordinators on one broker: one per partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.groups.coordinator_state import CoordinatorContext
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.groups.settings import TopicsView
from tidelog.model.cluster import ClusterImage, Topic
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.model.ports import Entropy


class Host(Protocol):
    """The parts of a broker that its group coordinators need."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def partitions(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and whose logs are open."""


class Coordinators:
    """The group coordinators of one broker. `on_metadata_applied` must be called whenever the metadata or the
    partitions that the broker leads have changed."""

    def __init__(self, host: Host, context: CoordinatorContext, entropy: Entropy, failed: Callable[[], None]) -> None:
        """`failed` is called after an unforeseen exception in a task."""
        self._host = host
        self._context = context
        self._entropy = entropy
        self._tasks = RoleTasks(failed)
        self._running: dict[int, Coordinator] = {}
        self._running_tasks: dict[int, asyncio.Task[None]] = {}
        self._topics: TopicsView = {}
        self._is_closed = False

    def of(self, partition: LedPartition) -> Coordinator | None:
        """Returns the coordinator of the partition; None if there is none, or it belongs to another leader epoch than
        `partition` has."""
        coordinator = self._running.get(partition.partition)
        # By identity: a request that found its way to an earlier leadership is not answered by the coordinator of this
        # one.
        return coordinator if coordinator is not None and coordinator.partition is partition else None

    def at(self, partition: int) -> Coordinator | None:
        """Returns the coordinator of a partition of `__consumer_offsets`; None if this broker has none for it."""
        return self._running.get(partition)

    @property
    def loaded(self) -> list[Coordinator]:
        """The coordinators that have loaded their groups and answer requests."""
        return [coordinator for coordinator in self._running.values() if coordinator.is_loaded]

    def on_metadata_applied(self) -> None:
        """Stops the coordinators of partitions that this broker no longer leads, and starts those of newly led ones."""
        # A change may still be heard of while the broker stops. A coordinator begun then would have no one to end it.
        if self._is_closed:
            return
        led = self._led(self._host.image.topics.get(OFFSETS_TOPIC))
        for number, coordinator in list(self._running.items()):
            # By identity again: a broker that lost the partition and leads it anew has missed what was written in
            # between.
            if led.get(number) is not coordinator.partition:
                self._end(number)
        for number, partition in led.items():
            if number not in self._running:
                self._begin(number, partition)
        if self._running:
            self._tell_topics(self._context.view())

    def _tell_topics(self, topics: TopicsView) -> None:
        # The view stays the same object as long as names, ids and sizes do, so an election somewhere disturbs no group.
        if topics is not self._topics:
            self._topics = topics
            for coordinator in self._running.values():
                coordinator.topics_changed()

    def _led(self, topic: Topic | None) -> dict[int, LedPartition]:
        if topic is None:
            return {}
        partitions = self._host.partitions
        partitions_led = {
            info.partition: partitions.get(PartitionId(topic.topic_id, info.partition)) for info in topic.partitions
        }
        return {number: partition for number, partition in partitions_led.items() if partition is not None}

    def _begin(self, number: int, partition: LedPartition) -> None:
        coordinator = Coordinator(partition, self._context, self._entropy, self._tasks.spawn)
        self._running[number] = coordinator
        self._running_tasks[number] = self._tasks.spawn(coordinator, coordinator.run())

    def _end(self, number: int) -> asyncio.Task[None]:
        # Closed before the task is cancelled: whoever waits has to be told why, and repeats the request elsewhere.
        self._running.pop(number).close()
        task = self._running_tasks.pop(number)
        task.cancel()
        return task

    async def close(self) -> None:
        """Stops all coordinators, at the end of the broker."""
        self._is_closed = True
        ending = [self._end(number) for number in list(self._running)]
        await asyncio.gather(*ending, return_exceptions=True)
