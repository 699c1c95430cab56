"""The dispatcher decides which records of a partition are processed side by side, and when reading stops."""

from __future__ import annotations

import pytest

from tidelog.consumer.intervals import INTERVALS_MAX, ProcessedOffsets
from tidelog.consumer.partition_dispatcher import HeldRecord, Order, PartitionDispatcher
from tidelog.consumer.records import ConsumerRecord


def record(offset: int, key: bytes | None = None, value: bytes = b"") -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, 0, key, value, (("h", b"x"), ("n", None)))


def keyed(keys: str, start: int = 0) -> list[ConsumerRecord]:
    """A record for each letter; `-` is one without a key."""
    return [
        record(offset, None if key == "-" else key.encode()) for offset, key in enumerate(keys, start) if key != " "
    ]


def dispatcher(order: Order = "key", low: int = 0, **bounds: int) -> PartitionDispatcher:
    return PartitionDispatcher(order, ProcessedOffsets(low), **bounds)


def take_all(it: PartitionDispatcher) -> dict[int, HeldRecord]:
    taken = dict[int, HeldRecord]()
    while (held := it.take()) is not None:
        taken[held.record.offset] = held
    return taken


@pytest.mark.parametrize(("order", "first"), [("total", [0]), ("key", [0, 1, 3, 4]), ("none", [0, 1, 2, 3, 4, 5])])
def test_the_order_says_which_records_are_processed_together(order: Order, first: list[int]) -> None:
    it = dispatcher(order)
    it.add(keyed("aba--b"), 6)
    assert list(take_all(it)) == first
    assert it.take() is None
    assert (it.held, it.taken) == (6, len(first))


def test_records_of_a_key_come_one_after_the_other() -> None:
    it = dispatcher()
    it.add(keyed("abab"), 4)
    taken = take_all(it)
    assert list(taken) == [0, 1]
    it.finish(taken[1])
    (three,) = take_all(it).values()
    assert (three.record.offset, it.processed.low, it.processed.intervals) == (3, 0, [(1, 2)])
    it.finish(taken[0])
    assert (list(take_all(it)), it.processed.low) == ([2], 2)


def test_the_lower_of_what_is_new_and_what_waited_for_its_key_comes_first() -> None:
    it = dispatcher()
    it.add(keyed("aa"), 2)
    zero = it.take()
    assert zero is not None
    it.add(keyed("bc", 2), 4)
    it.finish(zero)
    assert list(take_all(it)) == [1, 2, 3]


def test_offsets_without_records_are_processed_with_the_record_above_them() -> None:
    it = dispatcher(low=3)
    it.add(keyed("  a b", 3), 12)  # 5 and 7; then nothing up to 12
    taken = take_all(it)
    it.finish(taken[7])
    assert (it.processed.low, it.processed.intervals) == (3, [(6, 8)])
    it.finish(taken[5])
    assert (it.processed.low, it.is_idle) == (12, True)
    it.add([], 20)
    assert it.processed.low == 20


def test_what_is_processed_already_is_not_handed_out() -> None:
    it = PartitionDispatcher("key", ProcessedOffsets(2, [(3, 5), (7, 9), (50, 60)]))
    it.add(keyed("aaaa a", 2), 8)  # 6 holds no record any more
    assert it.processed.intervals == [(3, 5), (6, 9), (50, 60)]
    (two,) = take_all(it).values()
    it.finish(two)
    (five,) = take_all(it).values()
    it.finish(five)
    assert (it.processed.low, it.processed.intervals, it.is_idle) == (9, [(50, 60)], True)
    it.add(keyed("b", 55), 56)  # the log begins there now
    assert (it.processed.low, it.is_idle) == (60, True)


def test_an_abandoned_record_stays_unprocessed_and_its_key_waits() -> None:
    it = dispatcher()
    it.add(keyed("aab"), 3)
    taken = take_all(it)
    it.abandon(taken[0])
    it.finish(taken[2])
    assert it.take() is None
    assert (it.taken, it.held, it.processed.low, it.processed.intervals) == (0, 2, 0, [(2, 3)])


def test_beginning_anew_forgets_what_is_held_but_not_which_keys_are_busy() -> None:
    it = dispatcher()
    it.add(keyed("ab-"), 3)
    taken = take_all(it)
    it.begin(ProcessedOffsets(0))
    it.add(keyed("ab-"), 3)
    again = take_all(it)
    assert list(again) == [2]
    it.finish(taken[1])
    it.finish(taken[2])
    assert (it.processed.low, it.processed.intervals) == (0, [])
    again |= take_all(it)
    assert sorted(again) == [1, 2]
    it.finish(again[1])
    it.finish(taken[0])
    assert (it.processed.low, it.processed.intervals) == (0, [(1, 2)])
    assert list(take_all(it)) == [0]


def test_a_closed_one_hands_out_nothing_and_counts_what_is_finished() -> None:
    it = dispatcher()
    it.add(keyed("ab"), 2)
    zero = it.take()
    assert zero is not None
    it.close()
    assert (it.take(), it.wants_more) == (None, False)
    it.finish(zero)
    assert it.processed.low == 1


def test_reading_stops_at_a_bound_of_records_and_goes_on_below_half_of_it() -> None:
    it = dispatcher(held_max=4)
    it.add(keyed("abc"), 3)
    assert (it.wants_more, it.room) == (True, 1)
    it.add(keyed("d", 3), 4)
    assert not it.wants_more
    taken = take_all(it)
    it.finish(taken[0])
    it.finish(taken[1])
    assert not it.wants_more
    it.finish(taken[2])
    assert it.wants_more


