"""Consumers by key: which records overtake others, how many are processed at a time, and the bounds of reading."""

from __future__ import annotations

from functools import partial

import pytest

from tests.integration.clients.by_key.conftest import T0, Handler, committed, consumer, produce, running, until
from tests.integration.http.conftest import Site
from tidelog.consumer import parallel_run
from tidelog.consumer.partition_dispatcher import PartitionDispatcher


async def test_one_slow_record_holds_up_its_key_alone_and_a_restart_goes_on_with_what_is_left(site: Site) -> None:
    await produce(site, range(100))
    slow = Handler(0)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(90)
        assert sorted(slow.started) == [0, *(value for value in range(100) if value % 10)]
    found = await committed(site)
    assert (found.low, found.intervals[0], len(found.intervals)) == (0, (1, 10), 10)
    handler = Handler()
    async with running(consumer(site, "t"), handler):
        await handler.until_finished(10)
        assert handler.finished == list(range(0, 100, 10)), "its key's records, in their order"
    assert ((await committed(site)).low, handler.started) == (100, handler.finished)


async def test_total_order_processes_one_record_of_a_partition_at_a_time(four: Site) -> None:
    await produce(four, range(40), partitions=4)
    handler = Handler(0, 9)
    async with running(consumer(four, "t", order="total"), handler):
        await handler.until_finished(20 + 2)
        assert sorted(handler.started) == sorted([0, 1, 5, 9, *(v for v in range(40) if v % 4 > 1)])
        handler.open(0, 9)
        await handler.until_finished(40)
        for partition in range(4):
            of_partition = [value for value in handler.finished if value % 4 == partition]
            assert of_partition == sorted(of_partition)
    assert (await committed(four)).encode() == ""


@pytest.mark.parametrize(("order", "keys"), [("none", 1), ("key", 0)])
async def test_records_that_conflict_with_none_all_overtake_a_slow_one(site: Site, order: str, keys: int) -> None:
    await produce(site, range(20), keys)
    handler = Handler(0, 7)
    async with running(consumer(site, "t", order=order), handler):
        await handler.until_finished(18)
        handler.open(0, 7)
    assert (await committed(site)).low == 20
    assert sorted(handler.started) == list(range(20))


async def test_no_more_records_than_workers_are_processed_at_a_time(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 1, 2)
    async with running(consumer(site, "t"), handler, workers=3):
        await handler.until(lambda: len(handler.started) == 3)
        handler.open(1)
        await handler.until_finished(8)
        assert sorted(handler.finished) == [1, 3, 4, 5, 6, 7, 8, 9]
        handler.open(0, 2)


async def test_without_a_group_a_run_reads_in_total_order(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(4)
    reader = consumer(site, "t", group_id=None, order="total")
    async with running(reader, handler, drain_timeout_ms=0) as task:
        await handler.until_finished(4)
        await reader.stop()
        await task
    assert handler.started == [0, 1, 2, 3, 4]


# -- bounds -----------------------------------------------------------------------------------------------------------


async def test_reading_stops_while_many_records_wait_for_a_key(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = partial(PartitionDispatcher, held_max=8)
    monkeypatch.setattr(parallel_run, "PartitionDispatcher", bounded)
    await produce(site, [0] * 20 + [1] * 4)
    handler = Handler(0)
    reader = consumer(site, "t")
    async with running(reader, handler):
        await until(lambda: reader.assignment() == [T0] and reader.highwater(T0) == 24 and bool(handler.started))
        assert await reader.position(T0) == 8
        assert reader.paused() == [], "which is the program's"
        handler.open(0)
        await handler.until_finished(24)


async def test_a_fetch_buffer_that_is_small_is_enough(site: Site) -> None:
    await produce(site, range(30))
    handler = Handler()
    async with running(consumer(site, "t", fetch_buffer_bytes=1), handler):
        await handler.until_finished(30)
