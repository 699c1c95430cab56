"""Consumers by key: seeks, pauses, partitions assigned by hand, and records that retention deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.integration.clients.by_key.conftest import (
    T0,
    WAIT_S,
    Handler,
    committed,
    consumer,
    produce,
    running,
    until,
    url,
)
from tests.integration.http.conftest import Site
from tidelog.admin import AdminClient
from tidelog.consumer import ConsumerRebalanceListener, TopicPartition
from tidelog.model.errors import InvalidRequest, OffsetOutOfRange


async def test_listeners_seek_and_partitions_by_hand_have_their_intervals(site: Site) -> None:
    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            reader.seek(T0, 0)

    await produce(site, range(10))
    slow = Handler(2)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(9)
    by_hand = consumer(site)
    by_hand.assign([T0])
    again = Handler(2)
    async with running(by_hand, again, drain_timeout_ms=0):
        await again.until(lambda: again.started == [2])
        await by_hand.commit()
    reader = consumer(site)
    reader.subscribe(["t"], listener=Seeking())
    handler = Handler()
    async with running(reader, handler):
        await handler.until_finished(10)
        assert sorted(handler.finished) == list(range(10)), "a seek means everything from there on"


async def test_a_seek_begins_anew_and_a_pause_holds_back(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 9)
    reader = consumer(site, "t")
    async with running(reader, handler):
        await handler.until_finished(8)
        reader.seek(T0, 1)
        await handler.until_finished(16)
        assert handler.started.count(9) == 1, "its key is busy"
        handler.open(9, 0)
        await handler.until(lambda: handler.started.count(9) == 2)
        assert handler.started.count(0) == 1
        await handler.until_finished(19)
        reader.pause(T0)
        await produce(site, [10])
        await until(lambda: reader.highwater(T0) == 11 or bool(reader.paused()))
        reader.resume(T0)
        await handler.until_finished(20)
        await reader.seek_to_beginning(T0)
        await handler.until_finished(31)
    assert (await committed(site)).low == 11


async def test_intervals_hold_when_the_log_begins_above_the_low_offset(site: Site) -> None:
    await produce(site, range(20))
    slow = Handler(2, 14)
    async with running(consumer(site, "t"), slow, drain_timeout_ms=0):
        await slow.until_finished(20 - 4 + 1)  # 12 waits behind 2
    async with AdminClient(url(site)) as admin:
        await admin.delete_records("t", 0, 10)
    handler = Handler(12)
    async with running(consumer(site, "t"), handler, drain_timeout_ms=0):
        await handler.until_finished(1)
        assert sorted(handler.started) == [12, 14]
    assert (await committed(site)).low == 12
    async with AdminClient(url(site)) as admin:
        await admin.delete_records("t", 0, 15)
    with pytest.raises(OffsetOutOfRange):
        async with consumer(site, "t", auto_offset_reset="none") as strict, asyncio.timeout(WAIT_S):
            await strict.run(handler)


async def test_without_a_position_the_run_says_so(site: Site) -> None:
    async with consumer(site, "t", auto_offset_reset="none") as helpless, asyncio.timeout(WAIT_S):
        with pytest.raises(InvalidRequest, match="`seek` first"):
            await helpless.run(Handler())
