"""The results of `send`: a promise per record that costs a few words, because its batch holds the rest.

A future per record would cost more than all else that `send` does. A `Delivery` is a pointer to its batch and a
number in it; the batch has one outcome for all its records. Only somebody who waits pays for a future, and cancelling
that wait cancels nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import NamedTuple

from tidelog.model.errors import TidelogError
from tidelog.producer.accumulator import Batch


class RecordMetadata(NamedTuple):
    """The place of a record in its partition, and what was guaranteed when the broker said so.

    `offset` is None with acks=0, and for a repeated batch so old that the broker only knows it has it.
    `timestamp_ms` is the record's own; a topic with log-append time stores the broker's instead. `acked_by` are the
    node ids that had the record, `durability` how well (`fsynced`, `replicated`, `leader`, `none`).
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int
    leader_epoch: int
    acked_by: tuple[int, ...]
    durability: str


class Delivery:
    """A record on its way. `await` it, as often as you like, for its `RecordMetadata` or the error.

    Raises what the record failed with: a definite error (it is surely not in the log), or `DeliveryUnknown`.
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Returns True once the outcome is known."""
        return self._batch.outcome is not None

    def hurry(self) -> None:
        """Ends the linger of the record's batch: it goes out with the next request."""
        self._batch.queue.hurry(self._batch)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        self._batch.asked += 1
        if self._batch.outcome is None:
            yield from settled(self._batch).__await__()
        return record_metadata(self._batch, self._index, self._timestamp_ms)


class Deliveries:
    """The records of one `send_batch`. `await` it for their metadata, in the order they were given.

    Waits until all outcomes are known; then raises the first error, if any. Records of other batches may well have
    been appended: `send` them one by one to know each one's fate.
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
        """Returns True once all outcomes are known."""
        return all(batch.outcome is not None for batch, _, _ in self._spans)

    def hurry(self) -> None:
        """Ends the linger of all batches concerned."""
        for batch, _, _ in self._spans:
            batch.queue.hurry(batch)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        for batch, _, positions in self._spans:
            batch.asked += len(positions)
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
    """Waits until a batch's outcome is known."""
    waiter = asyncio.get_running_loop().create_future()
    batch.watch(lambda: None if waiter.done() else waiter.set_result(None))
    await waiter


def record_metadata(batch: Batch, index: int, timestamp_ms: int) -> RecordMetadata:
    """Returns the metadata of one record of a batch whose outcome is known. Raises the error if the batch has
    failed."""
    outcome = batch.outcome
    assert outcome is not None
    if isinstance(outcome, TidelogError):
        raise outcome.with_traceback(None)  # one exception, many waiters: each gets its own trace
    topic, partition = batch.queue.partition
    offset = None if outcome.base_offset is None else outcome.base_offset + index
    return RecordMetadata(
        topic, partition, offset, timestamp_ms, outcome.leader_epoch, outcome.acked_by, outcome.durability
    )
