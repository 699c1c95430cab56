"""Partitioning of records: by the caller's choice, by the key's hash, or sticky.

Keys are hashed as in all Kafka clients (murmur2), so that all producers agree. Records without a key fill one
partition's batch before moving to the next ("sticky", KIP-480): batches get full, and over time all partitions get the
same share, since they take turns.

Pure.
"""

from __future__ import annotations

from tidelog.model.errors import UnknownPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.producer.accumulator import PartitionQueue

KEYS_REMEMBERED = 10_000


class TopicRoute:
    """The queues of one topic by partition; `sticky` is the current queue for records without a key."""

    __slots__ = ("_available", "_by_key", "_queues", "_turn", "sticky", "topic")

    def __init__(self, topic: str, queues: list[PartitionQueue], available: list[int], first: int) -> None:
        """`available`: partitions with a leader, for records without a key; `first` selects the first sticky
        partition."""
        assert queues
        self.topic = topic
        self._queues = queues
        self._available = available or list(range(len(queues)))
        self._turn = first % len(self._available)
        self._by_key: dict[bytes, PartitionQueue] = {}
        self.sticky = queues[self._available[self._turn]]

    def at(self, partition: int) -> PartitionQueue:
        """Returns the queue of a given partition. Raises `UnknownPartition`."""
        if not 0 <= partition < len(self._queues):
            raise UnknownPartition(f"topic {self.topic!r} has {len(self._queues)} partitions, and no {partition}")
        return self._queues[partition]

    def for_key(self, key: bytes) -> PartitionQueue:
        """Returns the queue for a key. Recent results are cached, since hashing costs more than the rest of `send`."""
        queue = self._by_key.get(key)
        if queue is None:
            if len(self._by_key) >= KEYS_REMEMBERED:
                self._by_key.clear()
            queue = self._by_key[key] = self._queues[partition_for_key(key, len(self._queues))]
        return queue

    def advance(self) -> None:
        """Moves to the next sticky partition, after the present one's batch was closed."""
        self._turn = (self._turn + 1) % len(self._available)
        self.sticky = self._queues[self._available[self._turn]]
