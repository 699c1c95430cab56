"""Consumers by key: what they commit, and what plain members of their group make of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.clients.by_key.conftest import (
    T0,
    WAIT_S,
    Handler,
    broker,
    committed,
    consumer,
    produce,
    running,
    url,
)
from tests.integration.http.conftest import Site
from tidelog.consumer import Consumer, OffsetAndMetadata


async def test_what_is_processed_is_committed_as_it_goes_and_by_hand(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 5)
    reader = consumer(site, "t", auto_commit_interval_ms=1)
    async with running(reader, handler):
        await handler.until_finished(8)
        async with asyncio.timeout(WAIT_S):
            while await reader.committed(T0) is None or (await committed(site)).intervals != [(1, 5), (6, 10)]:
                await asyncio.sleep(0.01)
        assert reader.lag() == {T0: 10}
        handler.open(0, 5)
    await produce(site, range(10, 20))
    by_hand = Handler(10, 12)
    reader = consumer(site, "t", enable_auto_commit=False)
    async with running(reader, by_hand):
        await by_hand.until_finished(8)
        await reader.commit()
        assert (await committed(site)).intervals == [(11, 12), (13, 20)]
        by_hand.open(10, 12)
        await by_hand.until_finished(10)
    assert (await committed(site)).low == 10, "nobody has committed the rest"


async def test_plain_members_of_the_group_go_on_at_the_low_offset(site: Site) -> None:
    await produce(site, range(10))
    slow = Handler(2)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(9)
    async with consumer(site, "t", order="total") as plain, asyncio.timeout(WAIT_S):
        while await plain.getmany(timeout_ms=5) == {}:
            pass
        assert (await committed(site)).intervals == [(3, 10)], "who has read nothing commits nothing"
        await plain.seek_to_beginning()
        assert [(await plain.getone()).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        await plain.commit()
    handler = Handler()
    async with running(consumer(site, "t"), handler):
        await handler.until_finished(5)
    assert handler.finished == [5, 6, 7, 8, 9], "a plain member's commit says nothing of what is above it"


async def test_the_metadata_of_other_programs_is_left_alone_until_there_is_more_to_say(site: Site) -> None:
    await produce(site, range(5))
    async with consumer(site, "t", order="total", enable_auto_commit=False) as plain, asyncio.timeout(WAIT_S):
        await plain.getone()
        await plain.commit({T0: OffsetAndMetadata(2, "half")})
    slow = Handler(2)
    async with running(consumer(site, "t"), slow, workers=1, drain_timeout_ms=0):
        await slow.until(lambda: slow.started == [2])
    async with Consumer(bootstrap_servers=url(site), group_id="g") as reader:
        found = await reader.committed(T0, metadata=True)
    assert found == OffsetAndMetadata(2, "half")
    handler = Handler(2)
    async with running(consumer(site, "t"), handler, drain_timeout_ms=0):
        await handler.until_finished(2)
    assert (await committed(site)).intervals == [(3, 5)]


async def test_brokers_that_take_no_long_metadata_get_low_offsets(caplog: pytest.LogCaptureFixture) -> None:
    async with broker(1, **{"offset.metadata.max.bytes": 20}) as site:
        await produce(site, range(10))
        slow = Handler(1)
        async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
            await slow.until_finished(9)
        found = await committed(site)
        assert (found.low, found.intervals) == (1, [])
        assert "offset.metadata.max.bytes" in caplog.text
