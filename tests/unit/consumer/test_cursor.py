"""Where the reading of one partition stands: positions, hand-out, seeks, damage. Batches are real, nothing else is."""

from __future__ import annotations

import pytest

from tidelog.consumer.cursor import CHUNKS_MAX, Cursor
from tidelog.consumer.losses import LossPolicy
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, parse_header, stamp_append_time
from tidelog.model.errors import DamagedBatch, InvalidBatch, UnknownTopic
from tidelog.model.ids import TopicPartition

T0 = TopicPartition("t", 0)
FAILS = LossPolicy(skips=False)


def batch(base_offset: int, count: int = 3) -> bytearray:
    return encode_batch([(1000 + n, None, b"%d" % (base_offset + n)) for n in range(count)], base_offset=base_offset)


def cursor(position: int | None = 0, losses: LossPolicy = FAILS) -> Cursor:
    it = Cursor(T0, None, losses)
    if position is not None:
        it.seek(position)
    return it


def read_all(it: Cursor) -> list[int]:
    offsets = []
    while it.has_record or it.decode():
        record = it.next_record()
        assert record is not None
        assert record.value == b"%d" % record.offset
        offsets.append(record.offset)
    return offsets


def test_records_come_in_order_with_everything_they_have() -> None:
    it = cursor()
    data = encode_batch([(5, b"k", b"v", [("h", b"x")]), (7, None, None)], base_offset=0)
    assert it.add(it.generation, bytes(data))
    assert it.decode() == len(data)
    assert it.take(10) == [
        ("t", 0, 0, 5, 0, b"k", b"v", (("h", b"x"),)),
        ("t", 0, 1, 7, 0, None, None, ()),
    ]


def test_append_time_is_told_apart() -> None:
    it = cursor()
    data = batch(0)
    stamp_append_time(RecordBatch(parse_header(data), memoryview(data)), 99)
    it.add(it.generation, bytes(data))
    it.decode()
    assert [(record.timestamp_ms, record.timestamp_type) for record in it.take(10)] == [(99, 1)] * 3


def test_fetching_runs_ahead_and_the_position_does_not() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0) + batch(3)))
    assert (it.fetch_offset, it.position) == (6, 0)
    it.decode()
    assert it.position == 0
    it.next_record()
    assert it.position == 1
    assert [record.offset for record in it.take(1)] == [1]
    assert it.position == 2
    assert [record.offset for record in it.take(5)] == [2]
    assert it.position == 3
    it.decode()
    assert [record.offset for record in it.take(3)] == [3, 4, 5]
    assert it.position == 6
    assert it.is_empty


def test_a_list_that_was_handed_out_belongs_to_the_caller() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0) + batch(3)))
    it.decode()
    it.take(3).clear()
    assert it.position == 3
    assert read_all(it) == [3, 4, 5]


def test_a_batch_is_a_column_for_each_field() -> None:
    it = cursor()
    data = encode_batch([(5, b"k", b"v", [("h", b"x")]), (7, None, None)], base_offset=0)
    it.add(it.generation, bytes(data))
    it.decode()
    found = it.take_batch()
    assert (found.topic, found.partition, found.timestamp_type, found.next_offset, len(found)) == ("t", 0, 0, 2, 2)
    assert (list(found.offsets), list(found.timestamps_ms)) == ([0, 1], [5, 7])
    assert (list(found.keys), list(found.values)) == ([b"k", None], [b"v", None])
    assert list(found.headers) == [(("h", b"x"),), ()]
    assert found.records() == [("t", 0, 0, 5, 0, b"k", b"v", (("h", b"x"),)), ("t", 0, 1, 7, 0, None, None, ())]


def test_a_batch_that_is_handed_out_moves_the_position_behind_it() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0) + batch(5)))
    it.decode()
    assert it.position == 0
    assert it.take_batch().values == [b"0", b"1", b"2"]
    assert (it.position, it.has_record) == (3, False)
    it.decode()
    assert list(it.take_batch().offsets) == [5, 6, 7]
    assert (it.position, it.is_empty) == (8, True)


def test_of_a_batch_that_is_walked_through_the_rest_is_handed_out() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0) + batch(3)))
    it.decode()
    it.next_record()
    assert [record.offset for record in it.take(1)] == [1]
    rest = it.take_batch()
    assert (list(rest.offsets), rest.values, rest.next_offset) == ([2], [b"2"], 3)
    assert [record.offset for record in rest.records()] == [2]
    assert read_all(it) == [3, 4, 5]


@pytest.mark.parametrize("position", [0, 1, 2, 3, 5])
def test_a_batch_that_begins_before_the_position_is_cut(position: int) -> None:
    it = cursor(position)
    it.add(it.generation, bytes(batch(0) + batch(3)))
    assert read_all(it) == list(range(position, 6))
    it.seek(position)
    it.add(it.generation, bytes(batch(0) + batch(3)))
    it.decode()
    found = it.take_batch()
    assert found.offsets[0] == position
    assert [record.value for record in found.records()] == [b"%d" % offset for offset in found.offsets]


