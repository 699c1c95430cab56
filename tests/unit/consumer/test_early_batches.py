"""Batches that were fetched above the high watermark, and what of them the next fetch names."""

from __future__ import annotations

import pytest

from tidelog.consumer.cursor import Cursor
from tidelog.consumer.early_batches import CHUNKS_MAX, EarlyBatches, split_at
from tidelog.consumer.intervals import ProcessedOffsets
from tidelog.consumer.losses import LossPolicy
from tidelog.model.batch_codec import encode_batch
from tidelog.model.early_reads import ABOVE_RANGES_MAX
from tidelog.model.errors import DamagedBatch, InvalidBatch
from tidelog.model.ids import TopicPartition


def batch(base_offset: int, count: int = 3) -> bytes:
    values = [(1000, None, b"%d" % (base_offset + number)) for number in range(count)]
    return bytes(encode_batch(values, base_offset=base_offset))


@pytest.fixture
def early() -> EarlyBatches:
    return EarlyBatches()


@pytest.fixture
def cursor() -> Cursor:
    cursor = Cursor(TopicPartition("t", 0), None, LossPolicy(skips=False))
    cursor.seek(0)
    return cursor


def offsets(cursor: Cursor) -> list[int]:
    return [record.offset for record in cursor.take_early()]


def test_what_was_fetched_is_named_until_reading_in_order_has_passed_it(early: EarlyBatches) -> None:
    assert early.above(5) == ""
    assert early.add(batch(10) + batch(20), 5)
    assert early.above(5) == "10-12,20-22"
    assert early.above(12) == "20-22"
    assert early.above(23) == ""


def test_a_batch_that_was_fetched_before_is_left_out(early: EarlyBatches) -> None:
    early.add(batch(10), 5)
    assert not early.add(batch(10), 5)
    assert early.add(batch(10) + batch(13), 5)
    batches = [early.next(), early.next()]
    assert [batch and batch.header.base_offset for batch in batches] == [10, 13]
    assert early.next() is None


def test_a_batch_that_leaves_no_hole_is_nonsense_and_nothing_is_kept_of_its_answer(early: EarlyBatches) -> None:
    with pytest.raises(InvalidBatch):
        early.add(batch(10) + batch(5), 5)
    assert (early.above(5), early.next()) == ("", None)


def test_nothing_is_fetched_early_unless_it_is_wanted_and_can_be_named(early: EarlyBatches) -> None:
    for number in range(ABOVE_RANGES_MAX // 2):
        early.add(batch(10**9 + 2 * number, 1), 5)
        assert early.next() is not None
    assert early.above(5) is None
    assert early.above(10**9 + 600) is not None
    early.is_wanted = False
    assert early.above(10**9 + 600) is None


def test_so_many_chunks_are_held(cursor: Cursor) -> None:
    for number in range(CHUNKS_MAX):
        assert cursor.wants_more
        cursor.add_early(cursor.generation, batch(10 * number + 10))
    assert not cursor.wants_more
    cursor.early.is_wanted = False
    assert cursor.wants_more, "reading in order goes on"
    assert cursor.early.above(0) is None
    cursor.early.is_wanted = True
    assert offsets(cursor) == [10, 11, 12]
    assert cursor.wants_more


def test_they_come_behind_all_that_was_fetched_in_order(cursor: Cursor) -> None:
    cursor.add(cursor.generation, batch(0))
    cursor.add_early(cursor.generation, batch(5))
    cursor.add_early(cursor.generation, batch(10))
    assert offsets(cursor) == []
    cursor.decode()
    assert [record.offset for record in cursor.take(2)] == [0, 1]
    assert offsets(cursor) == []
    assert [record.offset for record in cursor.take(9)] == [2]
    assert offsets(cursor) == [5, 6, 7]
    assert cursor.position == cursor.fetch_offset == 3
    cursor.add(cursor.generation, batch(3, 6))  # the hole is filled, and one behind it
    assert offsets(cursor) == []
    cursor.decode()
    assert [record.offset for record in cursor.take(9)] == [3, 4, 5, 6, 7, 8]
    assert offsets(cursor) == [10, 11, 12]


def test_those_that_reading_in_order_has_passed_are_left_out(cursor: Cursor) -> None:
    cursor.add_early(cursor.generation, batch(5) + batch(10) + batch(20))
    cursor.add(cursor.generation, batch(0, 11))
    cursor.decode()
    cursor.take(20)
    assert offsets(cursor) == [11, 12]
    assert offsets(cursor) == [20, 21, 22]


def test_a_seek_forgets_them_and_an_answer_from_before_it_is_dropped(cursor: Cursor) -> None:
    before = cursor.generation
    cursor.add_early(before, batch(5))
    cursor.seek(1)
    assert not cursor.add_early(before, batch(5))
    assert (offsets(cursor), cursor.early.above(1)) == ([], "")


def test_a_damaged_one_stops_the_cursor(cursor: Cursor) -> None:
    damaged = bytearray(batch(5))
    damaged[-1] ^= 1
    cursor.add_early(cursor.generation, damaged + batch(10))
    assert offsets(cursor) == []
    error = cursor.take_error()
    assert isinstance(error, DamagedBatch)
    assert "offset 5" in error.message
    assert (cursor.position, cursor.early.above(0)) == (0, "")


def test_a_commit_stays_at_or_below_the_high_watermark(cursor: Cursor) -> None:
    assert cursor.committable is None
    cursor.processed = ProcessedOffsets(7, [(9, 12)])
    for high_watermark, low, intervals in (
        (5, 5, [(6, 7), (9, 12)]),
        (6, 6, [(9, 12)]),
        (7, 7, [(9, 12)]),
        (20, 7, [(9, 12)]),
    ):
        cursor.high_watermark = high_watermark
        committable = cursor.committable
        assert committable is not None
        assert (committable.low, committable.intervals) == (low, intervals)
    cursor.high_watermark = 5  # of a leader that does not know more yet
    cursor.seek(7)
    assert cursor.committable is cursor.processed


def test_an_answer_is_cut_at_the_high_watermark() -> None:
    data = batch(0) + batch(3) + batch(10)
    assert [bytes(part) for part in split_at(data, 6)] == [batch(0) + batch(3), batch(10)]
    assert [bytes(part) for part in split_at(data, 0)] == [b"", data]
    assert [bytes(part) for part in split_at(data, 20)] == [data, b""]
