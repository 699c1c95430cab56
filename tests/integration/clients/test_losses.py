"""A consumer of a broker whose answers pass an accepted loss: it stops there, or goes on and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.integration.spark.scripted import Script, ScriptedBroker, scripted_broker
from tidelog.consumer import Consumer, ConsumerRecord, LostRange, RecordsLost, TopicPartition
from tidelog.model.batch_codec import encode_batch

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """It has records 0 to 2 and 6 to 8; those between are lost."""
    with scripted_broker() as broker:
        before, behind = (bytes(encode_batch([(1, None, b"v")] * 3, base_offset=start)) for start in (0, 6))
        end, lost = {"Tidelog-High-Watermark": "9"}, {"Tidelog-Lost": "3-5"}
        broker.always = {
            "offset=0&": Script(200, before + behind, end | lost),
            "offset=3&": Script(200, behind, end | lost),
            "offset=6&": Script(200, behind, end),
            "offset=9&": Script(200, b"", end, delay_s=0.2),
        }
        yield broker


async def take(consumer: Consumer, count: int) -> list[int]:
    async with asyncio.timeout(10):
        return [(await consumer.getone()).offset for _ in range(count)]


@pytest.mark.parametrize("way", ["getone", "getmany", "getbatch"])
async def test_reading_fails_at_a_loss_until_a_seek(broker: ScriptedBroker, way: str) -> None:
    async with Consumer(bootstrap_servers=broker.url, auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await take(consumer, 3) == [0, 1, 2]
        for _ in range(3):
            async with asyncio.timeout(10):
                with pytest.raises(RecordsLost, match="seek to 6") as caught:
                    await (consumer.getmany(timeout_ms=9000) if way == "getmany" else getattr(consumer, way)())
            assert (caught.value.topic, caught.value.partition, caught.value.ranges) == ("t", 0, ((3, 6),))
        assert await consumer.position(T0) == 3
        consumer.seek(T0, 6)
        assert await take(consumer, 3) == [6, 7, 8]
        assert consumer.lost() == {}


async def test_skipping_goes_on_and_says_what_was_lost(broker: ScriptedBroker) -> None:
    async with Consumer(bootstrap_servers=broker.url, auto_offset_reset="none", on_loss="skip") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await take(consumer, 3) == [0, 1, 2]
        assert consumer.lost() == {}
        assert await take(consumer, 3) == [6, 7, 8]
        assert consumer.lost() == {T0: [LostRange(3, 6)]}


async def test_a_run_fails_at_a_loss_when_all_before_it_is_processed_and_goes_on_behind_a_seek(
    broker: ScriptedBroker,
) -> None:
    processed = list[int]()

    async def handle(record: ConsumerRecord) -> None:
        processed.append(record.offset)
        if record.offset == 8:
            is_done.set()

    is_done = asyncio.Event()
    async with Consumer(bootstrap_servers=broker.url, auto_offset_reset="none") as consumer, asyncio.timeout(10):
        consumer.assign([T0])
        consumer.seek(T0, 0)
        for _ in range(2):
            with pytest.raises(RecordsLost, match="seek to 6"):
                await consumer.run(handle)
        assert processed == [0, 1, 2]
        consumer.seek(T0, 6)
        running = asyncio.create_task(consumer.run(handle))
        await is_done.wait()
        await consumer.stop()
        await running
        assert processed == [0, 1, 2, 6, 7, 8]


async def test_a_run_skips_a_loss_and_has_it_processed(broker: ScriptedBroker) -> None:
    processed = list[int]()

    async def handle(record: ConsumerRecord) -> None:
        processed.append(record.offset)
        if record.offset == 8:
            raise ValueError("enough")

    async with (
        Consumer(bootstrap_servers=broker.url, auto_offset_reset="none", on_loss="skip") as consumer,
        asyncio.timeout(10),
    ):
        consumer.assign([T0])
        consumer.seek(T0, 0)
        with pytest.raises(ValueError, match="enough"):
            await consumer.run(handle)
        assert processed == [0, 1, 2, 6, 7, 8]
        assert await consumer.position(T0) == 8


async def test_a_loss_that_cannot_be_read_is_no_leave_to_skip(broker: ScriptedBroker) -> None:
    broken = Script(200, broker.always["offset=6&"].body, {"Tidelog-Lost": "soon"})
    broker.always["offset=3&"] = broken
    async with Consumer(bootstrap_servers=broker.url, auto_offset_reset="none", on_loss="skip") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 3)
        assert await consumer.getmany(timeout_ms=500) == {}
        assert await consumer.position(T0) == 3
