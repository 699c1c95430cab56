"""Sequence numbers of the idempotent producer, by which brokers recognise duplicate batches.

A batch carries (producer id, epoch, sequence of its first record). Sequences count per partition, modulo 2**31. The
broker appends only the next one: a duplicate batch gets its original offsets, a gap is rejected. Hence:

- *Assign at the first attempt*, in queue order, and never again: a retry carries the same numbers.
- *Rewind* when a batch was certainly not appended and will not be: its numbers are free for the next batch.
- *Bump* the partition's epoch, and restart at 0, when that is unknown: a delayed copy of the old request is then fenced
  instead of being appended after newer records. Brokers check per partition, so other partitions keep their epoch.

Kafka bumps epochs the same way (KIP-360), for all partitions at once. Rewinding is exact only because a partition has
one request in flight, so no later numbers have been sent.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model.ids import ProducerId, TopicPartition
from tidelog.model.producers import SEQUENCES

EPOCH_MAX = 2**15 - 1


class Stamp(NamedTuple):
    """The producer fields of a batch header: producer id, epoch, first sequence."""

    producer_id: ProducerId
    epoch: int
    base_sequence: int


@dataclass(slots=True)
class _Trail:
    """The numbering of one partition: `next_sequence` is for the next batch that is sent for the first time."""

    producer_id: ProducerId
    epoch: int = 0
    next_sequence: int = 0


class Sequences:
    """The sequence numbers of one producer, by partition. A partition without a trail (`_Trail`, its numbering) needs a
    producer id first."""

    def __init__(self) -> None:
        self._producer_id: ProducerId | None = None
        self._trails: dict[TopicPartition, _Trail] = {}

    def adopt(self, producer_id: ProducerId) -> None:
        """Uses this producer id for all partitions that are not numbered yet."""
        self._producer_id = producer_id

    @property
    def needs_id(self) -> bool:
        """True if there is no producer id, so that `adopt` must be called before the next `assign`."""
        return self._producer_id is None

    def begin(self, partition: TopicPartition) -> None:
        """Starts the numbering of a partition with the present producer id. A partition that is numbered already keeps
        the producer id that it began with."""
        if partition not in self._trails:
            assert self._producer_id is not None
            self._trails[partition] = _Trail(self._producer_id)

    def assign(self, partition: TopicPartition, record_count: int) -> Stamp:
        """Returns the producer id, epoch and first sequence for the next batch of a partition."""
        assert record_count > 0
        self.begin(partition)
        trail = self._trails[partition]
        stamp = Stamp(trail.producer_id, trail.epoch, trail.next_sequence)
        trail.next_sequence = (trail.next_sequence + record_count) % SEQUENCES
        return stamp

    def rewind(self, partition: TopicPartition, stamp: Stamp) -> None:
        """Makes the numbers of `stamp` and all later ones available again, for batches that are certainly not in the
        log and never will be."""
        trail = self._trails[partition]
        assert (trail.producer_id, trail.epoch) == stamp[:2]
        trail.next_sequence = stamp.base_sequence

    def bump(self, partition: TopicPartition) -> None:
        """Bumps the epoch of a partition, which fences its earlier batches, and restarts its sequences at 0.

        A producer id with exhausted epochs is dropped for this partition and for new ones; `needs_id` is true then.
        """
        trail = self._trails[partition]
        if trail.epoch == EPOCH_MAX:
            del self._trails[partition]
            if self._producer_id == trail.producer_id:
                self._producer_id = None
            return
        trail.epoch += 1
        trail.next_sequence = 0
