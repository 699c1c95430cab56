"""A `View` of partitions that a test fills, cuts and deletes."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model.ids import TopicPartition
from tidelog.spark.options import Selection
from tidelog.spark.view import Extent, Snapshot


class Lake:
    """Topics with ids; records have their offset as their timestamp, and a size of their partition's."""

    def __init__(self) -> None:
        self.extents: dict[TopicPartition, Extent] = {}
        self.ids: dict[str, str] = {}
        self.sizes: dict[TopicPartition, float] = {}
        self.looks = 0
        self.waits = 0
        self.arrives: dict[TopicPartition, int] = {}
        """What is written while somebody waits."""

    def create(self, topic: str, *ends: int, topic_id: str = "1") -> None:
        self.drop(topic)
        self.ids[topic] = f"{topic}-{topic_id}"
        for number, end in enumerate(ends):
            self.extents[TopicPartition(topic, number)] = Extent(0, end)

    def drop(self, topic: str) -> None:
        self.ids.pop(topic, None)
        self.extents = {one: extent for one, extent in self.extents.items() if one.topic != topic}

    def write(self, topic: str, partition: int, count: int) -> None:
        one = TopicPartition(topic, partition)
        extent = self.extents.get(one, Extent(0, 0))
        self.extents[one] = extent._replace(end=extent.end + count)

    def delete(self, topic: str, partition: int, below: int) -> None:
        one = TopicPartition(topic, partition)
        self.extents[one] = self.extents[one]._replace(start=below)

    def snapshot(self, selection: Selection, at_least: Mapping[TopicPartition, int]) -> Snapshot:
        self.looks += 1
        extents = {
            one: extent
            for one, extent in self.extents.items()
            if selection.wants_topic(one.topic) and one.partition in selection.partitions_of(one.topic, 100)
        }
        return Snapshot(extents, {topic: self.ids[topic] for topic in self.ids if selection.wants_topic(topic)})

    def first_since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {
            one: None if time_ms >= self.extents[one].end else max(time_ms, self.extents[one].start)
            for one, time_ms in timestamps_ms.items()
        }

    def record_bytes(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        return {one: self.sizes[one] for one in positions}

    def wait_for_records(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        self.waits += 1
        for one, count in self.arrives.items():
            self.write(one.topic, one.partition, count)
        self.arrives = {}
