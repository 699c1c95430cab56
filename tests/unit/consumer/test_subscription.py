"""Which partitions are read, in which turn; what one partition's trouble means for the others."""

from __future__ import annotations

import pytest

from tidelog.consumer.losses import LossPolicy
from tidelog.consumer.subscription import Subscription
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import InvalidRequest, UnknownTopic
from tidelog.model.ids import OFFSET_MAX, TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def subscription(*partitions: TopicPartition) -> Subscription:
    it = Subscription(LossPolicy(skips=False), check_crcs=True)
    for cursor in it.add(partitions, None):
        cursor.seek(0)
    return it


def feed(it: Subscription, partition: TopicPartition, count: int, batches: int = 1) -> None:
    cursor = it.cursor(partition)
    for _ in range(batches):
        data = encode_batch([(0, None, b"x")] * count, base_offset=cursor.fetch_offset)
        assert cursor.add(cursor.generation, bytes(data))


def counts(it: Subscription, records_max: int, *partitions: TopicPartition) -> dict[TopicPartition, int]:
    return {key: len(records) for key, records in it.take(partitions, records_max, OFFSET_MAX).items()}


def test_assigning_again_keeps_what_is_there() -> None:
    it = subscription(T1)
    before = it.cursor(T1)
    assert [cursor.partition for cursor in it.add([T1, T0, T0], "earliest")] == [T0]
    assert it.cursor(T1) is before
    assert it.partitions == [T0, T1]


def test_clearing_takes_all_away() -> None:
    it = subscription(T0)
    assert [cursor.partition for cursor in it.clear()] == [T0]
    assert it.partitions == []
    with pytest.raises(InvalidRequest, match="t-0 is not assigned"):
        it.cursor(T0)


def test_everything_ready_is_taken_up_to_the_limit_and_turns_go_round() -> None:
    it = subscription(T0, T1, T2)
    for partition in (T0, T1, T2):
        feed(it, partition, 10)
    assert counts(it, 15) == {T0: 10, T1: 5}
    assert counts(it, 3) == {T2: 3}
    assert counts(it, 100) == {T1: 5, T2: 7}
    assert counts(it, 100) == {}


def test_batches_are_taken_one_a_turn() -> None:
    it = subscription(T0, T1)
    for partition in (T0, T1):
        feed(it, partition, 10, batches=2)
    it.take([T1], 4, OFFSET_MAX)
    taken = []
    while (batch := it.take_batch()) is not None:
        taken.append((batch.partition, list(batch.offsets)))
    assert taken == [(0, [*range(10)]), (1, [*range(4, 10)]), (0, [*range(10, 20)]), (1, [*range(10, 20)])]


def test_a_busy_partition_starves_nobody() -> None:
    it = subscription(T0, T1)
    feed(it, T0, 100, batches=2)
    feed(it, T1, 2)
    taken = [counts(it, 5) for _ in range(3)]
    assert taken == [{T0: 5}, {T1: 2, T0: 3}, {T0: 5}]


def test_one_call_decodes_about_as_many_bytes_as_it_may() -> None:
    it = subscription(T0)
    feed(it, T0, 10, batches=2)
    size = len(encode_batch([(0, None, b"x")] * 10))
    [records] = it.take((), OFFSET_MAX, size).values()
    assert len(records) == 10
    [records] = it.take((), OFFSET_MAX, size + 1).values()
    assert len(records) == 10


def test_only_the_partitions_asked_for_are_taken_from() -> None:
    it = subscription(T0, T1)
    feed(it, T0, 1)
    feed(it, T1, 1)
    assert counts(it, 10, T1) == {T1: 1}
    assert counts(it, 10) == {T0: 1}
    with pytest.raises(InvalidRequest, match="not assigned"):
        it.take([T2], 1, 1)


def test_paused_partitions_keep_their_records() -> None:
    it = subscription(T0)
    feed(it, T0, 4)
    it.cursor(T0).is_paused = True
    assert counts(it, 10) == {}
    assert it.next_cursor() is None
    it.cursor(T0).is_paused = False
    assert counts(it, 10) == {T0: 4}


def test_next_cursor_goes_round_by_batch() -> None:
    it = subscription(T0, T1)
    feed(it, T0, 2)
    feed(it, T1, 2)
    served = []
    while (cursor := it.next_cursor()) is not None:
        record = cursor.next_record()
        assert record is not None
        served.append(cursor.partition)
    assert served == [T0, T1, T0, T1]


def test_trouble_of_one_partition_is_raised_and_costs_no_record_of_another() -> None:
    it = subscription(T0, T1)
    feed(it, T0, 3)
    feed(it, T1, 3)
    it.cursor(T0).fail(it.cursor(T0).generation, UnknownTopic("gone"))
    assert counts(it, 100) == {T0: 3, T1: 3}
    feed(it, T1, 2)
    with pytest.raises(UnknownTopic):
        it.take((), 100, OFFSET_MAX)
    assert counts(it, 100) == {T1: 2}


def test_a_partition_without_a_committed_offset_to_begin_is_pointed_out() -> None:
    it = Subscription(LossPolicy(skips=False), check_crcs=True)
    it.add([T0], None)
    with pytest.raises(InvalidRequest, match="t-0 has no position"):
        it.take((), 1, 1)
