"""Lost ranges that were accepted: where they stop a reader, and what skipping them does to its position."""

from __future__ import annotations

import logging

import pytest

from tidelog.consumer.cursor import Cursor
from tidelog.consumer.losses import LossPolicy
from tidelog.consumer.options import parse_on_loss
from tidelog.consumer.subscription import Subscription
from tidelog.model.batch_codec import encode_batch
from tidelog.model.errors import InvalidRequest, RecordsLost
from tidelog.model.ids import OFFSET_MAX, TopicPartition
from tidelog.model.lost_ranges import LostRange

T0 = TopicPartition("t", 0)


def batches(*starts: int) -> bytes:
    """Batches of three records."""
    return b"".join(bytes(encode_batch([(1, None, b"v")] * 3, base_offset=start)) for start in starts)


def cursor(losses: LossPolicy, position: int = 0) -> Cursor:
    it = Cursor(T0, None, losses)
    it.seek(position)
    return it


def offsets(it: Cursor) -> list[int]:
    found = []
    while it.has_record or it.decode():
        found += [record.offset for record in it.take(100)]
    return found


def error_of(it: Cursor) -> RecordsLost:
    error = it.take_error()
    assert isinstance(error, RecordsLost)
    return error


def test_records_before_a_loss_come_first_and_none_behind_it() -> None:
    it = cursor(LossPolicy(skips=False))
    assert it.add(it.generation, batches(0, 6), (LostRange(3, 6),))
    assert offsets(it) == [0, 1, 2]
    error = error_of(it)
    assert (error.topic, error.partition, error.ranges) == ("t", 0, ((3, 6),))
    assert error.code == 41001
    assert (
        'offsets 3-5 are lost, and that was accepted; seek to 6 to go on behind them, or read with on_loss="skip"'
        in (error.message)
    )
    assert (it.position, it.fetch_offset) == (3, 3)


def test_asking_again_fails_again_until_a_seek() -> None:
    it = cursor(LossPolicy(skips=False), 3)
    for _ in range(3):
        assert it.add(it.generation, batches(6), (LostRange(3, 6),))
        assert offsets(it) == []
        assert error_of(it).ranges == ((3, 6),)
    it.seek(6)
    assert it.add(it.generation, batches(6), (LostRange(3, 6),)), "a range behind the position is nothing new"
    assert offsets(it) == [6, 7, 8]


def test_a_position_inside_a_loss_meets_what_is_left_of_it() -> None:
    it = cursor(LossPolicy(skips=False), 4)
    it.add(it.generation, batches(6), (LostRange(3, 6),))
    assert not it.decode()
    assert error_of(it).ranges == ((4, 6),)
    assert it.position == 4


def test_skipping_goes_on_behind_each_loss_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    losses = LossPolicy(skips=True)
    it = cursor(losses)
    with caplog.at_level(logging.WARNING):
        it.add(it.generation, batches(0, 6, 12), (LostRange(9, 12), LostRange(3, 6)))
        assert offsets(it) == [0, 1, 2, 6, 7, 8, 12, 13, 14]
        it.seek(4)
        it.add(it.generation, batches(6), (LostRange(4, 6),))
        assert offsets(it) == [6, 7, 8]
    assert [line.getMessage() for line in caplog.records] == [
        "t-0: skipping the records at offsets 3-5, which are lost (on_loss is skip)",
        "t-0: skipping the records at offsets 9-11, which are lost (on_loss is skip)",
    ]
    assert losses.skipped() == {T0: [LostRange(3, 6), LostRange(9, 12)]}


def test_nothing_is_told_of_a_loss_before_the_reader_is_there() -> None:
    losses = LossPolicy(skips=True)
    it = cursor(losses)
    it.add(it.generation, batches(0, 6), (LostRange(3, 6),))
    it.decode()
    assert losses.skipped() == {}
    assert [record.offset for record in it.take(3)] == [0, 1, 2]
    assert it.position == 3
    it.decode()
    assert it.position == 6


def test_a_loss_at_the_end_of_the_log_moves_the_position() -> None:
    it = cursor(LossPolicy(skips=True), 3)
    assert it.add(it.generation, b"", (LostRange(3, 6),))
    assert (it.fetch_offset, it.position) == (6, 3)
    assert not it.decode()
    assert (it.position, it.is_empty, it.take_error()) == (6, True, None)


def test_a_loss_that_cuts_into_a_batch_takes_its_first_records() -> None:
    it = cursor(LossPolicy(skips=True))
    it.add(it.generation, batches(3), (LostRange(0, 4),))
    assert offsets(it) == [4, 5]


def test_who_asks_is_told_at_once_that_there_is_only_a_loss() -> None:
    it = Subscription(LossPolicy(skips=False), check_crcs=True)
    for of in it.add([T0], None):
        of.seek(3)
    fetched = (batches(6), (LostRange(3, 6),))
    it.cursor(T0).add(it.cursor(T0).generation, *fetched)
    with pytest.raises(RecordsLost):
        it.take((), 10, OFFSET_MAX)
    it.cursor(T0).add(it.cursor(T0).generation, *fetched)
    with pytest.raises(RecordsLost):
        it.next_cursor()


def test_there_are_two_ways_to_meet_a_loss() -> None:
    assert [parse_on_loss(name) for name in ("fail", "skip")] == [False, True]
    with pytest.raises(InvalidRequest, match="on_loss must be fail or skip, not 'ignore'"):
        parse_on_loss("ignore")
