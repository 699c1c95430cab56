"""Batching by size and by linger, without a clock: when a batch opens, fills, falls due and is taken."""

from __future__ import annotations

import math

import pytest

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import Compression, RecordBatch, parse_header
from tidelog.model.errors import UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.producer.accumulator import (
    RECORD_OVERHEAD_BYTES,
    Accumulator,
    Batch,
    BatchReceipt,
    PartitionQueue,
)

RECORD = (1_700_000_000_000, None, b"v" * 79)
SIZE = RECORD_OVERHEAD_BYTES + 79
RECEIPT = BatchReceipt(0, 1, (1,), "fsynced")


class Bench:
    """An accumulator with one queue, and a note of every time it said that something may be ready."""

    def __init__(self, *, batch_bytes: int = 1000, linger_s: float = 5.0, buffer_memory: int = 4000) -> None:
        self.noticed: list[PartitionQueue] = []
        self.accumulator = Accumulator(
            batch_bytes=batch_bytes,
            linger_s=linger_s,
            compression=Compression.NONE,
            buffer_memory=buffer_memory,
            on_ready=self.noticed.append,
        )
        self.queue = self.accumulator.queue(TopicPartition("t", 0))

    def add(self, now_s: float = 0.0) -> Batch:
        """Returns what `send` does with a record."""
        batch = self.queue.open
        if batch is None or batch.room < SIZE:
            if batch is not None:
                self.accumulator.seal(self.queue)
            batch = self.accumulator.open_batch(self.queue, SIZE, now_s)
        batch.room -= SIZE
        batch.records.append(RECORD)
        return batch

    def take(self, now_s: float = 0.0, *, bytes_max: int = 10_000, batches_max: int = 5) -> list[Batch]:
        return self.accumulator.take(self.queue, now_s, bytes_max=bytes_max, batches_max=batches_max)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lone_record_is_taken_when_its_linger_is_over(bench: Bench) -> None:
    batch = bench.add(now_s=100.0)
    assert bench.queue.due_s == 105.0
    assert bench.take(now_s=104.9) == []
    assert bench.take(now_s=105.0) == [batch]
    assert bench.queue.due_s is None


def test_a_hurried_batch_is_due_at_once_and_says_so(bench: Bench) -> None:
    batch = bench.add(now_s=100.0)
    bench.noticed.clear()
    bench.queue.hurry(batch)
    assert bench.noticed == [bench.queue]
    assert bench.queue.due_s == -math.inf
    assert bench.take(now_s=100.0) == [batch]


def test_hurrying_a_batch_that_is_gone_changes_nothing(bench: Bench) -> None:
    first = bench.add()
    bench.queue.hurry(first)
    bench.take()
    second = bench.add(now_s=1.0)
    bench.queue.hurry(first)
    assert second.due_s == 6.0


def test_a_full_batch_is_sealed_and_its_successor_lingers_on_its_own(bench: Bench) -> None:
    first = bench.add(now_s=1.0)
    while bench.queue.open is first:
        second = bench.add(now_s=2.0)
    assert first.record_count == (1000 - 61) // SIZE
    assert bench.take(now_s=2.0) == [first]
    assert bench.queue.due_s == second.due_s == 7.0


def test_sealed_batches_hold_exactly_the_records_in_order() -> None:
    bench = Bench(linger_s=0.0)
    batch = bench.accumulator.open_batch(bench.queue, SIZE, 0.0)
    batch.records += [(7, b"k", b"a"), (8, None, None), (9, b"", b"", (("h", b"x"), ("n", None)))]
    [taken] = bench.take()
    stored = decode_batch(RecordBatch(parse_header(taken.data), memoryview(taken.data)))
    assert [tuple(record) for record in stored] == [
        (0, 7, b"k", b"a", ()),
        (1, 8, None, None, ()),
        (2, 9, b"", b"", (("h", b"x"), ("n", None))),
    ]


def test_a_request_takes_whole_batches_up_to_its_bounds_and_at_least_one(bench: Bench) -> None:
    for _ in range(4 * ((1000 - 61) // SIZE)):
        bench.add()
    bench.queue.hurry(bench.add())
    sizes = [len(batch.data) for batch in bench.queue.sealed]
    assert [batch.record_count for batch in bench.take(bytes_max=1)] == [9]
    assert len(bench.take(bytes_max=sum(sizes[1:3]))) == 2
    assert [batch.record_count for batch in bench.take(batches_max=1)] == [9]
    assert [batch.record_count for batch in bench.take(batches_max=1)] == [1]
    assert bench.take() == []


def test_an_open_batch_reserves_its_full_size_and_a_sealed_one_its_own(bench: Bench) -> None:
    batch = bench.add()
    assert bench.accumulator.reserved_bytes == 1000
    bench.accumulator.seal(bench.queue)
    assert bench.accumulator.reserved_bytes == len(batch.data) < 1000
    bench.accumulator.release(batch)
    assert bench.accumulator.reserved_bytes == 0


def test_memory_is_used_up_by_batches_that_are_not_settled() -> None:
    bench = Bench(buffer_memory=2500)
    for partition in range(2):
        queue = bench.accumulator.queue(TopicPartition("t", partition))
        assert bench.accumulator.has_memory_for(SIZE)
        bench.accumulator.open_batch(queue, SIZE, 0.0).records.append(RECORD)
    assert not bench.accumulator.has_memory_for(SIZE)


def test_a_record_larger_than_the_buffer_may_have_it_alone() -> None:
    bench = Bench(buffer_memory=1000)
    assert bench.accumulator.has_memory_for(50_000)
    batch = bench.accumulator.open_batch(bench.queue, 50_000, 0.0)
    assert batch.room == 50_000
    assert not bench.accumulator.has_memory_for(1)


def test_the_youngest_batch_is_the_one_to_wait_for(bench: Bench) -> None:
    assert bench.queue.last is None
    first = bench.add()
    assert bench.queue.last is first
    bench.queue.hurry(first)
    bench.take()
    assert bench.queue.last is first, "under way is not settled"
    second = bench.add()
    assert bench.queue.last is second
    bench.accumulator.seal(bench.queue)
    assert bench.queue.last is second
    bench.take()
    first.settle(RECEIPT)
    second.settle(RECEIPT)
    assert bench.queue.last is None


def test_a_settled_batch_tells_watchers_once_and_latecomers_at_once(bench: Bench) -> None:
    batch = bench.add()
    told: list[str] = []
    batch.watch(lambda: told.append("early"))
    error = UnknownTopic("gone")
    batch.settle(error)
    batch.watch(lambda: told.append("late"))
    assert told == ["early", "late"]
    assert batch.outcome is error
    assert batch.data == b""
