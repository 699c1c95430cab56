"""Records become batches: per partition one open batch, then sealed ones in order, all within one memory bound.

    send -> open batch --- full, or due (linger, hurry) ---> sealed (encoded once) --- take ---> one request

A batch is encoded when it is sealed: from then on it is bytes, neither a list of objects for the garbage collector to
walk nor an estimate for the memory bound. While open it reserves memory in steps (`steps`), so that adding a record
costs no accounting, and many partitions have room beside each other. Where partitions are few, it begins with the step
that its predecessor ended with, so a busy partition asks once per batch. When memory is short, a batch that would need
the next step is full as it is, and the fullest of those that linger are sent, until enough memory is on its way back.

Pure: no clock, no tasks. The time is an argument; waiting and sending are the shell's (`producer`, `sender`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import HEADER_BYTES, Compression
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.model.records import RecordLike
from tidelog.producer.steps import FACTOR, step_for

RECORD_OVERHEAD_BYTES = 21
"""Upper bound of a record's bytes beside key, value and headers (Kafka: `MAX_RECORD_OVERHEAD`)."""
HEADER_OVERHEAD_BYTES = 10
FEW = 4
"""Partitions are few if the first steps of all of them are no more than one part in so many of the memory."""
ON_ITS_WAY = 4
"""When memory is short, lingers end until one part in so many of it is in batches that are to be sent at once."""


class BatchReceipt(NamedTuple):
    """The broker's answer for one batch. `base_offset` is None where it does not say."""

    base_offset: int | None
    leader_epoch: int
    acked_by: tuple[int, ...]
    durability: str


class Batch:
    """Records of one partition that travel, and succeed or fail, together.

    Open: `records` grows and `room` shrinks, until the next step or the end. Sealed: `data` is the encoded batch.
    Settled: `outcome` says how it ended, and the bytes are gone. `asked` counts the records whose outcome somebody
    asked for.
    """

    __slots__ = (
        "asked",
        "created_s",
        "data",
        "due_s",
        "outcome",
        "queue",
        "record_count",
        "records",
        "reserved_bytes",
        "room",
        "watchers",
    )

    def __init__(self, queue: PartitionQueue, created_s: float, due_s: float, capacity_bytes: int) -> None:
        self.queue = queue
        self.created_s = created_s
        self.due_s = due_s
        self.reserved_bytes = capacity_bytes
        self.room = capacity_bytes - HEADER_BYTES
        self.records: list[RecordLike] = []
        self.record_count = 0
        self.data = bytearray()
        self.outcome: BatchReceipt | TidelogError | None = None
        self.watchers: list[Callable[[], None]] = []
        self.asked = 0

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back once, when the batch is settled; at once if it is."""
        if self.outcome is not None:
            callback()
        else:
            self.watchers.append(callback)

    def settle(self, outcome: BatchReceipt | TidelogError) -> None:
        """Settles the batch, exactly once, and tells everybody who watches."""
        assert self.outcome is None
        self.outcome = outcome
        self.data = bytearray()
        watchers, self.watchers = self.watchers, []
        for callback in watchers:
            callback()


class PartitionQueue:
    """The batches of one partition, oldest first: `taken` (those of the last request), `sealed`, `open`.

    Invariant: every record in `sealed` was accepted before any in `open`.
    """

    __slots__ = ("_accumulator", "open", "partition", "sealed", "step_bytes", "taken", "was_late")

    def __init__(self, partition: TopicPartition, accumulator: Accumulator) -> None:
        self.partition = partition
        self.open: Batch | None = None
        self.sealed: deque[Batch] = deque()
        self.taken: list[Batch] = []
        self.was_late = False
        """True after a try that the broker gave up waiting for, in this partition of all that travelled with it."""
        self.step_bytes = 0
        """The step that the records of the batch sealed last would have fitted in."""
        self._accumulator = accumulator

    @property
    def due_s(self) -> float | None:
        """When there will be something to send: -inf for now, None for never unless a record comes."""
        if self.sealed:
            return -math.inf
        return None if self.open is None else self.open.due_s

    @property
    def last(self) -> Batch | None:
        """The youngest batch that has no outcome; None if all have one. Once it is settled, all older ones are."""
        if self.open is not None:
            return self.open
        if self.sealed:
            return self.sealed[-1]
        return self.taken[-1] if self.taken and self.taken[-1].outcome is None else None

    @property
    def unsettled_records(self) -> int:
        """The number of records that were taken in and have no outcome yet."""
        encoded = [*self.sealed, *(batch for batch in self.taken if batch.outcome is None)]
        return sum(batch.record_count for batch in encoded) + (0 if self.open is None else len(self.open.records))

    def hurry(self, batch: Batch) -> None:
        """Ends a batch's linger. Nothing happens to one that is sealed already."""
        if batch is self.open:
            batch.due_s = -math.inf
            self._accumulator.end_linger(self)
            self._accumulator.on_ready(self)


