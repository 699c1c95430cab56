"""Records become batches: per partition one open batch and a queue of sealed ones, within one memory bound.

    send -> open batch --- full, or due (linger, hurry) ---> sealed (encoded once) --- take ---> one request

Sealing encodes a batch: it is then bytes, neither objects for the garbage collector nor an estimate for the memory
bound. An open batch reserves memory in steps (`steps`), so that adding a record needs no accounting, and many
partitions have room. With few partitions, a batch starts at the step that its predecessor ended with, so a busy
partition reserves once per batch. When memory is short, a batch that would need the next step is sealed instead, and
the fullest lingering batches are sent, until enough memory is about to be freed.

Pure: no clock, no tasks. The time is an argument; `producer` and `sender` wait and send.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
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
"""Partitions count as few if the first steps of all of them are at most a fraction 1/`FEW` of the memory."""
ON_ITS_WAY = 4
"""When memory is short, lingers end until a fraction 1/`ON_ITS_WAY` of it is in batches to be sent at once."""


class BatchReceipt(NamedTuple):
    """A broker's response for one batch. `base_offset` is None where the broker does not return it."""

    base_offset: int | None
    leader_epoch: int
    acked_by: tuple[int, ...]
    durability: str


class Batch:
    """Records of one partition that are sent, and succeed or fail, together.

    Open: `records` grows and `room`, the remaining reserved bytes, shrinks. Sealed: `data` is the encoded batch.
    Settled: `outcome` is the result, and the bytes are freed. `awaited` counts the records whose result is awaited.
    """

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
        self.awaited = 0

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once when the batch is settled; at once if it already is."""
        if self.outcome is not None:
            callback()
        else:
            self.watchers.append(callback)

    def settle(self, outcome: BatchReceipt | TidelogError) -> None:
        """Stores the outcome of the batch, exactly once, and calls the callbacks of `watch`."""
        assert self.outcome is None
        self.outcome = outcome
        self.data = bytearray()
        watchers, self.watchers = self.watchers, []
        for callback in watchers:
            callback()


class PartitionQueue:
    """The batches of one partition, oldest first: `taken` (in the request in flight), `sealed`, `open`.

    Invariant: every record in `sealed` was accepted before any in `open`.
    """

    __slots__ = ("_accumulator", "open", "partition", "sealed", "step_bytes", "taken", "was_late")

    def __init__(self, partition: TopicPartition, accumulator: Accumulator) -> None:
        self.partition = partition
        self.open: Batch | None = None
        self.sealed: deque[Batch] = deque()
        self.taken: list[Batch] = []
        self.was_late = False
        """True if the last attempt failed with an unknown outcome for this partition itself, for example a timeout at
        the broker, and not for the whole request. Its next attempt gets a request of its own."""
        self.step_bytes = 0
        """The memory step, in bytes, that would have held the records of the last sealed batch."""
        self._accumulator = accumulator

    @property
    def due_s(self) -> float | None:
        """The time at which a batch may be sent: -inf for now, None if there is no batch."""
        if self.sealed:
            return -math.inf
        return None if self.open is None else self.open.due_s

    @property
    def last(self) -> Batch | None:
        """The newest batch without an outcome; None if all have one. Batches of a partition are settled in order."""
        if self.open is not None:
            return self.open
        if self.sealed:
            return self.sealed[-1]
        return self.taken[-1] if self.taken else None

    @property
    def unsettled_records(self) -> int:
        """The number of accepted records without an outcome."""
        encoded = [*self.sealed, *(batch for batch in self.taken if batch.outcome is None)]
        return sum(batch.record_count for batch in encoded) + (0 if self.open is None else len(self.open.records))

    def hurry(self, batch: Batch) -> None:
        """Ends the linger of an open batch; no effect on a sealed one."""
        if batch is self.open:
            batch.due_s = -math.inf
            self._accumulator.end_linger(self)
            self._accumulator.on_ready(self)


@dataclass(eq=False, kw_only=True)
class Accumulator:
    """All partition queues of a producer, and their memory.

    With `will_number`, the caller writes producer id and sequence number into the taken batches (`batch_header.number`)
    and computes their checksums.

    `on_ready` is called with a queue whose `due_s` may be earlier than before: a batch was opened, sealed or hurried.
    """

    batch_bytes: int
    linger_s: float
    compression: Compression
    buffer_memory: int
    will_number: bool = False
    on_ready: Callable[[PartitionQueue], None]
    _queues: dict[TopicPartition, PartitionQueue] = field(default_factory=dict, init=False)
    _lingering: dict[PartitionQueue, None] = field(default_factory=dict, init=False)
    """Queues with an open batch whose linger has not ended, oldest first."""
    _lingering_bytes: int = field(default=0, init=False)
    reserved_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 0 < self.batch_bytes <= self.buffer_memory

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Returns the queue of a partition, created at first use."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, self)
        return queue

    def queues(self) -> list[PartitionQueue]:
        """Returns all queues, in the order of their first use."""
        return list(self._queues.values())

    def has_memory_for(self, record_bytes: int) -> bool:
        """Returns True if memory suffices for a new batch with this record. An empty buffer accepts one batch of any
        size."""
        return self.reserved_bytes + self._step_for(record_bytes) <= self.buffer_memory or not self.reserved_bytes

    def open_batch(self, queue: PartitionQueue, record_bytes: int, now_s: float) -> Batch:
        """Opens a batch with room for a record of `record_bytes`, which the caller adds without yielding to the event
        loop.

        The queue must have no open batch, and the buffer memory for one.
        """
        assert queue.open is None
        capacity = self._first_step(queue, record_bytes)
        self.reserved_bytes += capacity
        batch = queue.open = Batch(queue, now_s, now_s + self.linger_s, capacity)
        self._lingering[queue] = None
        self._lingering_bytes += capacity
        self.on_ready(queue)
        return batch

    def grow(self, queue: PartitionQueue, record_bytes: int) -> bool:
        """Reserves memory for a record in the queue's open batch; returns False if the batch is full or memory is
        short."""
        batch = queue.open
        assert batch is not None
        if batch.room >= record_bytes:
            return True
        needed_bytes = batch.reserved_bytes - batch.room + record_bytes
        more_bytes = step_for(needed_bytes, self.batch_bytes) - batch.reserved_bytes
        if needed_bytes > self.batch_bytes or self.reserved_bytes + more_bytes > self.buffer_memory:
            return False
        self.reserved_bytes += more_bytes
        batch.reserved_bytes += more_bytes
        batch.room += more_bytes
        if queue in self._lingering:
            self._lingering_bytes += more_bytes
        return True

    def has_due(self, now_s: float) -> bool:
        """Returns True if the oldest lingering batch has reached its linger time."""
        oldest = next(iter(self._lingering), None)
        return oldest is not None and oldest.open is not None and oldest.open.due_s <= now_s

    def make_room(self) -> None:
        """While memory is short, ends the linger of the fullest batches until enough memory is about to be freed. Among
        equally full batches the newest goes first: where partitions take turns, the oldest gets the next records."""
        departing_bytes = self.buffer_memory // ON_ITS_WAY
        if self.reserved_bytes - self._lingering_bytes >= departing_bytes:
            return
        lingering = [queue.open for queue in reversed(self._lingering) if queue.open is not None]
        for batch in sorted(lingering, key=_used_bytes, reverse=True):
            batch.queue.hurry(batch)
            if self.reserved_bytes - self._lingering_bytes >= departing_bytes:
                return

    def end_linger(self, queue: PartitionQueue) -> None:
        """Removes the queue's open batch from the lingering ones. Idempotent."""
        if queue in self._lingering:
            del self._lingering[queue]
            assert queue.open is not None
            self._lingering_bytes -= queue.open.reserved_bytes

    def seal(self, queue: PartitionQueue) -> None:
        """Encodes the open batch; it accepts no more records."""
        batch = queue.open
        assert batch is not None and batch.records
        self.end_linger(queue)
        queue.open = None
        if (used := _used_bytes(batch)) * FACTOR > batch.reserved_bytes:
            queue.step_bytes = min(batch.reserved_bytes, self.batch_bytes)
        else:
            queue.step_bytes = min(step_for(used, self.batch_bytes), self.batch_bytes)
        batch.data = encode_batch(batch.records, compression=self.compression, is_final=not self.will_number)
        batch.record_count = len(batch.records)
        batch.records = []
        self.reserved_bytes += len(batch.data) - batch.reserved_bytes
        batch.reserved_bytes = len(batch.data)
        queue.sealed.append(batch)
        self.on_ready(queue)

    def due(self, queue: PartitionQueue, now_s: float) -> Batch | None:
        """Returns the oldest batch of a queue if it may be sent now, else None. An open batch stops lingering, and
        accepts records until it is taken."""
        if queue.sealed:
            return queue.sealed[0]
        if queue.open is None or queue.open.due_s > now_s:
            return None
        self.end_linger(queue)
        return queue.open

    def take(self, queue: PartitionQueue, now_s: float, *, bytes_max: int, batches_max: int) -> list[Batch]:
        """Removes and returns the batches for the next request, oldest first, within the limits, but at least one if
        any is due."""
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
        """Frees the memory of a batch that is being settled. With the last one of its request, the queue forgets them:
        their errors reference the frames of callers, with all their data."""
        if batch.queue.taken and batch.queue.taken[-1] is batch:
            batch.queue.taken = []
        self.reserved_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        assert self.reserved_bytes >= 0

    def _first_step(self, queue: PartitionQueue, record_bytes: int) -> int:
        """Returns the bytes to reserve for a new batch with this record."""
        least_bytes = self._step_for(record_bytes)
        has_room = queue.step_bytes <= self.buffer_memory - self.reserved_bytes
        are_few = queue.step_bytes * len(self._queues) <= self.buffer_memory // FEW
        return max(least_bytes, queue.step_bytes) if has_room and are_few else least_bytes

    def _step_for(self, record_bytes: int) -> int:
        """Returns the fewest bytes that may be reserved for a new batch with this record."""
        return step_for(HEADER_BYTES + record_bytes, self.batch_bytes)


def _used_bytes(batch: Batch) -> int:
    return batch.reserved_bytes - batch.room
