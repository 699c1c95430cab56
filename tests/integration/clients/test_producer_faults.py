"""Lost answers, dead and silent brokers, full buffers: nothing acknowledged is lost, nothing comes twice or out of
order, and every record gets an outcome that is true."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clients.losing_proxy import LosingProxy
from tidelog.admin import AdminClient
from tidelog.consumer import TopicPartition
from tidelog.model.errors import TidelogError
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import BufferFull, ClientClosed, DeliveryExpired, DeliveryUnknown

pytestmark = pytest.mark.process


async def values(read: Any, bootstrap: str, topic: str) -> list[bytes]:
    return [record.value for record in await read(bootstrap, TopicPartition(topic, 0))]


async def offset_of(producer: Producer, topic: str, value: bytes) -> int | None:
    """Sends a record until it is delivered, and returns its offset: the delivery timeouts here are short, and a busy
    machine or a broker that has only just started may take longer. A delivery that expires has appended nothing."""
    async with asyncio.timeout(30):
        while True:
            try:
                return (await producer.send_and_wait(topic, value)).offset
            except DeliveryExpired:
                continue


# -- answers that get lost -----------------------------------------------------------------------------------------


@pytest.fixture(params=["http", "kafka"])
async def proxy(request: pytest.FixtureRequest, doors: LocalCluster) -> AsyncIterator[LosingProxy]:
    """Loses answers to records that go over HTTP, or in frames."""
    async with LosingProxy(doors, request.param) as proxy:
        yield proxy


@pytest.fixture
async def topic(doors: LocalCluster, topic_names: Iterator[str]) -> str:
    """A topic of one partition, of the broker behind the proxy."""
    name = next(topic_names)
    async with AdminClient(doors.bootstrap) as admin:
        await admin.create_topic(name, partitions=1)
    return name


async def test_a_lost_answer_is_asked_for_again_and_nothing_comes_twice(
    doors: LocalCluster, topic: str, proxy: LosingProxy, read: Any
) -> None:
    async with Producer(proxy.bootstrap, transport=proxy.transport) as producer:
        offsets = []
        for number in range(8):
            proxy.answers_to_lose = number % 3
            offsets.append((await producer.send_and_wait(topic, b"%d" % number)).offset)
    assert proxy.answers_lost == 7
    assert offsets == list(range(8))
    assert await values(read, doors.bootstrap, topic) == [b"%d" % number for number in range(8)]


async def test_the_places_of_many_batches_survive_a_lost_answer(
    doors: LocalCluster, topic: str, proxy: LosingProxy, read: Any
) -> None:
    """A broker remembers five batches of a producer; a request may hold more."""
    async with Producer(proxy.bootstrap, transport=proxy.transport, batch_size=200, linger_ms=600_000) as producer:
        await producer.send_and_wait(topic, b"before")
        first = await producer.send(topic, b"x" * 100)
        proxy.answers_to_lose = 1
        rest = await producer.send_batch(topic, [b"%d" % number + b"x" * 100 for number in range(40)])
        rest.hurry()
        assert [metadata.offset for metadata in await rest] == list(range(2, 42))
        assert (await first).offset == 1
    assert proxy.answers_lost == 1
    assert len(await values(read, doors.bootstrap, topic)) == 42


async def test_without_numbers_a_lost_answer_is_unknown_and_not_repeated(
    doors: LocalCluster, topic: str, proxy: LosingProxy, read: Any
) -> None:
    async with Producer(proxy.bootstrap, transport=proxy.transport, enable_idempotence=False) as producer:
        proxy.answers_to_lose = 1
        with pytest.raises(DeliveryUnknown) as caught:
            await producer.send_and_wait(topic, b"x")
        assert not caught.value.definite
        assert proxy.produce_requests == 1
        await producer.send_and_wait(topic, b"y")
    assert await values(read, doors.bootstrap, topic) == [b"x", b"y"]


async def test_giving_up_after_lost_answers_fences_the_past(
    doors: LocalCluster, topic: str, proxy: LosingProxy, read: Any
) -> None:
    async with Producer(proxy.bootstrap, transport=proxy.transport, delivery_timeout_ms=1000) as producer:
        proxy.answers_to_lose = 1_000_000
        with pytest.raises(DeliveryUnknown, match="whether it was appended is unknown"):
            await offset_of(producer, topic, b"unknown")
        proxy.answers_to_lose = 0
        assert await offset_of(producer, topic, b"next") == 1
        assert await offset_of(producer, topic, b"last") == 2
    assert proxy.answers_lost > 1
    assert await values(read, doors.bootstrap, topic) == [b"unknown", b"next", b"last"]


async def test_closing_with_a_request_under_way_tells_unknown_from_unsent(topic: str, proxy: LosingProxy) -> None:
    producer = Producer(proxy.bootstrap, transport=proxy.transport, linger_ms=600_000)
    await producer.start()
    await producer.send_and_wait(topic, b"x")
    proxy.answers_to_lose = 1_000_000
    under_way = await producer.send(topic, b"y")
    under_way.hurry()
    async with asyncio.timeout(10):
        while not proxy.answers_lost:
            await asyncio.sleep(0)
    waiting = await producer.send(topic, b"z")
    stop = asyncio.create_task(producer.stop())
    await asyncio.sleep(0)
    stop.cancel()
    await asyncio.gather(stop, return_exceptions=True)
    with pytest.raises(DeliveryUnknown):
        await under_way
    with pytest.raises(ClientClosed):
        await waiting


# -- brokers that die and come back --------------------------------------------------------------------------------


async def test_a_killed_broker_costs_time_and_nothing_else(
    own_cluster: LocalCluster, own_topic: str, read: Any
) -> None:
    sent = 0
    deliveries = []
    async with Producer(own_cluster.bootstrap, batch_size=1000) as producer:

        async def produce(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                deliveries.append(await producer.send(own_topic, b"%d" % sent + b"." * 50))
                sent += 1
                await asyncio.sleep(0)

        for _ in range(2):
            await produce(500)
            busy = asyncio.create_task(produce(2000))
            own_cluster.kill()
            await asyncio.to_thread(own_cluster.restart)
            await busy
        await produce(100)
        offsets = [(await delivery).offset for delivery in deliveries]
    # A broker keeps the offsets of a producer's last five batches. The client counts others of its request back from
    # these, unless two answers were lost: then each of the tries may have appended a part (`RecordMetadata.offset`).
    assert [(number, offset) for number, offset in enumerate(offsets) if offset not in (number, None)] == []
    found = await values(read, own_cluster.bootstrap, own_topic)
    assert found == [b"%d" % number + b"." * 50 for number in range(sent)]


async def test_a_silent_broker_is_asked_again_when_the_request_times_out(
    own_cluster: LocalCluster, own_topic: str, read: Any
) -> None:
    async with Producer(own_cluster.bootstrap, request_timeout_ms=100) as producer:
        await producer.send_and_wait(own_topic, b"0")
        own_cluster.pause()
        deliveries = []
        for number in range(1, 4):
            deliveries.append(asyncio.create_task(producer.send_and_wait(own_topic, b"%d" % number)))
            await asyncio.sleep(0.15)  # longer than the request's timeout
        assert not any(delivery.done() for delivery in deliveries)
        own_cluster.resume()
        assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
    assert await values(read, own_cluster.bootstrap, own_topic) == [b"0", b"1", b"2", b"3"]


async def test_records_for_a_dead_broker_expire_for_certain_and_life_goes_on(
    own_cluster: LocalCluster, own_topic: str, read: Any
) -> None:
    async with Producer(own_cluster.bootstrap, delivery_timeout_ms=400) as producer:
        assert await offset_of(producer, own_topic, b"before") == 0
        own_cluster.kill()
        with pytest.raises((DeliveryExpired, DeliveryUnknown)):  # the old connection may have taken the first try
            await producer.send_and_wait(own_topic, b"expired")
        with pytest.raises(DeliveryExpired) as caught:
            await producer.send_and_wait(own_topic, b"expired")
        assert caught.value.definite
        await asyncio.to_thread(own_cluster.restart)
        assert await offset_of(producer, own_topic, b"after") == 1
    assert await values(read, own_cluster.bootstrap, own_topic) == [b"before", b"after"]


async def test_a_broker_that_lost_its_memory_of_the_producer_takes_it_on_anew(
    own_cluster: LocalCluster, own_topic: str, read: Any
) -> None:
    async with AdminClient(own_cluster.bootstrap) as admin, Producer(own_cluster.bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(own_topic, b"%d" % number)
        await admin.delete_topic(own_topic)
        await admin.create_topic(own_topic, partitions=1)
        assert (await producer.send_and_wait(own_topic, b"3")).offset == 0
    assert await values(read, own_cluster.bootstrap, own_topic) == [b"3"]


async def test_a_broker_that_lost_acknowledged_records_gets_the_next_ones_numbered_anew(
    own_cluster: LocalCluster, own_topic: str, read: Any, tmp_path: Path
) -> None:
    """A disk put back to an earlier state: the numbers have a gap, and what was acknowledged is gone."""
    data = own_cluster.broker().data_dir
    async with Producer(own_cluster.bootstrap) as producer:
        await producer.send_and_wait(own_topic, b"0")
        own_cluster.stop()
        shutil.copytree(data, tmp_path / "earlier")
        await asyncio.to_thread(own_cluster.restart)
        assert (await producer.send_and_wait(own_topic, b"gone")).offset == 1
        own_cluster.stop()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "earlier", data)
        await asyncio.to_thread(own_cluster.restart)
        assert (await producer.send_and_wait(own_topic, b"2")).offset == 1
        assert (await producer.send_and_wait(own_topic, b"3")).offset == 2
    assert await values(read, own_cluster.bootstrap, own_topic) == [b"0", b"2", b"3"]


# -- memory --------------------------------------------------------------------------------------------------------


async def test_a_full_buffer_holds_senders_up_and_then_lets_them_go(own_cluster: LocalCluster, own_topic: str) -> None:
    options: dict[str, Any] = {"batch_size": 1000, "max_request_size": 4000, "buffer_memory": 8000}
    async with Producer(own_cluster.bootstrap, **options) as producer:
        await producer.send_and_wait(own_topic, b"0")
        own_cluster.pause()
        taken = 0

        async def send() -> None:
            nonlocal taken
            delivery = await producer.send(own_topic, b"x" * 600)
            taken += 1
            assert (await delivery).offset is not None

        tasks = [asyncio.create_task(send()) for _ in range(40)]
        async with asyncio.timeout(10):
            while not producer._intake.is_waiting:
                await asyncio.sleep(0)
        assert 8 <= taken < 40
        assert producer._sender.accumulator.reserved_bytes <= 8000
        own_cluster.resume()
        await asyncio.gather(*tasks)
    assert taken == 40


async def test_a_buffer_that_stays_full_is_an_error_in_time(
    own_cluster: LocalCluster, own_topic: str, read: Any
) -> None:
    options: dict[str, Any] = {"batch_size": 1000, "max_request_size": 1000, "buffer_memory": 2000}
    async with Producer(own_cluster.bootstrap, max_block_ms=50, **options) as producer:
        await producer.send_and_wait(own_topic, b"0")
        own_cluster.pause()
        accepted = []

        async def send_until_refused() -> None:
            while True:
                accepted.append(await producer.send(own_topic, b"x" * 600))

        with pytest.raises(BufferFull) as caught:
            await send_until_refused()
        assert caught.value.definite
        own_cluster.resume()
        assert [(await delivery).offset for delivery in accepted] == list(range(1, len(accepted) + 1))
    assert len(await values(read, own_cluster.bootstrap, own_topic)) == 1 + len(accepted)


async def test_closing_lets_senders_that_wait_for_memory_go(own_cluster: LocalCluster, own_topic: str) -> None:
    options: dict[str, Any] = {"batch_size": 1000, "max_request_size": 1000, "buffer_memory": 1000}
    producer = Producer(own_cluster.bootstrap, delivery_timeout_ms=300, request_timeout_ms=100, **options)
    await producer.start()
    assert await offset_of(producer, own_topic, b"0") == 0
    own_cluster.pause()
    first = await producer.send(own_topic, b"x" * 800)
    second = asyncio.create_task(producer.send(own_topic, b"y" * 800))
    await asyncio.sleep(0)
    with pytest.raises(DeliveryUnknown):
        await producer.stop()
    with pytest.raises(DeliveryUnknown):
        await first
    with pytest.raises(TidelogError):
        await second
    own_cluster.resume()
