"""The records that a consumer returns, and batches of them.

A batch has a column per field, as decoded from its bytes, so that a program that uses values only gets them without an
object per record. Records are built from the same columns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

from tidelog.model.batch_codec import decode_columns
from tidelog.model.batch_header import RecordBatch
from tidelog.model.ids import TopicPartition
from tidelog.model.records import Header


class ConsumerRecord(NamedTuple):
    """A record with its topic, partition and offset. `timestamp_type` is 0 for the producer's time, 1 for the broker's
    time of appending."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of the first record that is not older than a given time."""

    offset: int
    timestamp_ms: int


class OffsetAndMetadata(NamedTuple):
    """A group's committed offset in a partition, that of the next record to read, and the committer's metadata
    string."""

    offset: int
    metadata: str = ""


_consumer_record: Callable[[tuple[object, ...]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)


@dataclass(slots=True, eq=False)
class ConsumerBatch:
    """The records of one batch of a partition in columns: each sequence has an element per record.

    Offsets increase, with gaps in compacted topics. `timestamp_type` is 0 for the producer's time, 1 for the broker's
    time of appending.
    """

    topic: str
    partition: int
    timestamp_type: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]
    next_offset: int
    """The offset after the batch, from which reading continues: the one to commit."""

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self) -> list[ConsumerRecord]:
        """Returns the records of the batch, as an object each."""
        rows = zip(
            repeat(self.topic),
            repeat(self.partition),
            self.offsets,
            self.timestamps_ms,
            repeat(self.timestamp_type),
            self.keys,
            self.values,
            self.headers,
            strict=False,  # there is no end of what repeats
        )
        return list(map(_consumer_record, rows))

    def rest(self, index: int) -> ConsumerBatch:
        """Returns the batch without its first `index` records."""
        return ConsumerBatch(
            self.topic,
            self.partition,
            self.timestamp_type,
            self.offsets[index:],
            self.timestamps_ms[index:],
            self.keys[index:],
            self.values[index:],
            self.headers[index:],
            self.next_offset,
        )


def consumer_batch(partition: TopicPartition, batch: RecordBatch, start: int) -> ConsumerBatch:
    """Returns the records of a batch from offset `start` on. Raises `InvalidBatch` if the bytes do not match the
    batch's header, `TooLarge` if they decompress to more than the limit."""
    header = batch.header
    offsets, timestamps_ms, keys, values, headers = decode_columns(batch)
    decoded = ConsumerBatch(
        *partition,
        int(header.is_log_append_time),
        offsets,
        timestamps_ms,
        keys,
        values,
        headers,
        max(start, header.next_offset),
    )
    return decoded if start <= header.base_offset else decoded.rest(bisect_left(offsets, start))
