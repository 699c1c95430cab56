"""Reading on a real broker: positions, waiting, pausing, ranges, growth, damage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, OffsetAndTimestamp
from tidelog.model.errors import DamagedBatch, InvalidRequest, OffsetOutOfRange, UnknownPartition, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import ClientClosed

pytestmark = pytest.mark.process


async def produce(cluster: LocalCluster, topic: str, *values: bytes, **options: Any) -> None:
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_batch(topic, values, **options)


async def take(consumer: Consumer, count: int) -> list[bytes | None]:
    """The next values, waiting for as many."""
    async with asyncio.timeout(10):
        return [(await consumer.getone()).value for _ in range(count)]


def flip_byte(path: Path, after: bytes) -> None:
    """Damages the byte that `after` begins with."""
    content = bytearray(path.read_bytes())
    content[content.index(after)] ^= 0xFF
    path.write_bytes(content)


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


# -- where reading begins ------------------------------------------------------------------------------------------


async def test_latest_begins_with_what_comes_after_the_start(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, b"old")
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        await produce(cluster, topic, b"new")
        assert await take(consumer, 1) == [b"new"]


async def test_earliest_begins_at_the_first_record(cluster: LocalCluster, new_topic: Any) -> None:
    topic = await new_topic(partitions=3)
    for partition in range(3):
        await produce(cluster, topic, *numbered(0, 10), partition=partition)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert consumer.assignment() == [TopicPartition(topic, number) for number in range(3)]
        assert sorted(await take(consumer, 30)) == sorted(3 * numbered(0, 10))  # type: ignore[type-var]  # no nulls here


async def test_none_begins_only_with_a_seek(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 3))
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="none") as consumer:
        with pytest.raises(InvalidRequest, match="`seek` first"):
            await consumer.getone()
        with pytest.raises(InvalidRequest, match="`seek` first"):
            await consumer.position(TopicPartition(topic, 0))
        consumer.seek(TopicPartition(topic, 0), 1)
        assert await take(consumer, 2) == [b"1", b"2"]


async def test_assign_reads_these_and_no_others(cluster: LocalCluster, new_topic: Any) -> None:
    topic = await new_topic(partitions=3)
    for partition in range(3):
        await produce(cluster, topic, b"%d" % partition, partition=partition)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 2)
    async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await consumer.getmany() == {}
        consumer.assign([first])
        assert await take(consumer, 1) == [b"0"]
        consumer.assign([second])
        assert consumer.assignment() == [second]
        assert await take(consumer, 1) == [b"2"]
        with pytest.raises(InvalidRequest, match="not assigned"):
            await consumer.getone(first)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        with pytest.raises(InvalidRequest, match="was given topics"):
            consumer.assign([first])


# -- positions -----------------------------------------------------------------------------------------------------


async def test_positions_move_with_what_is_handed_out(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 100))
    partition = TopicPartition(topic, 0)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await consumer.position(partition) == 0
        assert await take(consumer, 10) == numbered(0, 10)
        assert await consumer.position(partition) == 10
        assert consumer.highwater(partition) == 100
        found = await consumer.getmany(timeout_ms=5000, max_records=5)
        assert [record.value for record in found[partition]] == numbered(10, 15)
        consumer.seek(partition, 95)
        assert await consumer.position(partition) == 95
        assert await take(consumer, 5) == numbered(95, 100)
        await consumer.seek_to_beginning()
        assert await take(consumer, 1) == [b"0"]
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 100
        await produce(cluster, topic, b"100")
        assert await take(consumer, 1) == [b"100"]
        with pytest.raises(InvalidRequest, match="offset -1"):
            consumer.seek(partition, -1)


async def test_a_seek_interrupts_a_poll_that_waits(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 3))
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "fetch_max_wait_ms": 20_000}
    async with Consumer(topic, **options) as consumer:
        assert await consumer.getmany(timeout_ms=20) == {}
        consumer.seek(TopicPartition(topic, 0), 1)
        async with asyncio.timeout(10):
            assert (await consumer.getone()).offset == 1


async def test_offsets_of_partitions_and_times(cluster: LocalCluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(cluster.bootstrap) as producer:
        for second in (10, 20, 20, 30):
            await producer.send(topic, b"x", timestamp_ms=1000 * second)
    async with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 4}
        assert await consumer.offsets_for_times({partition: 0}) == {partition: OffsetAndTimestamp(0, 10_000)}
        assert await consumer.offsets_for_times({partition: 15_000}) == {partition: OffsetAndTimestamp(1, 20_000)}
        assert await consumer.offsets_for_times({partition: 30_001}) == {partition: None}
        assert await consumer.partitions_for_topic(topic) == [0]
        with pytest.raises(UnknownPartition):
            await consumer.end_offsets([TopicPartition(topic, 7)])


# -- out of range --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "expected"), [("earliest", b"0"), ("latest", b"new")])
async def test_out_of_range_resets(cluster: LocalCluster, topic: str, policy: str, expected: bytes) -> None:
    await produce(cluster, topic, *numbered(0, 3))
    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        async with asyncio.timeout(10):
            while await consumer.position(partition) == 1000:
                await asyncio.sleep(0.001)
        await produce(cluster, topic, b"new")
        assert await take(consumer, 1) == [expected]


async def test_out_of_range_is_raised_if_there_is_no_policy(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 3))
    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 4)
        for _ in range(2):
            async with asyncio.timeout(10):
                with pytest.raises(OffsetOutOfRange) as caught:
                    await consumer.getone()
            assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 3)
        consumer.seek(partition, 2)
        assert await take(consumer, 1) == [b"2"]


# -- ways of reading -----------------------------------------------------------------------------------------------


async def test_waiting_ends_when_there_is_something(cluster: LocalCluster, topic: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "fetch_max_wait_ms": 20_000}
    async with Consumer(topic, **options) as consumer, Producer(cluster.bootstrap) as producer:
        for number in range(5):
            waiting = asyncio.create_task(consumer.getmany(timeout_ms=20_000))
            await asyncio.sleep(0)
            await producer.send_and_wait(topic, b"%d" % number)
            async with asyncio.timeout(10):
                [records] = (await waiting).values()
            assert [record.value for record in records] == [b"%d" % number]


async def test_waiting_ends_with_its_time(cluster: LocalCluster, topic: str) -> None:
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        async with asyncio.timeout(10):
            assert await consumer.getmany(timeout_ms=20) == {}
            assert await consumer.getmany() == {}


async def test_iteration_ends_when_the_consumer_is_closed(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 2000))
    consumer = Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    seen = []

    async def iterate() -> None:
        async for record in consumer:
            seen.append(record.value)  # noqa: PERF401 - watched while it grows

    iteration = asyncio.create_task(iterate())
    async with asyncio.timeout(10):
        while len(seen) < 2000:
            await asyncio.sleep(0)
        await consumer.stop()
        await iteration
    assert seen == numbered(0, 2000)
    await consumer.stop()
    with pytest.raises(ClientClosed):
        await consumer.getmany()


async def test_a_cancelled_call_has_taken_nothing(cluster: LocalCluster, topic: str) -> None:
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await produce(cluster, topic, *numbered(0, 3))
        assert await take(consumer, 3) == numbered(0, 3)


async def test_batches_come_as_they_were_produced_and_move_the_position(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 100))
    await produce(cluster, topic, *numbered(100, 110))
    partition = TopicPartition(topic, 0)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await take(consumer, 10) == numbered(0, 10)
        async with asyncio.timeout(10):
            first, second = [await consumer.getbatch(), await consumer.getbatch(partition)]
        assert (first.values, second.values) == (numbered(10, 100), numbered(100, 110))
        assert (first.next_offset, second.next_offset) == (100, 110)
        assert await consumer.position(partition) == 110
        consumer.seek(partition, 105)
        async with asyncio.timeout(10):
            batch = await consumer.getbatch()
        assert list(batch.offsets) == [*range(105, 110)]
        assert [record.value for record in batch.records()] == batch.values == numbered(105, 110)


async def test_batches_end_when_the_consumer_is_closed(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, *numbered(0, 3))
    consumer = Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    async with asyncio.timeout(10):
        async for batch in consumer.batches():
            assert batch.values == numbered(0, 3)
            await consumer.stop()
    with pytest.raises(ClientClosed):
        await consumer.getbatch()


async def test_a_call_for_a_batch_that_is_cancelled_has_taken_nothing(cluster: LocalCluster, topic: str) -> None:
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getbatch(), 0.01)
        await produce(cluster, topic, *numbered(0, 3))
        async with asyncio.timeout(10):
            assert (await consumer.getbatch()).values == numbered(0, 3)


async def test_batches_of_partitions_that_are_neither_paused_nor_left_out(
    cluster: LocalCluster, new_topic: Any
) -> None:
    topic = await new_topic(partitions=3)
    for partition in range(3):
        await produce(cluster, topic, *numbered(0, 2), partition=partition)
    paused, chosen, other = (TopicPartition(topic, number) for number in range(3))
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.pause(paused)
        async with asyncio.timeout(10):
            assert (await consumer.getbatch(chosen)).partition == 1
            assert (await consumer.getbatch()).partition == 2
        assert [await consumer.position(at) for at in (paused, chosen, other)] == [0, 2, 2]
        consumer.resume(paused)
        async with asyncio.timeout(10):
            assert (await consumer.getbatch()).partition == 0


async def test_paused_partitions_stay_where_they_are(cluster: LocalCluster, new_topic: Any) -> None:
    topic = await new_topic(partitions=2)
    still, moving = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in range(2):
        await produce(cluster, topic, *numbered(0, 5), partition=partition)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.pause(still)
        assert consumer.paused() == [still]
        assert await take(consumer, 5) == numbered(0, 5)
        assert await consumer.getmany(timeout_ms=20) == {}
        assert (await consumer.position(still), await consumer.position(moving)) == (0, 5)
        consumer.resume(still)
        assert await take(consumer, 2) == numbered(0, 2)
        consumer.pause(still)
        assert await consumer.getmany(timeout_ms=20) == {}, "also in the middle of a batch"
        consumer.resume()
        assert await take(consumer, 3) == numbered(2, 5)


async def test_records_of_chosen_partitions_only(cluster: LocalCluster, new_topic: Any) -> None:
    topic = await new_topic(partitions=2)
    for partition in range(2):
        await produce(cluster, topic, b"%d" % partition, partition=partition)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        for number in (1, 0):
            chosen = TopicPartition(topic, number)
            assert (await consumer.getone(chosen)).value == b"%d" % number
            assert await consumer.getmany(chosen, timeout_ms=10) == {}


async def test_more_partitions_than_polls_at_a_time(cluster: LocalCluster, new_topic: Any) -> None:
    topic = await new_topic(partitions=40)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "fetch_max_wait_ms": 50}
    async with Consumer(topic, **options) as consumer, Producer(cluster.bootstrap) as producer:
        for number in range(40):
            await producer.send(topic, b"%d" % number, partition=number)
        assert sorted(await take(consumer, 40)) == sorted(numbered(0, 40))  # type: ignore[type-var]  # no nulls here


async def test_a_record_larger_than_a_fetch(cluster: LocalCluster, topic: str) -> None:
    await produce(cluster, topic, b"x" * 300_000, b"small")
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest"}
    async with Consumer(topic, max_partition_fetch_bytes=1000, **options) as consumer:
        assert [len(value or b"") for value in await take(consumer, 2)] == [300_000, 5]


# -- changes and faults --------------------------------------------------------------------------------------------


async def test_partitions_added_later_are_read_from_their_beginning(
    cluster: LocalCluster, topic: str, admin: AdminClient
) -> None:
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=50) as consumer:
        await admin.create_partitions(topic, 2)
        await produce(cluster, topic, b"first", partition=1)
        assert await take(consumer, 1) == [b"first"]


async def test_a_topic_that_is_deleted_is_an_error_every_time(
    cluster: LocalCluster, admin: AdminClient, new_topic: Any
) -> None:
    topic = await new_topic()
    await produce(cluster, topic, b"x")
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await take(consumer, 1) == [b"x"]
        await admin.delete_topic(topic)
        for _ in range(2):
            with pytest.raises(UnknownTopic):
                await take(consumer, 1)
    with pytest.raises(UnknownTopic, match="does not exist"):
        await Consumer(topic, bootstrap_servers=cluster.bootstrap).start()


async def test_a_broker_that_restarts_is_waited_for(own_cluster: LocalCluster, own_topic: str) -> None:
    async with Consumer(own_topic, bootstrap_servers=own_cluster.bootstrap) as consumer:
        await produce(own_cluster, own_topic, b"before")
        assert await take(consumer, 1) == [b"before"]
        own_cluster.kill()
        await asyncio.to_thread(own_cluster.restart)
        await produce(own_cluster, own_topic, b"after")
        assert await take(consumer, 1) == [b"after"]


async def test_damage_on_disk_is_raised_and_never_skipped(own_cluster: LocalCluster, own_topic: str) -> None:
    async with AdminClient(own_cluster.bootstrap) as admin:
        topic_id = (await admin.describe_topic(own_topic)).topic_id
    async with Producer(own_cluster.bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait(own_topic, b"value-%d" % number)
    own_cluster.stop()
    flip_byte(own_cluster.broker().data_dir / "topics" / topic_id / "0" / f"{0:020}.log", b"value-2")
    await asyncio.to_thread(own_cluster.restart)
    partition = TopicPartition(own_topic, 0)
    async with Consumer(own_topic, bootstrap_servers=own_cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await take(consumer, 2) == [b"value-0", b"value-1"]
        for _ in range(2):
            async with asyncio.timeout(10):
                with pytest.raises(DamagedBatch, match="2"):
                    await consumer.getone()
        assert await consumer.position(partition) == 2
        consumer.seek(partition, 3)
        assert await take(consumer, 2) == [b"value-3", b"value-4"]


@pytest.mark.parametrize(
    "options", [{"auto_offset_reset": "middle"}, {"fetch_max_wait_ms": -1}, {"bootstrap_servers": ","}]
)
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Consumer("t", **options)
