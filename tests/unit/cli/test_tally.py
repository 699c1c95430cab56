from __future__ import annotations

import asyncio

from tidelog.cli.tally import Tally
from tidelog.model.errors import DiskFull, TidelogError, TimedOutAfterAppend
from tidelog.producer import RecordMetadata


def delivered(partition: int, offset: int | None) -> asyncio.Future[RecordMetadata]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(RecordMetadata("t", partition, offset, 0, 0, (1,), "fsynced"))
    return future


def failed(error: TidelogError) -> asyncio.Future[RecordMetadata]:
    future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def test_every_outcome_is_counted_as_what_is_known_of_it() -> None:
    tally = Tally()
    first = DiskFull("no space")
    outcomes = [delivered(0, 5), failed(first), failed(TimedOutAfterAppend("who knows")), failed(DiskFull("again"))]
    await tally.settle(outcomes, 40)
    assert (tally.acknowledged, tally.refused, tally.unknown) == (1, 2, 1)
    assert tally.error is first
    assert tally.shortfall() == ("1 record acknowledged, 2 surely not appended, 1 unknown; offsets 0: 5-5")


async def test_the_summary_names_the_range_of_each_partition() -> None:
    tally = Tally()
    await tally.settle([delivered(1, 7), delivered(0, 0), delivered(1, 8), delivered(0, 3)], 4_000_000)
    tally.seconds = 2.0
    assert tally.summary() == "4 records, 4.0 MB in 2.00 s (2 records/s, 2.0 MB/s); offsets 0: 0-3, 1: 7-8"


async def test_many_partitions_are_only_counted() -> None:
    tally = Tally()
    await tally.settle([delivered(partition, 0) for partition in range(9)], 9)
    assert tally.summary().endswith("; in 9 partitions")


async def test_without_offsets_there_are_no_ranges() -> None:
    tally = Tally()
    await tally.settle([delivered(0, None)], 1)
    assert "offsets" not in tally.summary()
    assert tally.document("t")["partitions"] == [
        {"partition_id": 0, "records": 1, "first_offset": None, "last_offset": None}
    ]


def test_nothing_at_all_divides_by_nothing() -> None:
    assert Tally().summary() == "0 records, 0.0 MB in 0.00 s (0 records/s, 0.0 MB/s)"
