"""The state of the cluster as a query's driver sees it: partitions, their ends and leaders.

`View` is the interface for planning; `ClusterView` implements it for a real cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import quote

from tidelog.model.errors import LeaderNotAvailable, TidelogError, UnknownPartition, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.spark.cluster import Cluster, Patience
from tidelog.spark.options import Selection
from tidelog.transport.metadata import ClusterMetadata
from tidelog.transport.offsets import OffsetQuery, PartitionOffsets

SETTLE_S = 5.0
"""Seconds to wait if a partition's end is lower than before: a newly elected leader may not yet know all committed
records."""
SAMPLE_BYTES = 64 << 10


class Extent(NamedTuple):
    """The offsets of the first committed record of a partition, and after the last one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the partitions that a query reads, at one moment; partitions of missing topics are left out."""

    extents: Mapping[TopicPartition, Extent] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Base URLs of the leaders; partitions without a leader are left out."""

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end offset of each partition."""
        return {partition: extent.end for partition, extent in self.extents.items()}


class View(Protocol):
    """The interface to the cluster for planning. Every method retries for the query's timeout, and then raises the last
    error."""

    def snapshot(self, selection: Selection, at_least: Mapping[TopicPartition, int]) -> Snapshot:
        """Returns the state of all selected partitions. If an end is below `at_least`, retries for a while before
        returning it."""

    def first_since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Returns the first offset with that time or a later one in each partition; None if there is none."""

    def record_bytes(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Returns the approximate stored bytes per record at these positions, by partition."""

    def wait_for_records(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Returns when the end of one of these partitions changes, or after `wait_ms`."""


class ClusterView:
    """The state of a real cluster, over HTTP."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def snapshot(self, selection: Selection, at_least: Mapping[TopicPartition, int]) -> Snapshot:
        """Returns the state of all selected partitions. If an end is below `at_least`, retries for a while before
        returning it."""
        patience, settling = self._cluster.patience(), Patience(min(SETTLE_S, self._cluster.timeout_s))
        while True:
            try:
                snapshot = self._look(selection)
            except LeaderNotAvailable as error:
                patience.pause(error)
                continue
            behind = [
                partition for partition, extent in snapshot.extents.items() if extent.end < at_least.get(partition, 0)
            ]
            if not behind:
                return snapshot
            try:
                settling.pause(LeaderNotAvailable(f"{behind[0]} ends before what was read of it"))
            except LeaderNotAvailable:
                return snapshot

    def first_since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Returns the first offset with that time or a later one in each partition; None if there is none."""
        queries = [OffsetQuery(*partition, timestamp=time_ms) for partition, time_ms in timestamps_ms.items()]
        return {entry.key: entry.offset for entry in self._offsets(queries)}

    def record_bytes(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Returns the approximate stored bytes per record of the batches at these positions, by partition."""
        return {partition: self._sample(partition, offset) for partition, offset in positions.items()}

    def wait_for_records(self, ends: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Returns when the end of one of these partitions changes, or after `wait_ms`."""
        if ends:
            queries = [OffsetQuery(*partition, high_watermark=end) for partition, end in ends.items()]
            self._cluster.offsets(queries, wait_ms=wait_ms)

    def _look(self, selection: Selection) -> Snapshot:
        metadata = self._cluster.metadata(selection.named)
        topics = [topic for topic in metadata.topics if not topic.is_internal and selection.wants_topic(topic.name)]
        queries = [
            OffsetQuery(topic.name, number)
            for topic in topics
            for number in selection.partitions_of(topic.name, len(topic.partitions))
        ]
        extents = {entry.key: Extent(*entry.extent()) for entry in self._offsets(queries)} if queries else {}
        return Snapshot(extents, {topic.name: topic.topic_id for topic in topics}, _leaders(metadata))

    def _offsets(self, queries: list[OffsetQuery]) -> list[PartitionOffsets]:
        """Fetches offsets, with retries while an entry has a transient error. Raises `LeaderNotAvailable` for a deleted
        topic, so that the caller looks again."""
        patience = self._cluster.patience()
        while True:
            entries = self._cluster.offsets(queries)
            error = next((entry.error for entry in entries if entry.error is not None), None)
            if error is None:
                return entries
            if isinstance(error, (UnknownTopic, UnknownPartition)):
                raise LeaderNotAvailable(error.message)
            if error.definite and not error.retriable:
                raise error
            patience.pause(error)

    def _sample(self, partition: TopicPartition, offset: int) -> float:
        from tidelog.model.batch_header import iter_batches  # noqa: PLC0415 - few queries take samples

        path = f"/topics/{quote(partition.topic, safe='')}/partitions/{partition.partition}/batches"
        try:
            data = self._cluster.call("GET", f"{path}?offset={offset}&max_bytes={SAMPLE_BYTES}")
        except TidelogError:
            return 1.0  # out of range, or gone: whoever reads it says so
        headers = [batch.header for batch in iter_batches(data)]
        records = sum(header.record_count for header in headers)
        return max(1.0, sum(header.size for header in headers) / records) if records else 1.0


def _leaders(metadata: ClusterMetadata) -> dict[TopicPartition, str]:
    addresses = {broker.node_id: broker.address for broker in metadata.brokers}
    return {
        TopicPartition(topic.name, partition.partition): addresses[partition.leader]
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader in addresses
    }
