"""Records arrive once, in order, whole; what `send` promises about batches, memory and time."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import suppress
from typing import Any

import pytest
from yarl import URL

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, TopicPartition
from tidelog.model.batch_header import Compression, iter_batches
from tidelog.model.errors import InvalidRequest, TooLarge, UnknownPartition, UnknownTopic
from tidelog.model.partitioner import partition_for_key
from tidelog.producer import Producer, RecordMetadata
from tidelog.producer.accumulator import Batch
from tidelog.testing import LocalCluster
from tidelog.transport.connections import Connections
from tidelog.transport.errors import ClientClosed, ConnectFailed, NoAnswer

pytestmark = pytest.mark.process


async def raw_batches(cluster: LocalCluster, topic: str) -> list[Any]:
    """The headers of all batches in partition 0."""
    connections = Connections(connections_max=1)
    await connections.open()
    url = URL(f"{cluster.bootstrap}/topics/{topic}/partitions/0/batches?offset=0&max_bytes=50000000")
    answer = await connections.request("GET", url, timeout_s=10)
    await connections.close()
    return [batch.header for batch in iter_batches(answer.body)]


async def test_metadata_says_where_a_record_is_and_what_is_guaranteed(cluster: LocalCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"first")
        metadata = await producer.send_and_wait(topic, b"second", timestamp_ms=1_700_000_000_000)
    assert metadata == RecordMetadata(topic, 0, 1, 1_700_000_000_000, 0, (1,), "fsynced")


@pytest.mark.parametrize(("acks", "durability", "offset"), [("all", "fsynced", 0), (1, "leader", 0), (0, "none", None)])
async def test_acks(cluster: LocalCluster, topic: str, read: Any, acks: Any, durability: str, offset: Any) -> None:
    async with Producer(cluster.bootstrap, acks=acks) as producer:
        metadata = await producer.send_and_wait(topic, b"x")
        assert (metadata.durability, metadata.offset) == (durability, offset)
        await producer.send_and_wait(topic, b"y")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"z")  # comes after them in the log, and is committed
    assert [record.value for record in await read(cluster.bootstrap, TopicPartition(topic, 0))] == [b"x", b"y", b"z"]


async def test_many_records_keep_their_order_and_come_once(cluster: LocalCluster, topic: str, read: Any) -> None:
    async with Producer(cluster.bootstrap, batch_size=2000) as producer:
        deliveries = [await producer.send(topic, b"%d" % number) for number in range(20_000)]
        await producer.flush()
        assert all(delivery.done() for delivery in deliveries)
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(20_000))
    records = await read(cluster.bootstrap, TopicPartition(topic, 0))
    assert [record.value for record in records] == [b"%d" % number for number in range(20_000)]


async def test_keys_choose_partitions_and_keep_their_order(cluster: LocalCluster, new_topic: Any, read: Any) -> None:
    topic = await new_topic(partitions=5)
    keys = [b"key-%d" % number for number in range(20)]
    async with Producer(cluster.bootstrap) as producer:
        for number in range(1000):
            await producer.send(topic, b"%d" % number, key=keys[number % 20])
    for partition in range(5):
        records = await read(cluster.bootstrap, TopicPartition(topic, partition))
        assert [record.value for record in records] == [
            b"%d" % number for number in range(1000) if partition_for_key(keys[number % 20], 5) == partition
        ]


async def test_records_without_a_key_reach_all_partitions(cluster: LocalCluster, new_topic: Any, read: Any) -> None:
    topic = await new_topic(partitions=3)
    async with Producer(cluster.bootstrap, batch_size=1000) as producer:
        for _ in range(1000):
            await producer.send(topic, b"x" * 50)
    counts = [len(await read(cluster.bootstrap, TopicPartition(topic, number))) for number in range(3)]
    assert sum(counts) == 1000
    assert min(counts) > 200


async def test_everything_a_record_can_be_comes_back(cluster: LocalCluster, topic: str, read: Any) -> None:
    sent: list[tuple[Any, ...]] = [
        (1, None, None, ()),
        (2, b"", b"", ()),
        (1_700_000_000_000, b"k" * 1000, b"v" * 200_000, (("a", b"1"), ("a", None), ("\u00fc", b""))),
        (4_000, b"\x00\xff", b"\n", (("", b"x" * 500),)),
    ]
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for timestamp, key, value, headers in sent:
            await producer.send(topic, value, key, timestamp_ms=timestamp, headers=headers)
    records = await read(cluster.bootstrap, TopicPartition(topic, 0))
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in records] == sent


@pytest.mark.parametrize("compression", [codec.label for codec in Compression])
async def test_every_compression(cluster: LocalCluster, topic: str, read: Any, compression: str) -> None:
    values = [b"compressible " * 20 + b"%d" % number for number in range(500)]
    async with Producer(cluster.bootstrap, compression_type=compression) as producer:
        await producer.send_batch(topic, values)
    assert [record.value for record in await read(cluster.bootstrap, TopicPartition(topic, 0))] == values
    assert {header.compression.label for header in await raw_batches(cluster, topic)} == {compression}


async def test_send_batch_places_and_numbers_like_send(cluster: LocalCluster, new_topic: Any, read: Any) -> None:
    topic = await new_topic(partitions=4)
    values = [b"%d" % number for number in range(5000)]
    keys = [b"k%d" % (number % 97) if number % 3 else None for number in range(5000)]
    async with Producer(cluster.bootstrap, batch_size=1000) as producer:
        placed = await (await producer.send_batch(topic, values, keys))
        [alone] = await (await producer.send_batch(topic, [None], partition=2))
        assert alone.partition == 2
        assert await (await producer.send_batch(topic, [])) == []
    by_place = {}
    for partition in range(4):
        for record in await read(cluster.bootstrap, TopicPartition(topic, partition)):
            by_place[record.partition, record.offset] = (record.key, record.value)
    assert [by_place[it.partition, it.offset] for it in placed] == list(zip(keys, values, strict=True))
    for key, metadata in zip(keys, placed, strict=True):
        assert key is None or metadata.partition == partition_for_key(key, 4)


async def test_a_batch_lingers_for_company(cluster: LocalCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap, linger_ms=600_000) as producer:
        for number in range(3):
            last = await producer.send(topic, b"%d" % number)
            await asyncio.sleep(0.005)
        await producer.flush()
        await last
    assert [header.record_count for header in await raw_batches(cluster, topic)] == [3]


async def test_who_waits_does_not_linger(cluster: LocalCluster, topic: str) -> None:
    async with asyncio.timeout(30), Producer(cluster.bootstrap, linger_ms=600_000) as producer:
        early = await producer.send(topic, b"0")
        await producer.send_and_wait(topic, b"1")
        assert early.done(), "it shared the batch"
        late = await producer.send(topic, b"2")
        await producer.flush()
        assert late.done()
        pending = await producer.send_batch(topic, [b"3"])
        pending.hurry()
        await pending
        await producer.send(topic, b"4")  # delivered by the end of the block
    assert [header.record_count for header in await raw_batches(cluster, topic)] == [2, 1, 1, 1]


async def test_tasks_that_wait_at_the_same_time_share_batches(cluster: LocalCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        results = await asyncio.gather(*(producer.send_and_wait(topic, b"%d" % number) for number in range(200)))
    assert [result.offset for result in results] == list(range(200))
    # A broker that answers at once sees five to a batch, a busy one more: the rest of a turn shares the next batch.
    assert len(await raw_batches(cluster, topic)) <= 100


async def test_cancelling_a_wait_cancels_nothing_else(cluster: LocalCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap, linger_ms=50) as producer:
        delivery = await producer.send(topic, b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.001)
        assert (await delivery).offset == 0
        assert await delivery == await delivery, "and it can be asked again"


async def test_closing_delivers_what_is_pending(cluster: LocalCluster, topic: str, read: Any) -> None:
    producer = Producer(cluster.bootstrap, linger_ms=600_000, batch_size=500)
    await producer.start()
    for number in range(100):
        await producer.send(topic, b"%d" % number)
    await producer.stop()
    await producer.stop()
    assert len(await read(cluster.bootstrap, TopicPartition(topic, 0))) == 100
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"late")


async def test_a_record_over_the_topics_limit_fails_alone_and_numbers_go_on(
    cluster: LocalCluster, new_topic: Any, read: Any
) -> None:
    topic = await new_topic(configs={"max.message.bytes": "5000"})
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"before")
        with pytest.raises(TooLarge):
            await producer.send_and_wait(topic, b"x" * 6000)
        assert (await producer.send_and_wait(topic, b"after")).offset == 1
        with pytest.raises(TooLarge, match="max_request_size"):
            await producer.send(topic, b"x" * (1 << 20))
    records = await read(cluster.bootstrap, TopicPartition(topic, 0))
    assert [record.value for record in records] == [b"before", b"after"]
    assert {header.producer_epoch for header in await raw_batches(cluster, topic)} == {0}, "definite: nothing to fence"


async def test_failures_nobody_watched_are_told_by_flush_once(
    cluster: LocalCluster, new_topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await new_topic(configs={"max.message.bytes": "1000"})
    caplog.set_level(logging.WARNING)
    async with Producer(cluster.bootstrap) as producer:
        await producer.send(topic, b"x" * 2000)
        with pytest.raises(TooLarge):
            await producer.flush()
        await producer.flush()
        watched = await producer.send(topic, b"x" * 2000)
        with pytest.raises(TooLarge):
            await watched
        await producer.flush()
    assert "not delivered" in caplog.text
    with pytest.raises(TooLarge):
        async with Producer(cluster.bootstrap) as producer:
            await producer.send(topic, b"x" * 2000)


async def test_a_failed_record_is_forgotten_with_its_error(cluster: LocalCluster, new_topic: Any) -> None:
    """A traceback references the frames of those who awaited the record, and so their data."""
    topic = await new_topic(configs={"max.message.bytes": "1000"})
    async with Producer(cluster.bootstrap) as producer:
        with suppress(TooLarge):
            await producer.send_and_wait(topic, b"x" * 2000)
        gc.collect()
        assert [
            thing for thing in gc.get_objects() if isinstance(thing, Batch) and thing.queue.partition.topic == topic
        ] == []


async def test_a_producer_whose_requests_had_not_begun_as_it_stopped_sends_again(
    cluster: LocalCluster, topic: str
) -> None:
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"before")
        unsent = await producer.send(topic, b"unsent")
        unsent.hurry()
        await producer._sender.close()  # before the first step of the task that would send the record
        with pytest.raises(ClientClosed):
            await unsent
        try:
            async with asyncio.timeout(30):
                assert (await producer.send_and_wait(topic, b"after")).offset == 1
        finally:
            await producer._sender.close()  # a record without a task would be waited for without end


async def test_the_callers_own_error_comes_first(cluster: LocalCluster, new_topic: Any) -> None:
    topic = await new_topic(configs={"max.message.bytes": "1000"})

    async def fail_with_a_record_pending() -> None:
        async with Producer(cluster.bootstrap) as producer:
            await producer.send(topic, b"x" * 2000)
            raise KeyError

    with pytest.raises(KeyError):
        await fail_with_a_record_pending()


async def test_what_does_not_exist_is_said_at_once(cluster: LocalCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            await producer.send("no-such-topic", b"x")
        with pytest.raises(UnknownPartition, match="has 1 partitions"):
            await producer.send(topic, b"x", partition=1)
        with pytest.raises(InvalidRequest, match="values and"):
            await producer.send_batch(topic, [b"x"], keys=[])
        with pytest.raises(InvalidRequest, match="timestamp_ms"):
            await producer.send(topic, b"x", timestamp_ms=-1)
        assert await producer.partitions_for(topic) == [0]


async def test_a_topic_that_is_deleted_and_made_again(cluster: LocalCluster, admin: AdminClient, read: Any) -> None:
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await admin.create_topic("again", partitions=2)
        await producer.send_and_wait("again", b"old", partition=1)
        await admin.delete_topic("again")
        with pytest.raises(UnknownTopic):
            await producer.send_and_wait("again", b"lost", partition=1)
        await admin.create_topic("again", partitions=1)
        async with asyncio.timeout(10):
            while True:
                try:
                    await producer.send_and_wait("again", b"new")
                    break
                except (UnknownTopic, UnknownPartition):
                    pass  # the metadata is being renewed beside the sending
    assert [record.value for record in await read(cluster.bootstrap, TopicPartition("again", 0))] == [b"new"]


async def test_new_partitions_are_found(cluster: LocalCluster, new_topic: Any, admin: AdminClient) -> None:
    topic = await new_topic(partitions=1)
    async with Producer(cluster.bootstrap, metadata_max_age_ms=1, linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"x")
        await admin.create_partitions(topic, 2)
        async with asyncio.timeout(10):
            while (await producer.send_and_wait(topic, b"x")).partition == 0:
                pass


async def test_no_broker_there(nobody: str) -> None:
    producer = Producer(nobody, request_timeout_ms=300)
    with pytest.raises(ConnectFailed, match="no connection"):
        await producer.start()
    with pytest.raises(ClientClosed, match="never started"):
        await producer.send("t", b"x")


async def test_bootstrap_takes_the_first_that_answers(cluster: LocalCluster, topic: str, nobody: str) -> None:
    async with Producer(f"{nobody},{cluster.bootstrap}") as producer:
        await producer.send_and_wait(topic, b"x")


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"compression": "brotli"},
        {"linger_ms": -1},
        {"batch_size": 2 << 20},
        {"batch_size": 10},
        {"buffer_memory": 1000},
        {"delivery_timeout_ms": 0},
        {"bootstrap_servers": ""},
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Producer(**options)


async def test_a_tight_loop_of_sends_starves_nobody(cluster: LocalCluster, topic: str) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with Producer(cluster.bootstrap) as producer:
        await producer.send(topic, b"x")
        ticker = asyncio.create_task(tick())
        for _ in range(2000):
            await producer.send(topic, b"x" * 1000)
        seen = ticks
        ticker.cancel()
    assert seen >= 2000 * 1000 // 65536 - 1


async def test_consumers_see_only_what_is_committed_in_order_while_producing(cluster: LocalCluster, topic: str) -> None:
    async with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap) as consumer,
        Producer(cluster.bootstrap) as producer,
    ):

        async def produce() -> None:
            for number in range(3000):
                await producer.send(topic, b"%d" % number)
                if number % 100 == 0:
                    await producer.flush()

        task = asyncio.create_task(produce())
        async with asyncio.timeout(30):
            for number in range(2901):
                assert (await consumer.getone()).value == b"%d" % number
        await task


async def test_a_server_that_is_no_broker_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NoAnswer, match="is this a tidelog broker"):
            await Producer(f"127.0.0.1:{port}").start()


async def test_a_producer_that_is_dropped_names_what_was_not_delivered(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(cluster.bootstrap, linger_ms=600_000)
    await producer.start()
    await producer.send_batch(topic, [b"a", b"b"], partition=0)
    session, sender = producer._session, producer._sender
    with pytest.warns(ResourceWarning, match=rf"without `stop`.*Not delivered: 2 records to {topic}-0$"):
        del producer
    assert f"2 records to {topic}-0" in caplog.text
    await sender.close()
    await session.close()


async def test_a_producer_that_is_dropped_with_nothing_to_deliver_only_warns(
    cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(cluster.bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, b"a")
    session = producer._session
    with pytest.warns(ResourceWarning, match=r"`await producer.stop\(\)`$"):
        del producer
    assert not caplog.text
    await session.close()


async def test_stop_and_the_end_of_the_block_deliver_what_lingers(cluster: LocalCluster, topic: str, read: Any) -> None:
    async with Producer(cluster.bootstrap, linger_ms=600_000) as producer:
        await producer.send(topic, b"a")
    with pytest.raises(KeyError):
        async with Producer(cluster.bootstrap, linger_ms=600_000) as producer:
            await producer.send(topic, b"b")
            raise KeyError
    producer = Producer(cluster.bootstrap, linger_ms=600_000)
    await producer.start()
    await producer.send(topic, b"c")
    await producer.stop()
    found = await read(cluster.bootstrap, TopicPartition(topic, 0))
    assert [record.value for record in found] == [b"a", b"b", b"c"]