class Accumulator:
    """All queues of a producer, their sizes and their memory.

    Where the caller `will_number` the batches that it takes (`batch_header.number`), their checksum is left to it.

    `on_ready` is called with a queue whose `due_s` may have come nearer: a batch was opened, sealed or hurried.
    """

    def __init__(
        self,
        *,
        batch_bytes: int,
        linger_s: float,
        compression: Compression,
        buffer_memory: int,
        will_number: bool = False,
        on_ready: Callable[[PartitionQueue], None],
    ) -> None:
        assert 0 < batch_bytes <= buffer_memory
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._compression = compression
        self._buffer_memory = buffer_memory
        self._will_number = will_number
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._lingering: dict[PartitionQueue, None] = {}
        """The queues with an open batch that nobody hurried, oldest first."""
        self._lingering_bytes = 0
        self.reserved_bytes = 0
        self.on_ready = on_ready

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Returns the queue of a partition, made at first use."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self)
        return queue

    def queues(self) -> list[PartitionQueue]:
        """Returns all queues, in the order of their first use."""
        return list(self._queues.values())

    def has_memory_for(self, record_bytes: int) -> bool:
        """Returns True if a batch for this record may be opened now. An empty buffer takes anything, one batch at a
        time."""
        return self.reserved_bytes + self._step_for(record_bytes) <= self._buffer_memory or not self.reserved_bytes

    def open_batch(self, queue: PartitionQueue, record_bytes: int, now_s: float) -> Batch:
        """Opens a batch with room for a record of `record_bytes`, which the caller adds before anything else runs.

        The queue must have no open batch, and the buffer memory for one.
        """
        assert queue.open is None
        capacity = self._first_step(queue, record_bytes)
        self.reserved_bytes += capacity
        batch = queue.open = Batch(queue, now_s, now_s + self._linger_s, capacity)
        self._lingering[queue] = None
        self._lingering_bytes += capacity
        self.on_ready(queue)
        return batch

    def grow(self, queue: PartitionQueue, record_bytes: int) -> bool:
        """Makes room for a record in the queue's open batch; False if the batch is full, or memory is short."""
        batch = queue.open
        assert batch is not None
        if batch.room >= record_bytes:
            return True
        needed_bytes = batch.reserved_bytes - batch.room + record_bytes
        more_bytes = step_for(needed_bytes, self._batch_bytes) - batch.reserved_bytes
        if needed_bytes > self._batch_bytes or self.reserved_bytes + more_bytes > self._buffer_memory:
            return False
        self.reserved_bytes += more_bytes
        batch.reserved_bytes += more_bytes
        batch.room += more_bytes
        if queue in self._lingering:
            self._lingering_bytes += more_bytes
        return True

    def has_due(self, now_s: float) -> bool:
        """Returns True if the oldest batch that lingers has done so for long enough."""
        oldest = next(iter(self._lingering), None)
        return oldest is not None and oldest.open is not None and oldest.open.due_s <= now_s

    def make_room(self) -> None:
        """Ends the linger of the fullest batches while memory is short, until enough is on its way; of equally full
        ones the youngest, since where partitions take turns the oldest is written to next. All go when they are due
        anyway."""
        departing_bytes = self._buffer_memory // ON_ITS_WAY
        if self.reserved_bytes - self._lingering_bytes >= departing_bytes:
            return
        lingering = [queue.open for queue in reversed(self._lingering) if queue.open is not None]
        for batch in sorted(lingering, key=_used_bytes, reverse=True):
            batch.queue.hurry(batch)
            if self.reserved_bytes - self._lingering_bytes >= departing_bytes:
                return

    def end_linger(self, queue: PartitionQueue) -> None:
        """Notes that the queue's open batch lingers no more. Doing it twice is the same as once."""
        if queue in self._lingering:
            del self._lingering[queue]
            assert queue.open is not None
            self._lingering_bytes -= queue.open.reserved_bytes

    def seal(self, queue: PartitionQueue) -> None:
        """Encodes the open batch; no record joins it any more."""
        batch = queue.open
        assert batch is not None and batch.records
        self.end_linger(queue)
        queue.open = None
        if (used := _used_bytes(batch)) * FACTOR > batch.reserved_bytes:
            queue.step_bytes = min(batch.reserved_bytes, self._batch_bytes)
        else:
            queue.step_bytes = min(step_for(used, self._batch_bytes), self._batch_bytes)
        batch.data = encode_batch(batch.records, compression=self._compression, is_final=not self._will_number)
        batch.record_count = len(batch.records)
        batch.records = []
        self.reserved_bytes += len(batch.data) - batch.reserved_bytes
        batch.reserved_bytes = len(batch.data)
        queue.sealed.append(batch)
        self.on_ready(queue)

    def due(self, queue: PartitionQueue, now_s: float) -> Batch | None:
        """Returns the oldest batch of a queue that has something to send, else None. From now on it lingers no more: it
        waits to depart, and more records may join it until then."""
        if queue.sealed:
            return queue.sealed[0]
        if queue.open is None or queue.open.due_s > now_s:
            return None
        self.end_linger(queue)
        return queue.open

    def take(self, queue: PartitionQueue, now_s: float, *, bytes_max: int, batches_max: int) -> list[Batch]:
        """Takes out the batches of the next request, oldest first: at least one if any is ready, then as many as
        fit."""
        if queue.open is not None and queue.open.due_s <= now_s:
            self.seal(queue)
        batches: list[Batch] = []
        size = 0
        while queue.sealed and len(batches) < batches_max:
            size += len(queue.sealed[0].data)
            if batches and size > bytes_max:
                break
            batches.append(queue.sealed.popleft())
        if batches:
            queue.taken = batches
        return batches

    def release(self, batch: Batch) -> None:
        """Gives a batch's memory back, when it is settled."""
        self.reserved_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        assert self.reserved_bytes >= 0

    def _first_step(self, queue: PartitionQueue, record_bytes: int) -> int:
        """Returns the size of the batch that a record opens, in bytes."""
        least_bytes = self._step_for(record_bytes)
        has_room = queue.step_bytes <= self._buffer_memory - self.reserved_bytes
        are_few = queue.step_bytes * len(self._queues) <= self._buffer_memory // FEW
        return max(least_bytes, queue.step_bytes) if has_room and are_few else least_bytes

    def _step_for(self, record_bytes: int) -> int:
        """Returns the least size of a batch that a record opens, in bytes."""
        return step_for(HEADER_BYTES + record_bytes, self._batch_bytes)


def _used_bytes(batch: Batch) -> int:
    return batch.reserved_bytes - batch.room