def test_gaps_are_stepped_over() -> None:
    it = cursor(2)
    it.add(it.generation, bytes(batch(10) + batch(20)))
    assert it.position == 2
    assert read_all(it) == [10, 11, 12, 20, 21, 22]
    assert it.position == it.fetch_offset == 23


def test_a_batch_without_anything_for_us_moves_the_position_past_it() -> None:
    it = cursor(12)
    it.add(it.generation, bytes(batch(9, 3) + batch(20)))  # compaction left 9 to 11 in a batch that once held 12
    assert read_all(it) == [20, 21, 22]
    assert it.position == 23


def test_a_last_batch_that_is_cut_short_is_fetched_again() -> None:
    it = cursor()
    data = bytes(batch(0) + batch(3))
    assert it.add(it.generation, data[:-1])
    assert it.fetch_offset == 3
    assert not it.add(it.generation, bytes(batch(3))[:-1]), "no whole batch is nothing"
    assert it.fetch_offset == 3


def test_two_answers_are_held_and_no_more_are_wanted() -> None:
    it = cursor()
    for number in range(CHUNKS_MAX):
        assert it.wants_more
        it.add(it.generation, bytes(batch(3 * number)))
    assert not it.wants_more
    it.decode()
    assert it.wants_more, "an answer of which all is decoded is let go"


def test_a_paused_cursor_wants_nothing() -> None:
    it = cursor()
    it.is_paused = True
    assert not it.wants_more


def test_a_seek_forgets_what_was_fetched_and_what_is_on_its_way() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0)))
    it.decode()
    it.next_record()
    before = it.generation
    it.seek(100)
    assert (it.position, it.fetch_offset, it.is_empty) == (100, 100, True)
    assert not it.add(before, bytes(batch(3)))
    it.fail(before, UnknownTopic("old news"))
    assert it.error is None
    assert it.is_empty


def test_a_reset_has_no_position_until_it_is_resolved() -> None:
    it = Cursor(T0, "latest", FAILS)
    assert it.has_position
    assert it.position is None
    assert it.resolve_reset(it.generation, 42)
    assert (it.position, it.fetch_offset, it.reset) == (42, 42, None)


def test_a_reset_that_a_seek_overtook_is_dropped() -> None:
    it = Cursor(T0, "latest", FAILS)
    before = it.generation
    it.seek(7)
    assert not it.resolve_reset(before, 42)
    assert it.position == 7


def test_without_reset_and_seek_there_is_no_committed_offset_to_read() -> None:
    it = cursor(None)
    assert not it.has_position
    assert not it.wants_more
    it.seek(0)
    assert it.has_position


def test_an_error_comes_out_after_the_records_before_it() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0)))
    error = UnknownTopic("gone")
    it.fail(it.generation, error)
    assert not it.wants_more
    assert it.take_error() is None
    assert read_all(it) == [0, 1, 2]
    assert it.take_error() is error
    assert it.take_error() is None
    assert it.wants_more, "asking again fetches again"


def damaged(data: bytearray, position: int) -> bytearray:
    data[position] ^= 0xFF
    return data


def test_a_damaged_batch_is_named_and_never_passed_over() -> None:
    it = cursor()
    it.add(it.generation, bytes(batch(0) + damaged(batch(3), 70) + batch(6)))
    assert read_all(it) == [0, 1, 2]
    error = it.take_error()
    assert isinstance(error, DamagedBatch)
    assert "offset 3 is damaged" in error.message
    assert "seek to 6" in error.message
    assert (it.position, it.fetch_offset) == (3, 3), "it is fetched again, perhaps from a repaired replica"
    it.add(it.generation, bytes(batch(3)))
    assert read_all(it) == [3, 4, 5]


def test_records_before_the_position_of_a_damaged_batch_are_not_handed_out_twice() -> None:
    it = cursor(4)
    it.add(it.generation, bytes(damaged(batch(3), 70)))
    assert it.decode() == 0
    assert it.position == 4


def test_without_crc_checks_only_structure_is_damage() -> None:
    it = Cursor(T0, None, FAILS, check_crcs=False)
    it.seek(0)
    flipped = batch(0)
    flipped[-2] ^= 0x01  # the last value's last byte
    it.add(it.generation, bytes(flipped))
    assert it.decode()
    it.seek(0)
    it.add(it.generation, bytes(damaged(batch(0), 61)))  # the first record's length
    assert not it.decode()
    assert isinstance(it.take_error(), DamagedBatch)


def test_bytes_that_are_no_batch_are_refused_on_arrival() -> None:
    it = cursor()
    with pytest.raises(InvalidBatch):
        it.add(it.generation, b"\0" * 100)
