"""The common part of all requests that produce JSON records: choosing partitions, batching, appending, and results.

One request makes one record batch per partition, appended whole or not at all. Records go to their own partition, else
to that of their key (murmur2 of the stored bytes, as in Kafka's clients), else all together to one partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.broker.face.partitions import PartitionHandle, ProduceReceipt
from tidelog.broker.http.context import Context
from tidelog.broker.http.idempotency import KeyedRequest
from tidelog.broker.http.limits import Limits
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_codec import encode_steps
from tidelog.model.batch_header import Compression, RecordBatch, parse_header
from tidelog.model.cluster import Topic
from tidelog.model.errors import (
    IdempotencyKeyReused,
    LeaderNotAvailable,
    TidelogError,
    TooLarge,
    UnknownPartition,
    UnprocessableBody,
)
from tidelog.model.partitioner import partition_for_key
from tidelog.model.records import Record
from tidelog.model.steps import Meter, Steps

KEY_COST = 4
"""Number of value bytes that take as long to process as one byte of a key, which is also hashed, at 50 us/KiB."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The acknowledgement level, deadline and idempotency key of a produce request."""

    acks: int
    deadline_s: float
    keyed: KeyedRequest | None = None


def check_record(limits: Limits, record: Record) -> None:
    """Raises `UnprocessableBody` if the key or headers are too large; the value is bounded by `max.message.bytes`."""
    if record.key is not None and len(record.key) > limits.key_bytes_max:
        raise UnprocessableBody(f"a key of {len(record.key)} bytes: at most {limits.key_bytes_max} are allowed")
    if not record.headers:
        return
    if len(record.headers) > limits.record_headers_max:
        raise UnprocessableBody(f"{len(record.headers)} headers: at most {limits.record_headers_max} are allowed")
    for name, value in record.headers:
        size = len(name.encode()) + len(value or b"")
        if size > limits.record_header_bytes_max:
            raise UnprocessableBody(f"a header of {size} bytes: at most {limits.record_header_bytes_max} are allowed")


def check_partition(topic: Topic, partition: int) -> None:
    """Raises `UnknownPartition` if the topic has no such partition."""
    if partition >= len(topic.partitions):
        raise UnknownPartition(
            f"topic {topic.name} has no partition {partition}: it has {len(topic.partitions)}, from 0 on"
        )


def stored_bytes_max(record: Record) -> int:
    """Returns an upper bound of a record's size in an uncompressed batch: each length is a varint of at most five
    bytes, the timestamp of ten.
    """
    size = 35 + len(record.key or b"") + len(record.value or b"")
    return size + sum(10 + len(name.encode()) + len(value or b"") for name, value in record.headers)


class Slot(NamedTuple):
    """A record's place: its partition, and its index in the batch for that partition."""

    partition: int
    number: int

    def offset(self, receipt: ProduceReceipt) -> int | None:
        """Returns the record's offset; None if it is not known (acks=0, or a duplicate that is not remembered)."""
        return None if receipt.base_offset is None else receipt.base_offset + self.number


class Placer:
    """Chooses the partitions for the records of one request."""

    def __init__(self, context: Context, topic: Topic, keyed: KeyedRequest | None = None) -> None:
        self._context = context
        self._topic = topic
        self._keyed = keyed
        self._unkeyed: int | None = None

    def partition_of(self, key: bytes | None, partition: int | None) -> int:
        """Returns the partition of a record: the one that it names, else that of its key, else one that is the same for
        all records of the request without either. Raises `UnknownPartition` if the named one does not exist.
        """
        if partition is not None:
            check_partition(self._topic, partition)
            return partition
        if key is not None:
            return partition_for_key(key, len(self._topic.partitions))
        if self._unkeyed is None:
            self._unkeyed = (
                self._context.rotate(self._topic)
                if self._keyed is None
                else self._keyed.choose_partition(len(self._topic.partitions))
            )
        return self._unkeyed


