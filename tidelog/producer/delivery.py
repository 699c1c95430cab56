"""The awaitable results of `send`, one small object per record.

A future per record would cost more than the rest of `send`. A `Delivery` is a reference to its batch and the record's
index in it; the batch has one outcome for all its records. Only an `await` creates a future, and cancelling it has no
other effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import NamedTuple

from tidelog.model.errors import TidelogError
from tidelog.producer.accumulator import Batch


class RecordMetadata(NamedTuple):
    """The position of a record in its partition, and the durability that the broker has acknowledged.

    `offset` is None with acks=0, and for a duplicate batch so old that the broker no longer knows its offset.
    `timestamp_ms` is the record's own; a topic with log-append time stores the broker's instead. `acked_by` are the ids
    of the brokers that had the record, `durability` is `fsynced`, `replicated`, `leader` or `none`.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int
    leader_epoch: int
    acked_by: tuple[int, ...]
    durability: str


class Delivery:
    """The pending result of a sent record. Awaiting it, any number of times, returns its `RecordMetadata` or raises its
    error.

    The error is definite (the record is certainly not in the log), or `DeliveryUnknown`.
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Returns True once the record has succeeded or failed."""
        return self._batch.outcome is not None

    def hurry(self) -> None:
        """Ends the linger of the record's batch: it is sent with the next request."""
        self._batch.queue.hurry(self._batch)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        self._batch.awaited += 1
        if self._batch.outcome is None:
            yield from settled(self._batch).__await__()
        return record_metadata(self._batch, self._index, self._timestamp_ms)


class Deliveries:
    """The pending results of one `send_batch`. Awaiting it returns the metadata of the records, in the order given.

    Waits until all results are known; then raises the first error, if any. Records of other batches may have been
    appended: `send` records singly to learn the result of each.
    """

    __slots__ = ("_count", "_spans", "_timestamp_ms")

    def __init__(self, spans: Sequence[tuple[Batch, int, Sequence[int]]], count: int, timestamp_ms: int) -> None:
        """Takes the records of one `send_batch` as spans, each of them in one batch. A span is the batch, the index in
        the batch of the span's first record, and the positions of the span's records among the `count` records of the
        call."""
        self._spans = spans
        self._count = count
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Returns True once all records have succeeded or failed."""
        return all(batch.outcome is not None for batch, _, _ in self._spans)

    def hurry(self) -> None:
        """Ends the linger of the batches that contain these records."""
        for batch, _, _ in self._spans:
            batch.queue.hurry(batch)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        for batch, _, positions in self._spans:
            batch.awaited += len(positions)
        for batch, _, _ in self._spans:
            if batch.outcome is None:
                yield from settled(batch).__await__()
        return self._collect()

    def _collect(self) -> list[RecordMetadata]:
        metadata: dict[int, RecordMetadata] = {}
        for batch, first, positions in self._spans:
            for index, position in enumerate(positions, first):
                metadata[position] = record_metadata(batch, index, self._timestamp_ms)
        return [metadata[position] for position in range(self._count)]


async def settled(batch: Batch) -> None:
    """Waits until the batch has succeeded or failed."""
    waiter = asyncio.get_running_loop().create_future()
    batch.watch(lambda: None if waiter.done() else waiter.set_result(None))
    await waiter


def record_metadata(batch: Batch, index: int, timestamp_ms: int) -> RecordMetadata:
    """Returns the metadata of one record of a settled batch. Raises the batch's error if it has failed."""
    outcome = batch.outcome
    assert outcome is not None
    if isinstance(outcome, TidelogError):
        raise outcome.with_traceback(None)  # one exception, many waiters: each gets its own trace
    topic, partition = batch.queue.partition
    offset = None if outcome.base_offset is None else outcome.base_offset + index
    return RecordMetadata(
        topic, partition, offset, timestamp_ms, outcome.leader_epoch, outcome.acked_by, outcome.durability
    )
