"""The partition of a record: the caller's, its key's, or the sticky one.

Keys are hashed as all Kafka clients hash them (murmur2), so that every producer agrees. Records without a key fill one
partition's batch before moving to the next ("sticky", KIP-480): batches get full, and over time all partitions get
the same share, since the turn goes round.

Pure.
"""

from __future__ import annotations

from tidelog.model.errors import UnknownPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.producer.accumulator import PartitionQueue

KEYS_REMEMBERED = 10_000


class TopicRoute:
    """The queues of one topic, by partition; `sticky` is where records without a key go at the moment."""

    __slots__ = ("_available", "_by_key", "_queues", "_turn", "sticky", "topic")

    def __init__(self, topic: str, queues: list[PartitionQueue], available: list[int], first: int) -> None:
        """`available`: partitions with a leader, for records without a key; `first` picks where to begin."""
        assert queues
        self.topic = topic
        self._queues = queues
        self._available = available or list(range(len(queues)))
        self._turn = first % len(self._available)
        self._by_key: dict[bytes, PartitionQueue] = {}
        self.sticky = queues[self._available[self._turn]]

    def at(self, partition: int) -> PartitionQueue:
        """Returns the queue of a partition named by the caller. Raises `UnknownPartition`."""
        if not 0 <= partition < len(self._queues):
            raise UnknownPartition(f"topic {self.topic!r} has {len(self._queues)} partitions, and no {partition}")
        return self._queues[partition]

    def for_key(self, key: bytes) -> PartitionQueue:
        """Returns the queue of a key. Hashing costs more than all else in `send`, so recent answers are kept."""
        queue = self._by_key.get(key)
        if queue is None:
            if len(self._by_key) >= KEYS_REMEMBERED:
                self._by_key.clear()
            queue = self._by_key[key] = self._queues[partition_for_key(key, len(self._queues))]
        return queue

    def advance(self) -> None:
        """Moves the sticky partition on: its batch is full or gone."""
        self._turn = (self._turn + 1) % len(self._available)
        self.sticky = self._queues[self._available[self._turn]]
