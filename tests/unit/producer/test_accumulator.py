"""Batching by size and by linger, without a clock: when a batch opens, fills, falls due and is taken."""

from __future__ import annotations

import math

import pytest

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import Compression, RecordBatch, number, parse_header, verify_batch
from tidelog.model.errors import CorruptBatch, UnknownTopic
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
        return self.add_to(self.queue, now_s)

    def add_to(self, queue: PartitionQueue, now_s: float = 0.0) -> Batch:
        batch = queue.open
        if batch is None or not self.accumulator.grow(queue, SIZE):
            if batch is not None:
                self.accumulator.seal(queue)
            batch = self.accumulator.open_batch(queue, SIZE, now_s)
        batch.room -= SIZE
        batch.records.append(RECORD)
        return batch

    def queues(self, count: int) -> list[PartitionQueue]:
        return [self.accumulator.queue(TopicPartition("many", number)) for number in range(count)]

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


def test_a_batch_begins_with_the_step_its_predecessor_ended_with() -> None:
    bench = Bench(batch_bytes=16_384, buffer_memory=65_536)
    first = bench.add()
    assert first.reserved_bytes == 1024
    while bench.queue.open is first:
        second = bench.add()
    assert second.reserved_bytes == 16_384
    other = bench.accumulator.queue(TopicPartition("t", 1))
    assert bench.add_to(other).reserved_bytes == 1024


def test_after_a_record_larger_than_any_batch_batches_have_their_size_again(bench: Bench) -> None:
    jumbo = bench.accumulator.open_batch(bench.queue, 1500, 0.0)
    jumbo.room -= 1500
    jumbo.records.append((7, None, b"v" * 1479))
    bench.accumulator.seal(bench.queue)
    assert bench.accumulator.open_batch(bench.queue, SIZE, 0.0).reserved_bytes == 1000


def test_a_batch_that_is_due_is_joined_until_it_departs(bench: Bench) -> None:
    batch = bench.add(now_s=0.0)
    assert bench.accumulator.due(bench.queue, 4.9) is None
    assert bench.accumulator.due(bench.queue, 5.0) is batch
    assert not bench.accumulator.has_due(5.0), "it waits to depart, and nobody needs to look for it"
    assert bench.add(now_s=6.0) is batch
    (taken,) = bench.take(6.0)
    assert (taken, taken.record_count) == (batch, 2)
    assert bench.accumulator.due(bench.queue, 6.0) is None


def test_the_checksum_of_a_batch_that_will_be_numbered_is_left_to_its_numbers() -> None:
    accumulator = Accumulator(
        batch_bytes=1000,
        linger_s=0.0,
        compression=Compression.NONE,
        buffer_memory=4000,
        will_number=True,
        on_ready=lambda queue: None,
    )
    queue = accumulator.queue(TopicPartition("t", 0))
    accumulator.open_batch(queue, SIZE, 0.0).records.append(RECORD)
    (batch,) = accumulator.take(queue, 0.0, bytes_max=10_000, batches_max=5)
    with pytest.raises(CorruptBatch):
        verify_batch(batch.data)
    crc = number(batch.data, 7, 1, 5)
    header = verify_batch(batch.data)
    assert (header.crc, header.producer_id, header.producer_epoch, header.base_sequence) == (crc, 7, 1, 5)


def test_memory_that_is_short_is_not_reserved_ahead() -> None:
    bench = Bench(batch_bytes=4096, buffer_memory=80_000)
    queues = bench.queues(2)
    for queue in queues:
        queue.step_bytes = 4096
    bench.accumulator.reserved_bytes = 80_000 - 6000
    assert [bench.add_to(queue).reserved_bytes for queue in queues] == [4096, 1024]


def test_among_many_partitions_a_batch_begins_small() -> None:
    """They could not all begin with what their last batches needed, and leave memory for what is on its way."""
    bench = Bench(batch_bytes=4096, buffer_memory=80_000)
    queues = bench.queues(10)
    queues[0].step_bytes = 4096
    assert bench.add_to(queues[0]).reserved_bytes == 1024


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
    for batch in (first, second):
        bench.accumulator.release(batch)
        batch.settle(RECEIPT)
    assert bench.queue.last is None
    assert bench.queue.taken == [], "nothing of a settled batch is kept"


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


