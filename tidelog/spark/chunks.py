"""Grouping of a task's records into chunks: each becomes one record batch of one partition.

The partition of a record and the end of a chunk follow from the preceding records only, not from timing or from the
brokers' speed. So a repeated task makes the same chunks (see `identity`).

A record goes to its given partition, or to its key's, as with every Kafka client. Without either it goes to one
partition that changes when its chunk is full; the first of these is drawn from the task's identity, so that tasks
spread. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import xxhash

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.model.partitioner import partition_for_key
from tidelog.spark.identity import Row
from tidelog.spark.sink_rows import SinkRow

CHUNK_BYTES = 512 << 10
CHUNK_RECORDS = 10_000
RECORD_OVERHEAD_BYTES = 24
KEYS_REMEMBERED = 100_000


@dataclass(slots=True)
class Chunk:
    """Records of one partition that are appended together. `position` is the chunk's number among those of the task in
    that partition. If the first 300 rows of chunk 7 were appended already, its other rows are a chunk with
    the position `7+300`."""

    partition: TopicPartition
    position: str
    rows: list[Row] = field(default_factory=list)
    size: int = 0
    cuts: list[int] = field(default_factory=list)
    """The row counts at which an attempt may have ended early: the rows in the chunk at the end of each Arrow batch."""

    def first(self, count: int) -> Chunk:
        """Returns a chunk of the first `count` rows, at the same position."""
        return Chunk(self.partition, self.position, self.rows[:count])

    def after(self, count: int) -> Chunk:
        """Returns a chunk of the rows after the first `count`."""
        cuts = [cut - count for cut in self.cuts if cut > count]
        return Chunk(self.partition, f"{self.position}+{count}", self.rows[count:], cuts=cuts)


class Chunker:
    """Groups the records of one task into chunks. `partitions` is the number of partitions of each topic."""

    def __init__(self, partitions: Mapping[str, int], scope: str) -> None:
        self._partitions, self._scope = partitions, scope
        self._open: dict[TopicPartition, Chunk] = {}
        self._numbers: dict[TopicPartition, int] = {}
        self._sticky: dict[str, int] = {}
        self._keys: dict[tuple[str, bytes], int] = {}

    def add(self, row: SinkRow) -> Chunk | None:
        """Adds a record; returns its chunk if that is full now, else None. Raises `InvalidRequest` for a partition that
        does not exist."""
        partition = TopicPartition(row.topic, self._partition_of(row))
        chunk = self._open.get(partition)
        if chunk is None:
            number = self._numbers.get(partition, 0)
            self._numbers[partition] = number + 1
            chunk = self._open[partition] = Chunk(partition, str(number))
        chunk.rows.append((row.timestamp_ms, row.key, row.value, row.headers))
        chunk.size += RECORD_OVERHEAD_BYTES + len(row.key or b"") + len(row.value or b"")
        if row.headers:
            chunk.size += sum(len(name) + len(content or b"") + 10 for name, content in row.headers)
        if chunk.size < CHUNK_BYTES and len(chunk.rows) < CHUNK_RECORDS:
            return None
        del self._open[partition]
        if self._sticky.get(row.topic) == partition.partition:
            self._sticky[row.topic] = (partition.partition + 1) % self._partitions[row.topic]
        return chunk

    def end_of_batch(self) -> None:
        """Stores the end of an Arrow batch in `Chunk.cuts`, since an earlier attempt may have ended there."""
        for chunk in self._open.values():
            if not chunk.cuts or chunk.cuts[-1] < len(chunk.rows):
                chunk.cuts.append(len(chunk.rows))

    def rest(self) -> list[Chunk]:
        """Returns the chunks that are not full, after the last record."""
        chunks = [self._open[partition] for partition in sorted(self._open)]
        self._open = {}
        return chunks

    def _partition_of(self, row: SinkRow) -> int:
        count = self._partitions[row.topic]
        if row.partition is not None:
            if not 0 <= row.partition < count:
                raise InvalidRequest(f"topic {row.topic!r} has {count} partitions, and no {row.partition}")
            return row.partition
        if row.key is None:
            if row.topic not in self._sticky:
                self._sticky[row.topic] = xxhash.xxh3_64_intdigest(self._scope.encode()) % count
            return self._sticky[row.topic]
        partition = self._keys.get((row.topic, row.key))
        if partition is None:
            if len(self._keys) >= KEYS_REMEMBERED:
                self._keys.clear()
            partition = self._keys[row.topic, row.key] = partition_for_key(row.key, count)
        return partition
