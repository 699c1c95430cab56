"""Tests that an early reader gets released batches behind all committed ones, in order, and none twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from tidelog.broker.partitions.early_reads import RANGES_MAX, EarlyReader
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import FetchedBatches, ReleasedBatches
from tidelog.model.batch_codec import encode_batch
from tidelog.model.early_reads import AboveOffsets


def batch(base_offset: int, count: int) -> bytes:
    return bytes(encode_batch([(0, None, b"v") for _ in range(count)], base_offset=base_offset))


def value(base_offset: int, *counts: int) -> ReleasedBatches:
    """A value of so many batches, each of so many records."""
    data, offset = b"", base_offset
    for count in counts:
        data += batch(offset, count)
        offset += count
    return ReleasedBatches(base_offset, offset, lambda: data)


@dataclass
class Leader:
    """The parts of a `LedPartition` that an early reader sees."""

    high_watermark: int = 10
    values: list[ReleasedBatches] = field(default_factory=list)
    ready: int = 0

    def released(self) -> Sequence[ReleasedBatches]:
        return self.values

    def bytes_ready(self, _offset: int, bytes_max: int) -> int:
        return min(self.ready, bytes_max)


def reader(leader: Leader, *above: tuple[int, int]) -> EarlyReader:
    return EarlyReader(cast("LedPartition", leader), AboveOffsets(above))


def fetched(next_offset: int = 10, high_watermark: int = 10, data: bytes = b"") -> FetchedBatches:
    return FetchedBatches(data, next_offset, 0, high_watermark, high_watermark, 1, 1)


def starts(early: EarlyReader, read: FetchedBatches | None = None, bytes_max: int = 1 << 20) -> list[tuple[int, int]]:
    return [batch.range for batch in early.batches(read or fetched(), bytes_max)]


def test_what_the_reader_lacks_comes_in_order() -> None:
    leader = Leader(values=[value(12, 2), value(16, 1, 3), value(25, 4)])
    assert starts(reader(leader)) == [(12, 14), (16, 17), (17, 20), (25, 29)]
    assert starts(reader(leader, (12, 14), (17, 20))) == [(16, 17), (25, 29)]
    assert starts(reader(leader, (12, 20), (25, 29))) == []


def test_of_a_batch_that_was_read_in_part_the_rest_is_new() -> None:
    leader = Leader(values=[value(12, 6)])
    assert starts(reader(leader, (12, 15))) == [(15, 18)]
    assert starts(reader(leader, (13, 15))) == [(12, 18)]


@pytest.mark.parametrize(
    ("high_watermark", "read"),
    [(10, fetched(9)), (10, fetched(9, 9)), (11, fetched()), (14, fetched())],
    ids=["more is committed", "more was committed since", "it has moved since", "it has passed the hole since"],
)
def test_nothing_comes_before_all_that_is_committed(high_watermark: int, read: FetchedBatches) -> None:
    assert starts(reader(Leader(high_watermark, [value(14, 1)])), read) == []


def test_nothing_comes_while_no_hole_is_below_it() -> None:
    leader = Leader(values=[value(10, 2), value(14, 1)])
    assert starts(reader(leader)) == []
    assert not reader(leader).has_data(10, 1)


def test_nothing_comes_past_what_cannot_be_read() -> None:
    leader = Leader(values=[value(12, 2), ReleasedBatches(15, 16, lambda: None), value(16, 1)])
    assert starts(reader(leader)) == [(12, 14)]
    assert starts(reader(leader, (15, 16))) == [(12, 14), (16, 17)]
    assert not reader(leader, (12, 14)).has_data(10, 1)


def test_the_bound_of_bytes_holds_but_for_the_first_batch() -> None:
    leader = Leader(values=[value(12, 100), value(120, 1), value(130, 1)])
    large, small = len(batch(12, 100)), len(batch(0, 1))
    assert starts(reader(leader), bytes_max=1) == [(12, 112)]
    assert starts(reader(leader), bytes_max=large + small) == [(12, 112), (120, 121)]
    assert starts(reader(leader), fetched(data=b"x"), bytes_max=large) == [], "none is left out for a smaller one"


def test_an_answer_names_so_many_ranges_and_no_more() -> None:
    apart = [value(12 + 2 * number, 1) for number in range(RANGES_MAX + 1)]
    assert len(starts(reader(Leader(values=apart)))) == RANGES_MAX
    together = [value(12 + number, 1) for number in range(RANGES_MAX + 1)]
    assert len(starts(reader(Leader(values=together)))) == RANGES_MAX + 1


def test_a_wait_ends_with_bytes_in_order_or_a_batch_that_is_new() -> None:
    leader = Leader(values=[value(12, 2)])
    assert reader(leader).has_data(10, 1)
    assert not reader(leader, (12, 14)).has_data(10, 1)
    leader.ready = 5
    assert not reader(leader, (12, 14)).has_data(10, 6)
    assert reader(leader, (12, 14)).has_data(10, 5)
