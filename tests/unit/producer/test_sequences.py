"""Numbering: what goes into headers, and what the next batch gets after every kind of end."""

from __future__ import annotations

import pytest

from tidelog.model.errors import OutOfOrderSequence, ProducerFenced
from tidelog.model.ids import ProducerId, TopicPartition
from tidelog.model.producers import ProducerTable
from tidelog.producer.sequences import EPOCH_MAX, Sequences

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def sequences() -> Sequences:
    sequences = Sequences()
    sequences.adopt(ProducerId(7))
    return sequences


def test_sequences_count_records_per_partition(sequences: Sequences) -> None:
    assert sequences.assign(T0, 10) == (7, 0, 0)
    assert sequences.assign(T1, 3) == (7, 0, 0)
    assert sequences.assign(T0, 1) == (7, 0, 10)
    assert sequences.assign(T1, 1) == (7, 0, 3)


def test_sequences_wrap_at_2_31(sequences: Sequences) -> None:
    sequences.assign(T0, 2**31 - 2)
    assert sequences.assign(T0, 5) == (7, 0, 2**31 - 2)
    assert sequences.assign(T0, 1) == (7, 0, 3)


def test_rewind_gives_the_numbers_to_the_next_batch(sequences: Sequences) -> None:
    sequences.assign(T0, 4)
    stamp = sequences.assign(T0, 2)
    sequences.assign(T0, 2)
    sequences.rewind(T0, stamp)
    assert sequences.assign(T0, 9) == (7, 0, 4)


def test_rewind_works_across_the_wrap(sequences: Sequences) -> None:
    sequences.assign(T0, 2**31 - 1)
    stamp = sequences.assign(T0, 10)
    sequences.rewind(T0, stamp)
    assert sequences.assign(T0, 1) == stamp


def test_bump_starts_the_partition_again_and_leaves_others(sequences: Sequences) -> None:
    sequences.assign(T0, 4)
    sequences.assign(T1, 4)
    sequences.bump(T0)
    assert sequences.assign(T0, 1) == (7, 1, 0)
    assert sequences.assign(T1, 1) == (7, 0, 4)


def test_a_producer_id_without_epochs_left_is_replaced(sequences: Sequences) -> None:
    sequences.assign(T0, 1)
    for _ in range(EPOCH_MAX):
        sequences.bump(T0)
    assert sequences.assign(T0, 1) == (7, EPOCH_MAX, 0)
    assert not sequences.needs_id
    sequences.bump(T0)
    assert sequences.needs_id
    sequences.adopt(ProducerId(8))
    assert sequences.assign(T0, 1) == (8, 0, 0)


def test_a_producer_begins_without_an_id() -> None:
    assert Sequences().needs_id


def test_after_a_bump_the_broker_refuses_what_was_under_way(sequences: Sequences) -> None:
    table = ProducerTable(10)
    late = sequences.assign(T0, 4)
    sequences.bump(T0)
    stamp = sequences.assign(T0, 2)
    assert table.check(*stamp, 2) is None
    table.remember(*stamp, 2, 0, 0)
    with pytest.raises(ProducerFenced):
        table.check(*late, 4)


def test_without_a_rewind_the_broker_would_see_a_gap(sequences: Sequences) -> None:
    table = ProducerTable(10)
    first = sequences.assign(T0, 4)
    table.remember(*first, 4, 0, 0)
    refused = sequences.assign(T0, 2)
    ahead = sequences.assign(T0, 2)
    with pytest.raises(OutOfOrderSequence):
        table.check(*ahead, 2)
    sequences.rewind(T0, refused)
    assert table.check(*sequences.assign(T0, 2), 2) is None
