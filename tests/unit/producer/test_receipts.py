"""Answers to produce requests, and the places of repeated batches that a broker no longer remembers."""

from __future__ import annotations

import pytest

from tidelog.model.batch_header import Compression
from tidelog.model.ids import TopicPartition
from tidelog.producer.accumulator import Accumulator, Batch, BatchReceipt
from tidelog.producer.receipts import fill_in, parse_receipts
from tidelog.transport.errors import NoAnswer


def test_an_answer_becomes_a_receipt_per_batch() -> None:
    body = (
        b'{"topic":"t","partition":0,"batches":[{"base_offset":5,"last_offset":6},{"base_offset":null,'
        b'"last_offset":null}],"leader_epoch":3,"acked_by":[1,2],"durability":"fsynced","new":1}'
    )
    assert parse_receipts(body, 2) == [
        BatchReceipt(5, 3, (1, 2), "fsynced"),
        BatchReceipt(None, 3, (1, 2), "fsynced"),
    ]


def test_no_body_promises_nothing() -> None:
    assert parse_receipts(b"", 2) == [BatchReceipt(None, -1, (), "none")] * 2


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        b'{"batches":[],"leader_epoch":0,"acked_by":[],"durability":"x"}',
        b'{"batches":[{"base_offset":"1"}],"leader_epoch":0,"acked_by":[],"durability":"x"}',
    ],
)
def test_what_is_no_receipt_leaves_the_outcome_open(body: bytes) -> None:
    with pytest.raises(NoAnswer):
        parse_receipts(body, 1)


def batches(*counts: int) -> list[Batch]:
    accumulator = Accumulator(
        batch_bytes=1, linger_s=0, compression=Compression.NONE, buffer_memory=1, on_ready=lambda queue: None
    )
    made = []
    for count in counts:
        batch = Batch(accumulator.queue(TopicPartition("t", 0)), 0, 0, 1)
        batch.record_count = count
        made.append(batch)
    return made


def test_places_are_counted_back_from_the_next_one_known() -> None:
    known = [BatchReceipt(offset, 1, (1,), "fsynced") for offset in (None, None, 100, 107, None, 120)]
    filled = fill_in(known, batches(3, 2, 7, 4, 9, 1))
    assert [receipt.base_offset for receipt in filled] == [95, 98, 100, 107, 111, 120]
    assert known[0].base_offset is None, "the argument is the caller's"


def test_without_a_known_place_after_it_a_batch_stays_unknown() -> None:
    receipts = [BatchReceipt(offset, 1, (1,), "fsynced") for offset in (5, None)]
    assert fill_in(receipts, batches(1, 1)) == receipts