class Grouping:
    """The records of one request, grouped by partition, in their order."""

    def __init__(self, context: Context, topic: Topic, keyed: KeyedRequest | None) -> None:
        self._context = context
        self._topic = topic
        self._placer = Placer(context, topic, keyed)
        self._groups: dict[int, list[Record]] = {}
        self._meter = Meter()

    def is_slice_over(self, key_bytes: int, value_bytes: int) -> bool:
        """Counts the work for a record of this size. Returns True if other requests should now have their turn on the
        event loop.
        """
        return self._meter.is_over(1, KEY_COST * key_bytes + value_bytes)

    def add(self, record: Record, partition: int | None) -> Slot:
        """Adds a record to its partition's batch and returns its place. Raises `UnprocessableBody` if its key or
        headers are too large, `UnknownPartition` if the partition that it names does not exist.
        """
        check_record(self._context.limits, record)
        number = self._placer.partition_of(record.key, partition)
        group = self._groups.setdefault(number, [])
        group.append(record)
        return Slot(number, len(group) - 1)

    def batches(self) -> Steps[dict[int, list[RecordBatch]]]:
        """Returns, by partition number, a list with the one batch of each partition that has records. Raises `TooLarge`
        if a batch exceeds `max.message.bytes`.
        """
        config = config_of(self._context, self._topic)
        batches: dict[int, list[RecordBatch]] = {}
        for number, group in self._groups.items():
            batches[number] = [(yield from batch_of(config, group))]
            if len(self._groups) > 1 and self._meter.is_over(len(group), len(batches[number][0].data)):
                yield None
        return batches


def batch_of(config: TopicConfig, records: list[Record]) -> Steps[RecordBatch]:
    """Returns the records as one batch, compressed with the topic's codec. Raises `TooLarge` if it exceeds the topic's
    `max.message.bytes`.
    """
    codec = config.compression_type
    compression = Compression.NONE if codec == "producer" else Compression.from_name(codec)
    data = yield from encode_steps(records, compression)
    if len(data) > config.max_message_bytes:
        raise TooLarge(
            f"{len(records)} records for one partition make a batch of {len(data)} bytes, over max.message.bytes "
            f"({config.max_message_bytes})"
        )
    return RecordBatch(parse_header(data), memoryview(data))


def config_of(context: Context, topic: Topic) -> TopicConfig:
    """Returns the settings in force for a topic, from a handle of one of its partitions if possible, since that has
    them computed.
    """
    for info in topic.partitions:
        partition = _partition(context, topic, info.partition)
        if not isinstance(partition, LeaderNotAvailable):
            return partition.config
    return context.face.cluster.topic_config(topic.name)


async def refuse_other_content(context: Context, topic: Topic, keyed: KeyedRequest | None) -> None:
    """Raises `IdempotencyKeyReused` if any partition of the topic knows the key with other content. The other content
    may have gone to other partitions, so all are asked; partitions whose leader cannot be asked are skipped.
    """
    if keyed is None:
        return
    partitions = [_partition(context, topic, info.partition) for info in topic.partitions]
    available = [partition for partition in partitions if not isinstance(partition, LeaderNotAvailable)]
    for fingerprint in await context.face.partitions.fingerprints_of(available, keyed.producer_id):
        if isinstance(fingerprint, int) and fingerprint != keyed.fingerprint:
            raise IdempotencyKeyReused("this Idempotency-Key came with other content before; use a new key")


async def append(
    context: Context, topic: Topic, batches: dict[int, list[RecordBatch]], terms: Terms
) -> dict[int, ProduceReceipt | TidelogError]:
    """Appends the batches, which are given by partition number, and returns the receipt or the error of each partition
    by its number. Raises `UnknownTopic` or `UnknownPartition` before anything is appended.
    """
    partitions = {number: _partition(context, topic, number) for number in batches}
    appends = [_append_one(partition, batches[number], terms) for number, partition in partitions.items()]
    outcomes = [await appends[0]] if len(appends) == 1 else await asyncio.gather(*appends)
    return dict(zip(partitions, outcomes, strict=True))


def common_error(outcomes: Sequence[object]) -> TidelogError | None:
    """Returns the error if all outcomes are errors with the same code, else None."""
    first = outcomes[0]
    if isinstance(first, TidelogError) and all(
        isinstance(outcome, TidelogError) and outcome.code == first.code for outcome in outcomes
    ):
        return first
    return None


def _partition(context: Context, topic: Topic, number: int) -> PartitionHandle | LeaderNotAvailable:
    try:
        return context.face.partitions.handle(topic.name, number)
    except LeaderNotAvailable as error:
        return error


async def _append_one(
    partition: PartitionHandle | LeaderNotAvailable, batches: list[RecordBatch], terms: Terms
) -> ProduceReceipt | TidelogError:
    if isinstance(partition, LeaderNotAvailable):
        return partition
    try:
        return await partition.produce(batches, acks=terms.acks, deadline_s=terms.deadline_s, idempotency=terms.keyed)
    except TidelogError as error:
        return error