def test_reading_stops_at_a_bound_of_bytes() -> None:
    it = dispatcher(bytes_max=20)
    it.add([record(0, b"k", b"v" * 50)], 1)
    assert not it.wants_more
    (held,) = take_all(it).values()
    assert held.size == 1 + 50 + 3
    it.finish(held)
    assert it.wants_more


def test_when_a_commit_has_no_room_only_the_lowest_record_is_handed_out() -> None:
    it = dispatcher("none")
    it.add([record(offset) for offset in range(2 * INTERVALS_MAX)], 2 * INTERVALS_MAX)
    taken = take_all(it)
    assert 256 <= len(taken) < INTERVALS_MAX, "each may become an interval"
    while any(offset % 2 for offset in taken):
        for offset in [offset for offset in taken if offset % 2]:
            it.finish(taken.pop(offset))
        taken |= take_all(it)
    assert it.processed.fill_level(it.taken + 1, it.end) > 1
    assert not it.wants_more
    lowest = sorted(taken)[1]
    it.finish(taken.pop(0))
    assert it.processed.low == lowest == 2
    for offset in sorted(taken):
        it.finish(taken.pop(offset))
    assert it.take() is not None
    assert it.wants_more


# -- records above the high watermark ----------------------------------------------------------------------------------


def test_a_record_read_early_is_handed_out_once_and_commits_as_an_interval() -> None:
    it = dispatcher()
    it.add(keyed("ab"), 2)
    it.add_early(keyed("cd", 4))
    taken = take_all(it)
    assert list(taken) == [0, 1, 4, 5]
    it.finish(taken[4])
    assert (it.processed.low, it.processed.intervals, it.held) == (0, [(4, 5)], 3)
    it.add(keyed("aacde", 2), 7)  # the hole is filled, and reading in order comes to 4 and 5
    it.finish(taken[5])
    it.finish(taken[0])
    it.finish(taken[1])
    assert (it.processed.low, it.processed.intervals) == (2, [(4, 6)])
    again = take_all(it)
    assert list(again) == [2, 6]
    it.finish(again[2])
    (three,) = take_all(it).values()
    it.finish(again[6])
    it.finish(three)
    assert (it.processed.low, it.held, it.taken) == (7, 0, 0)


def test_records_of_a_key_wait_for_those_read_in_order_before_them() -> None:
    it = dispatcher()
    it.add(keyed("a"), 1)
    it.add_early(keyed("a", 3))
    it.add_early(keyed("a", 7))
    zero = it.take()
    assert zero is not None
    assert it.take() is None
    it.finish(zero)
    three = it.take()
    assert three is not None
    assert (three.record.offset, it.take()) == (3, None)
    it.finish(three)
    assert list(take_all(it)) == [7]


def test_a_hole_without_records_counts_with_the_record_above_it() -> None:
    it = dispatcher()
    it.add_early(keyed("a", 4))
    (four,) = take_all(it).values()
    it.add([four.record], 5)  # what was at 0 to 3 is void
    it.finish(four)
    assert (it.processed.low, it.processed.intervals) == (5, [])


def test_what_is_processed_held_or_passed_is_not_held_again_when_it_is_read_early() -> None:
    it = PartitionDispatcher("none", ProcessedOffsets(0, [(5, 7)]))
    it.add(keyed("--"), 2)
    it.add_early(keyed("---", 4))
    it.add_early(keyed("------", 1))
    assert list(take_all(it)) == [0, 1, 4, 2, 3]


def test_records_are_read_early_while_half_of_each_bound_is_free_and_in_order_as_long_as_nothing_waits() -> None:
    it = dispatcher("none", held_max=4)
    it.add_early(keyed("-", 5))
    assert it.wants_early
    it.add_early(keyed("-----", 10))
    assert (it.wants_early, it.wants_more, it.room) == (False, True, 1)
    it.add(keyed("-"), 1)
    assert not it.wants_more, "the record that was read in order has to be processed first"
    taken = take_all(it)
    it.finish(taken[0])
    assert it.wants_more
    for offset in (5, 10, 11, 12, 13):
        it.finish(taken[offset])
    assert it.wants_early


def test_a_commit_without_room_for_another_interval_stops_what_was_read_early() -> None:
    low = 2 * INTERVALS_MAX
    it = PartitionDispatcher("none", ProcessedOffsets(0, [(offset, offset + 1) for offset in range(2, low, 2)]))
    assert not it.wants_early
    it.add_early(keyed("-", low + 10))
    assert it.take() is None
    assert it.wants_more
    it.add([record(offset) for offset in range(low)], low)
    lowest = it.take()
    assert lowest is not None
    assert (lowest.record.offset, it.take()) == (0, None)
    it.finish(lowest)
    taken = list[int]()
    while (held := it.take()) is not None:
        taken.append(held.record.offset)
        it.finish(held)
    assert sorted(taken) == [*range(1, low, 2), low + 10]


def test_beginning_anew_forgets_what_was_read_early() -> None:
    it = dispatcher()
    it.add_early(keyed("a", 4))
    (four,) = take_all(it).values()
    it.begin(ProcessedOffsets(0))
    it.add_early(keyed("ab", 4))
    assert list(take_all(it)) == [5]
    it.finish(four)
    assert list(take_all(it)) == [4]