# -- many partitions, little memory --------------------------------------------------------------------------------


def test_ten_thousand_open_batches_fit_the_usual_memory() -> None:
    bench = Bench(batch_bytes=65_536, buffer_memory=32 << 20)
    for queue in bench.queues(10_000):
        assert bench.accumulator.has_memory_for(SIZE)
        bench.add_to(queue)
    assert bench.accumulator.reserved_bytes == 10_000 * 1024


def test_a_batch_grows_in_steps_to_its_full_size() -> None:
    bench = Bench(batch_bytes=20_000, buffer_memory=1 << 20)
    sizes = []
    while not bench.queue.sealed:
        bench.add()
        sizes.append(bench.accumulator.reserved_bytes)
    steps = list(dict.fromkeys(sizes))
    assert steps[:6] == [1024, 2048, 4096, 8192, 16_384, 20_000]
    assert bench.queue.sealed[0].record_count == (20_000 - 61) // SIZE


def test_a_batch_that_finds_no_memory_for_its_next_step_is_full() -> None:
    bench = Bench(batch_bytes=4096, buffer_memory=4096)
    one, two = bench.queues(2)
    bench.add_to(two)
    bench.add_to(one)
    while bench.accumulator.grow(one, SIZE):
        bench.add_to(one)
    assert one.open is not None
    assert (len(one.open.records), bench.accumulator.reserved_bytes) == ((2048 - 61) // SIZE, 3072)


def test_when_memory_is_short_the_fullest_go_first_and_no_more_than_needed() -> None:
    bench = Bench(batch_bytes=1024, buffer_memory=16 * 1024)
    queues = bench.queues(16)
    for queue in [*queues, queues[5], queues[7], queues[5]]:
        bench.add_to(queue)
    assert not bench.accumulator.has_memory_for(SIZE)
    bench.noticed.clear()
    bench.accumulator.make_room()
    assert bench.noticed == [queues[5], queues[7], queues[15], queues[14]]
    bench.accumulator.make_room()
    assert len(bench.noticed) == 4
    for queue in [*bench.noticed]:
        (batch,) = bench.accumulator.take(queue, 0.0, bytes_max=10_000, batches_max=5)
        bench.accumulator.release(batch)
    bench.noticed.clear()
    bench.accumulator.make_room()
    assert bench.noticed == [queues[13], queues[12], queues[11], queues[10]]


def test_partitions_that_take_turns_share_batches_though_not_all_have_room() -> None:
    """More partitions than batches fit: those that have one fill it, instead of all being sent with a record each."""
    bench = Bench(batch_bytes=65_536, buffer_memory=64 * 1024)
    sent: list[int] = []
    for turn in range(2_000):
        queue = bench.queues(100)[turn % 100]
        has_room = queue.open is not None and bench.accumulator.grow(queue, SIZE)
        if not has_room and not bench.accumulator.has_memory_for(SIZE):
            bench.noticed.clear()
            bench.accumulator.make_room()
            for due in dict.fromkeys([*bench.noticed]):
                for batch in bench.accumulator.take(due, 0.0, bytes_max=1 << 20, batches_max=5):
                    sent.append(batch.record_count)
                    bench.accumulator.release(batch)
        bench.add_to(queue)
    assert len(sent) < 1_500


def test_the_oldest_that_lingers_says_whether_anything_is_due() -> None:
    bench = Bench(linger_s=5.0)
    assert not bench.accumulator.has_due(0.0)
    first, second = bench.queues(2)
    bench.add_to(first, now_s=1.0)
    bench.add_to(second, now_s=2.0)
    assert [bench.accumulator.has_due(now_s) for now_s in (5.9, 6.0)] == [False, True]
    bench.accumulator.seal(first)
    assert [bench.accumulator.has_due(now_s) for now_s in (6.9, 7.0)] == [False, True]
