"""A partition's memory of its idempotent producers: Kafka's producer state, as a pure table.

A producer numbers its records per partition. The log holds (producer id, epoch, first sequence) in each batch header,
so the table is only derived: it is rebuilt from the log's catalog at load, and every leader has it that has the log.

The last five batches are kept whole (a producer may have five requests in flight), so that a repeated batch gets its
original offsets. Older repeats are recognised, too, but only inside the unbroken run of sequences this table has seen:
a producer may begin with any sequence, and a batch below it was never appended here, so to call it a duplicate would
lose it.

Ids made from HTTP idempotency keys (bit 62) number one request each: their sequence is a fingerprint of its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.model.errors import IdempotencyKeyReused, OutOfOrderSequence, ProducerFenced
from tidelog.model.ids import KEYED_PRODUCER_BIT

BATCHES_REMEMBERED = 5
SEQUENCES = 1 << 31
"""Sequence numbers count modulo 2**31, as in Kafka."""


class SeenBatch(NamedTuple):
    """A batch in the log: its first sequence number, record count and base offset."""

    base_sequence: int
    record_count: int
    base_offset: int


class Duplicate(NamedTuple):
    """The result of the check of a repeated batch: the offsets of the original, or None if that is no longer
    remembered."""

    base_offset: int | None
    last_offset: int | None


@dataclass(slots=True)
class ProducerState:
    """The state of one producer. `batches` are its last ones, contiguous in sequence and oldest first; `run_records`
    counts the records of the unbroken run of sequences that ends with them."""

    epoch: int
    batches: tuple[SeenBatch, ...]
    run_records: int
    seen_ms: int

    @property
    def next_sequence(self) -> int:
        last = self.batches[-1]
        return (last.base_sequence + last.record_count) % SEQUENCES

    def find(self, base_sequence: int, record_count: int) -> Duplicate | None:
        """Returns the original of a repeated batch; None if the batch is not a repeat. If the original is no longer
        remembered, returns `Duplicate(None, None)`."""
        for seen in self.batches:
            if seen.base_sequence == base_sequence and seen.record_count == record_count:
                return Duplicate(seen.base_offset, seen.base_offset + record_count - 1)
        age = (self.next_sequence - base_sequence) % SEQUENCES
        remembered = sum(seen.record_count for seen in self.batches)
        # Sequences wrap round: beyond half the circle a batch is not an old one, but one that follows after a gap.
        is_of_this_run = age <= min(self.run_records, SEQUENCES // 2)
        if is_of_this_run and age - record_count >= remembered:
            return Duplicate(None, None)
        return None


class ProducerTable:
    """The idempotent producers of one partition, the one that was silent longest first, at most `producers_max` of
    them.

    When a new producer exceeds the bound, the first one is forgotten.
    """

    def __init__(self, producers_max: int) -> None:
        assert producers_max > 0
        self._producers_max = producers_max
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def items(self) -> Iterator[tuple[int, ProducerState]]:
        return iter(self._states.items())

    def check(self, producer_id: int, epoch: int, base_sequence: int, record_count: int) -> Duplicate | None:
        """Checks a batch before its append: returns None if it may be appended, `Duplicate` if it is in the log
        already.

        Raises `ProducerFenced` (an older epoch), `OutOfOrderSequence` (a gap) or, for ids made from idempotency keys,
        `IdempotencyKeyReused` (the same key with other content).
        """
        state = self._states.get(producer_id)
        if state is None:
            return None
        if epoch < state.epoch:
            raise ProducerFenced(f"producer {producer_id} has epoch {state.epoch}; this batch has {epoch}")
        if epoch > state.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} starts epoch {epoch} with sequence {base_sequence}, not 0"
                )
            return None
        duplicate = state.find(base_sequence, record_count)
        if duplicate is not None or base_sequence == state.next_sequence:
            return duplicate
        if producer_id & KEYED_PRODUCER_BIT:
            raise IdempotencyKeyReused("this Idempotency-Key came with other content before; use a new key")
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence}, expected {state.next_sequence}"
        )

    def first_sequence(self, producer_id: int) -> int | None:
        """Returns the first sequence number that is remembered of a producer; None if it is unknown. For ids made from
        idempotency keys that is the fingerprint of the request's content."""
        state = self._states.get(producer_id)
        return None if state is None else state.batches[0].base_sequence

    def remember(
        self, producer_id: int, epoch: int, base_sequence: int, record_count: int, base_offset: int, now_ms: int
    ) -> None:
        """Records a batch that was appended; `now_ms` is used for expiry only."""
        state = self._states.pop(producer_id, None)
        seen = SeenBatch(base_sequence, record_count, base_offset)
        if state is None or state.epoch != epoch or state.next_sequence != base_sequence:
            state = ProducerState(epoch, (seen,), record_count, now_ms)
        else:
            state.batches = (*state.batches[1 - BATCHES_REMEMBERED :], seen)
            state.run_records += record_count
            state.seen_ms = now_ms
        self._states[producer_id] = state
        if len(self._states) > self._producers_max:
            del self._states[next(iter(self._states))]

    def restore(self, states: Iterable[tuple[int, ProducerState]]) -> None:
        """Replaces the table by states read from a checkpoint, in the order of the table."""
        self._states = dict(list(states)[-self._producers_max :])

    def states_before(self, offset: int) -> Iterator[tuple[int, ProducerState]]:
        """Yields the states at the time when the log ended at `offset`, as far as the remembered batches reveal
        them."""
        for producer_id, state in self._states.items():
            batches = tuple(seen for seen in state.batches if seen.base_offset < offset)
            if batches:
                later = sum(seen.record_count for seen in state.batches[len(batches) :])
                yield producer_id, replace(state, batches=batches, run_records=state.run_records - later)

    def expire(self, before_ms: int) -> int:
        """Forgets producers that have appended nothing since `before_ms`; returns their number."""
        gone = [producer_id for producer_id, state in self._states.items() if state.seen_ms < before_ms]
        for producer_id in gone:
            del self._states[producer_id]
        return len(gone)
