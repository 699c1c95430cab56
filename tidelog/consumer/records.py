"""The records that a consumer hands out, and the batches of them.

A batch is a column for each field, as its bytes are decoded, so that a program that wants nothing but values gets them
without an object for each record. Records are zipped from the same columns.
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
    """A record with where it was read. `timestamp_type` is 0 for the producer's time, 1 for the broker's at append."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class OffsetAndTimestamp(NamedTuple):
    """The first record that is not older than a time asked for."""

    offset: int
    timestamp_ms: int


class OffsetAndMetadata(NamedTuple):
    """A group's committed offset in a partition: the offset of the next record to be read, and what the committer wrote
    to it."""

    offset: int
    metadata: str = ""


_consumer_record: Callable[[tuple[object, ...]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)


@dataclass(slots=True, eq=False)
class ConsumerBatch:
    """Records that stand in one batch of a partition, field by field: each of the sequences has an element a record.

    Offsets rise; where the topic is compacted they may have gaps. `timestamp_type` is that of a record.
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
    """The offset where reading goes on after the batch: the one to commit."""

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self) -> list[ConsumerRecord]:
        """Returns the same records, an object for each."""
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
        """Returns the same batch, without the first `index` records."""
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
    """Returns the records of a batch from offset `start` on. Raises as `decode_columns`."""
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
