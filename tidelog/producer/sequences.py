"""Idempotent numbering: every record of a partition has a number, so that a broker recognises what it has.

A batch carries (producer id, epoch, sequence of its first record). Sequences count per partition, modulo 2**31. The
broker appends only the next one: a repeated batch gets its original offsets, a gap is refused. Hence:

- *Assign at the first send*, in queue order, and never again: a retry carries the same numbers.
- *Rewind* when a batch surely was not appended and will not be: its numbers are free for the next one.
- *Bump* the partition's epoch, and start again at 0, when that cannot be known: a late copy of the old request is
  then fenced instead of being appended after newer records. Brokers judge per partition, so others keep theirs.

Kafka bumps epochs the same way (KIP-360), for all partitions at once. Rewinding is exact only because a partition has
one request in flight: no later numbers are out yet.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model.ids import ProducerId, TopicPartition
from tidelog.model.producers import SEQUENCES

EPOCH_MAX = 2**15 - 1


class Stamp(NamedTuple):
    """The producer's part of a batch header: producer id, epoch, first sequence."""

    producer_id: ProducerId
    epoch: int
    base_sequence: int


@dataclass(slots=True)
class _Trail:
    """The numbering of one partition: `next_sequence` goes to the next batch sent for the first time."""

    producer_id: ProducerId
    epoch: int = 0
    next_sequence: int = 0


class Sequences:
    """The numbering of one producer, by partition. A partition without a trail needs a producer id first."""

    def __init__(self) -> None:
        self._producer_id: ProducerId | None = None
        self._trails: dict[TopicPartition, _Trail] = {}

    def adopt(self, producer_id: ProducerId) -> None:
        """Takes a producer id into use, for all partitions that have no trail."""
        self._producer_id = producer_id

    @property
    def needs_id(self) -> bool:
        """True if `adopt` must come before the next `assign`."""
        return self._producer_id is None

    def begin(self, partition: TopicPartition) -> None:
        """Gives a partition a trail, if it has none: it can `assign` then, whatever becomes of the producer id."""
        if partition not in self._trails:
            assert self._producer_id is not None
            self._trails[partition] = _Trail(self._producer_id)

    def assign(self, partition: TopicPartition, record_count: int) -> Stamp:
        """Numbers the next batch of a partition."""
        assert record_count > 0
        self.begin(partition)
        trail = self._trails[partition]
        stamp = Stamp(trail.producer_id, trail.epoch, trail.next_sequence)
        trail.next_sequence = (trail.next_sequence + record_count) % SEQUENCES
        return stamp

    def rewind(self, partition: TopicPartition, stamp: Stamp) -> None:
        """Takes back `stamp` and all assigned after it: the batches surely are not in the log and never will be."""
        trail = self._trails[partition]
        assert (trail.producer_id, trail.epoch) == stamp[:2]
        trail.next_sequence = stamp.base_sequence

    def bump(self, partition: TopicPartition) -> None:
        """Fences all that was sent to a partition so far, and starts again at 0.

        A producer id whose epochs are used up is dropped, by this partition and for new ones: `needs_id` is true then.
        """
        trail = self._trails[partition]
        if trail.epoch == EPOCH_MAX:
            del self._trails[partition]
            if self._producer_id == trail.producer_id:
                self._producer_id = None
            return
        trail.epoch += 1
        trail.next_sequence = 0
