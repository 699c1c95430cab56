"""What a partition remembers of its producers, against the list of everything they ever sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import IdempotencyKeyReused, OutOfOrderSequence, ProducerFenced
from tidelog.model.ids import KEYED_PRODUCER_BIT
from tidelog.model.producers import BATCHES_REMEMBERED, SEQUENCES, Duplicate, ProducerState, ProducerTable, SeenBatch

PRODUCER = 7


class Sender:
    """One producer and the table, with offsets as a log would give them."""

    def __init__(self, first_sequence: int = 0, producer_id: int = PRODUCER) -> None:
        self.table = ProducerTable(10)
        self.producer_id = producer_id
        self.sequence = first_sequence
        self.epoch = 0
        self.offset = 100

    def send(self, records: int = 1) -> None:
        assert self.table.check(self.producer_id, self.epoch, self.sequence, records) is None
        self.table.remember(self.producer_id, self.epoch, self.sequence, records, self.offset, now_ms=1)
        self.sequence = (self.sequence + records) % SEQUENCES
        self.offset += records

    def repeat(self, sequence: int, records: int = 1) -> Duplicate | None:
        return self.table.check(self.producer_id, self.epoch, sequence % SEQUENCES, records)


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerTable(10).check(PRODUCER, epoch=3, base_sequence=1234, record_count=5) is None


def test_the_first_sequence_that_is_remembered_is_that_of_the_oldest_batch() -> None:
    sender = Sender(first_sequence=40)
    assert (sender.table.first_sequence(PRODUCER), len(sender.table)) == (None, 0)
    for _ in range(BATCHES_REMEMBERED + 1):
        sender.send(2)
    assert (sender.table.first_sequence(PRODUCER), len(sender.table)) == (42, 1)


def test_the_last_batches_are_answered_with_their_offsets() -> None:
    sender = Sender()
    for records in (3, 1, 4, 1, 5, 9):
        sender.send(records)
    assert sender.repeat(0, 3) == (None, None)
    assert [sender.repeat(*batch) for batch in ((3, 1), (4, 4), (8, 1), (9, 5), (14, 9))] == [
        (103, 103),
        (104, 107),
        (108, 108),
        (109, 113),
        (114, 122),
    ]


def test_the_states_as_of_an_offset_know_nothing_of_later_batches() -> None:
    sender = Sender()
    for records in (3, 1, 4, 1, 5, 9):
        sender.send(records)
    sender.table.remember(8, 0, 0, 1, sender.offset, now_ms=1)
    earlier = ProducerTable(10)
    earlier.restore(sender.table.states_before(109))
    assert [producer_id for producer_id, _ in earlier.items()] == [PRODUCER]
    assert earlier.check(PRODUCER, 0, 8, 1) == (108, 108)
    assert earlier.check(PRODUCER, 0, 0, 3) == (None, None)
    assert earlier.check(PRODUCER, 0, 9, 5) is None
    assert sender.repeat(14, 9) == (114, 122)


def test_a_gap_is_refused() -> None:
    sender = Sender()
    sender.send(2)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 3, expected 2"):
        sender.repeat(3)


@pytest.mark.parametrize("batch", [(1, 1), (0, 1), (1, 2), (0, 3), (2, 2)])
def test_a_batch_cut_differently_is_no_repeat(batch: tuple[int, int]) -> None:
    sender = Sender()
    sender.send(2)
    sender.send(1)
    with pytest.raises(OutOfOrderSequence):
        sender.repeat(*batch)


def test_nothing_below_the_first_sequence_seen_is_a_repeat() -> None:
    """It was never appended here, so calling it a duplicate would lose it."""
    sender = Sender(first_sequence=1000)
    for _ in range(20):
        sender.send()
    assert sender.repeat(1000) == (None, None)
    with pytest.raises(OutOfOrderSequence):
        sender.repeat(999)


def test_an_old_epoch_is_fenced_and_a_new_one_starts_at_zero() -> None:
    sender = Sender()
    sender.epoch = 2
    sender.send(5)
    sender.epoch = 1
    with pytest.raises(ProducerFenced, match="has epoch 2; this batch has 1"):
        sender.repeat(0)
    sender.epoch = 3
    with pytest.raises(OutOfOrderSequence, match="starts epoch 3 with sequence 5, not 0"):
        sender.repeat(5)
    sender.sequence = 0
    sender.send(1)
    assert sender.repeat(0) == (105, 105)
    with pytest.raises(OutOfOrderSequence):
        sender.repeat(0, 5)  # of the epoch before


def test_sequences_wrap_round() -> None:
    sender = Sender(first_sequence=SEQUENCES - 3)
    sender.send(2)
    sender.send(2)
    assert sender.sequence == 1
    assert sender.repeat(SEQUENCES - 3, 2) == (100, 101)
    assert sender.repeat(SEQUENCES - 1, 2) == (102, 103)
    sender.send(1)


def test_a_gap_stays_a_gap_after_more_records_than_there_are_sequences() -> None:
    """All sequences have been used by then, but not recently: a gap must not pass for a very old repeat."""
    sender = Sender()
    for records in (*[SEQUENCES // 2 - 1] * 5, *[1] * BATCHES_REMEMBERED):
        sender.send(records)
    for gap in (1, 5, 1000, SEQUENCES // 4):
        with pytest.raises(OutOfOrderSequence):
            sender.repeat(sender.sequence + gap)


def test_a_key_is_for_one_content() -> None:
    sender = Sender(first_sequence=4711, producer_id=KEYED_PRODUCER_BIT | 5)
    sender.send(3)
    assert sender.repeat(4711, 3) == (100, 102)
    with pytest.raises(IdempotencyKeyReused, match="use a new key"):
        sender.repeat(815, 3)


def test_the_producer_silent_longest_is_forgotten_at_the_bound() -> None:
    table = ProducerTable(2)
    for producer, now_ms in ((1, 10), (2, 20), (1, 30), (3, 40)):
        sequence = 0 if table.check(producer, 0, 0, 1) is None else 1
        table.remember(producer, 0, sequence, 1, now_ms, now_ms)
    assert [producer for producer, _ in table.items()] == [1, 3]


def test_silent_producers_expire() -> None:
    table = ProducerTable(10)
    for producer, now_ms in ((1, 10), (2, 20), (3, 30)):
        table.remember(producer, 0, 0, 1, 0, now_ms)
    assert table.expire(before_ms=21) == 2
    assert [producer for producer, _ in table.items()] == [3]
    assert table.check(1, 0, 99, 1) is None


def test_a_restored_table_keeps_its_order_and_its_bound() -> None:
    states = [(n, ProducerState(0, (SeenBatch(0, 1, n),), 1, n)) for n in range(5)]
    table = ProducerTable(3)
    table.restore(iter(states))
    assert list(table.items()) == states[2:]
    table.remember(9, 0, 0, 1, 0, 100)
    assert [producer for producer, _ in table.items()] == [3, 4, 9]


@given(
    first=st.sampled_from([0, 1000, SEQUENCES - 10]),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    probe=st.tuples(st.integers(-60, 60), st.integers(1, 4)),
)
def test_against_the_list_of_all_batches(first: int, sizes: list[int], probe: tuple[int, int]) -> None:
    sender = Sender(first)
    batches: list[tuple[int, int, int]] = []
    for size in sizes:
        batches.append((sender.sequence, size, sender.offset))
        sender.send(size)
    position = sum(sizes) + probe[0]  # in records of the run; behind its end for gaps
    records = probe[1]
    sequence = (first + position) % SEQUENCES
    exact = {(base, size): offset for base, size, offset in batches[-BATCHES_REMEMBERED:]}
    oldest_remembered = sum(sizes[:-BATCHES_REMEMBERED])

    if position == sum(sizes):
        assert sender.repeat(sequence, records) is None
    elif (sequence, records) in exact:
        offset = exact[sequence, records]
        assert sender.repeat(sequence, records) == (offset, offset + records - 1)
    elif position >= 0 and position + records <= oldest_remembered:
        assert sender.repeat(sequence, records) == (None, None)
    else:
        with pytest.raises(OutOfOrderSequence):
            sender.repeat(sequence, records)
