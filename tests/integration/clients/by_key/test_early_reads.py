"""Consumers by key that read above the high watermark, at a real broker.

One broker commits at once, so no hole can open: what its leader has released is told to it by the test, and is produced
for real when the hole is filled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tests.integration.clients.by_key.conftest import Handler, committed, consumer, produce, running, url
from tests.integration.http.conftest import Site
from tidelog.admin import AdminClient
from tidelog.broker.partitions.partition_handle import ReleasedBatches
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.routing.led_here import LedHere
from tidelog.consumer import Consumer
from tidelog.model.batch_codec import encode_batch
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimRunner

KEYS = 10


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A broker with the partition `t-0`, in order by key."""
    site = Site(SimDisk(), SimRunner(random.Random(0), mean_s=0.0002), lingering_s=0.05)
    await site.start({"group.min.session.timeout.ms": 100})
    await site.topic(commit_protocol="paxos", commit_order="key")
    yield site
    await site.stop()


class Leader:
    """The leader of `t-0`, whose record at each offset has the offset as its value."""

    def __init__(self, site: Site) -> None:
        found = site.broker.partition("t", 0)
        assert isinstance(found, LedHere) and isinstance(found.led, PaxosPartition)
        self.led = found.led
        self.values: list[ReleasedBatches] = []
        self.led.released = self._released  # type: ignore[method-assign]  # what the test says

    def _released(self) -> list[ReleasedBatches]:
        return [value for value in self.values if value.base_offset >= self.led.high_watermark]

    def release(self, *offsets: int) -> None:
        """Releases consecutive offsets as one batch."""
        records = [(0, b"%d" % (offset % KEYS), b"%d" % offset) for offset in offsets]
        data = encode_batch(records, base_offset=offsets[0])
        self.values.append(ReleasedBatches(offsets[0], offsets[-1] + 1, lambda: data))
        self.values.sort(key=lambda value: value.base_offset)
        self.led.watchers.wake_all()


async def test_records_above_a_hole_are_processed_once_and_a_restart_goes_on_with_what_is_left(site: Site) -> None:
    leader = Leader(site)
    await produce(site, range(3), KEYS)
    handler = Handler(6)
    async with running(consumer(site, "t", fetch_max_wait_ms=20_000), handler, drain_timeout_ms=0):
        await handler.until_finished(3)
        leader.release(5, 6, 7)
        await handler.until(lambda: {0, 1, 2, 5, 7} <= set(handler.finished))
        leader.release(10)
        await handler.until_finished(6)
        assert sorted(handler.started) == [0, 1, 2, 5, 6, 7, 10]
    found = await committed(site)
    assert (found.low, found.intervals) == (3, [(5, 6), (7, 8), (10, 11)])
    again = Handler(3)
    async with running(consumer(site, "t", fetch_max_wait_ms=20_000), again):
        await again.until_finished(1)
        assert again.started == [6]
        await produce(site, range(3, 12), KEYS)  # the hole is filled
        await again.until(lambda: sorted(again.started) == [3, 4, 6, 8, 9, 11])
        again.open(3)
        await again.until_finished(6)
    assert (await committed(site)).low == 12
    assert sorted(again.started) == [3, 4, 6, 8, 9, 11]


async def test_records_of_a_key_come_in_their_order_past_a_hole(site: Site) -> None:
    leader = Leader(site)
    await produce(site, range(3), KEYS)
    handler = Handler(1)
    async with running(consumer(site, "t"), handler):
        await handler.until_finished(2)
        leader.release(11, 12)
        leader.release(21)
        await handler.until_finished(3)
        assert handler.finished == [0, 2, 12]
        handler.open(1)
        await handler.until_finished(5)
        assert handler.finished == [0, 2, 12, 1, 11, 21]
        await produce(site, range(3, 22), KEYS)
        await handler.until_finished(22)
    assert sorted(handler.started) == list(range(22))


async def test_a_handler_that_fails_has_its_record_processed_again_and_no_other(site: Site) -> None:
    leader = Leader(site)
    await produce(site, range(2), KEYS)
    leader.release(4, 5, 6)

    async def fail(record: object) -> None:
        raise ValueError(record)

    handler = Handler()
    async with consumer(site, "t", enable_auto_commit=False) as reader:
        with pytest.raises(ValueError, match="offset=0"):
            await reader.run(fail, workers=1)
        run = asyncio.create_task(reader.run(handler))
        await handler.until_finished(5)
        await reader.commit()
        assert sorted(handler.started) == [0, 1, 4, 5, 6]
        await reader.stop()
        await run
    found = await committed(site)
    assert (found.low, found.intervals) == (2, [(4, 7)])


@pytest.mark.parametrize(("topic_order", "order"), [("none", "key"), ("total", "key"), ("total", "none")])
async def test_topics_in_another_order_are_read_as_ever(site: Site, topic_order: str, order: str) -> None:
    async with AdminClient(url(site)) as admin:
        await admin.delete_topic("t")
    await site.topic(commit_protocol="paxos", commit_order=topic_order)
    leader = Leader(site)
    await produce(site, range(3), KEYS)
    leader.release(5)
    handler = Handler()
    async with running(consumer(site, "t", order=order), handler):
        await handler.until_finished(3)
        await produce(site, range(3, 6), KEYS)
        await handler.until_finished(6)
    assert sorted(handler.started) == list(range(6))


async def test_readers_in_total_order_notice_nothing(site: Site) -> None:
    leader = Leader(site)
    await produce(site, range(3), KEYS)
    leader.release(5)
    async with Consumer("t", bootstrap_servers=url(site), auto_offset_reset="earliest", fetch_max_wait_ms=50) as reader:
        assert [(await reader.getone()).offset for _ in range(3)] == [0, 1, 2]
        assert await reader.getmany(timeout_ms=200) == {}
