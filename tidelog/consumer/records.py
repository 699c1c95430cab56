"""The records that a consumer hands out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


def consumer_records(partition: TopicPartition, batch: RecordBatch, start: int) -> list[ConsumerRecord]:
    """The records of a batch from offset `start` on. Raises as `decode_columns`."""
    topic, number = partition
    kind = int(batch.header.is_log_append_time)
    rows = list(zip(*decode_columns(batch), strict=True))
    if batch.header.base_offset < start:
        rows = [row for row in rows if row[0] >= start]
    make = _consumer_record
    return [
        make((topic, number, offset, timestamp, kind, key, value, headers))
        for offset, timestamp, key, value, headers in rows
    ]
