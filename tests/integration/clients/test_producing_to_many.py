"""A producer over a thousand partitions: bounds on the requests it makes, and on what it does when one goes wrong."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.http.conftest import Site, simulated
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import TooLarge
from tidelog.model.partition_batches import split_partitions
from tidelog.producer import Producer
from tidelog.producer.accumulator import Accumulator, Batch
from tidelog.transport.connections import Answer, Connections, Pieces

PARTITIONS = 1_000
FEW = 10
RECORDS = 20_000


class Requests:
    """The produce requests that clients of this process made: for each, how many records each partition got."""

    def __init__(self) -> None:
        self.made: list[dict[int, list[int]]] = []
        self.first_tries: list[dict[int, list[int]]] = []
        """The requests that say something new: a broker that is busy may have partitions try again."""
        self._seen: set[bytes] = set()

    def note(self, path: str, body: Pieces) -> None:
        data = bytearray(b"".join(body._pieces))
        if path == "/batches":
            entries = {entry.partition: entry.data for entry in split_partitions(data, PARTITIONS)}
        else:
            entries = {int(path.split("/")[4]): memoryview(data)}
        self.made.append({partition: _records(batches) for partition, batches in entries.items()})
        contents = {b"%d " % partition + bytes(batches) for partition, batches in entries.items()}
        if not contents <= self._seen:
            self.first_tries.append(self.made[-1])
        self._seen |= contents


def _records(data: Any) -> list[int]:
    return [batch.header.record_count for batch in split_batches(data, batch_bytes_max=1 << 20)]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    noted = Requests()
    request = Connections.request

    async def noting(self: Connections, method: str, url: Any, *, body: Any = None, **more: Any) -> Answer:
        if isinstance(body, Pieces):
            noted.note(url.path, body)
        return await request(self, method, url, body=body, **more)

    monkeypatch.setattr(Connections, "request", noting)
    return noted


@pytest.fixture
async def many() -> AsyncIterator[Site]:
    async with simulated() as site:
        await site.topic("many", PARTITIONS)
        yield site


@pytest.fixture
async def few() -> AsyncIterator[Site]:
    """The topic without its thousand partitions, which take a second, where what is asked is no matter of many."""
    async with simulated() as site:
        await site.topic("many", FEW)
        yield site


def producer_to(site: Site, **options: Any) -> Producer:
    return Producer(f"http://127.0.0.1:{site.address[1]}", **options)


def stored(site: Site) -> Counter[int]:
    return Counter({number: len(site.values("many", number)) for number in range(PARTITIONS)})


async def test_a_flush_takes_a_few_requests_and_none_is_for_one_record(many: Site, requests: Requests) -> None:
    async with producer_to(many, linger_ms=600_000) as producer:
        for number in range(RECORDS):
            await producer.send("many", b"v" * 79, partition=number % PARTITIONS)
        await producer.flush()
    assert len(requests.first_tries) <= 2 + 100 * RECORDS // (1 << 20) + 1
    assert {tuple(counts) for request in requests.made for counts in request.values()} == {(20,)}
    assert set(stored(many).values()) == {20}


async def test_short_of_memory_batches_still_hold_several_records(many: Site, requests: Requests) -> None:
    async with producer_to(many, linger_ms=600_000, buffer_memory=2 << 20) as producer:
        for number in range(RECORDS):
            await producer.send("many", b"v" * 79, partition=number % PARTITIONS)
        await producer.flush()
    assert len(requests.first_tries) <= 100
    assert set(stored(many).values()) == {20}


async def test_what_fails_in_one_partition_is_that_ones_alone(few: Site, requests: Requests) -> None:
    await few.topic("small", max_message_bytes="1000")
    async with producer_to(few, linger_ms=600_000) as producer:
        sent = [await producer.send("many", b"v", partition=number) for number in range(10)]
        refused = [await producer.send("small", b"v" * 90) for _ in range(20)]
        with pytest.raises(TooLarge):
            await producer.flush()
        places = [(await delivery).offset for delivery in sent]
        for delivery in refused:
            with pytest.raises(TooLarge):
                await delivery
    assert places == [0] * 10
    assert len(requests.first_tries) <= 2


async def test_a_partition_that_is_refused_is_tried_again_alone(few: Site, requests: Requests) -> None:
    """The broker is about to lead it no more; the others have their receipts by then."""
    away = few.partition("many", 3)
    async with producer_to(few, linger_ms=600_000) as producer:
        away._is_closing = True
        sent = [await producer.send("many", b"v", partition=number) for number in range(10)]
        flush = asyncio.ensure_future(producer.flush())
        await asyncio.wait_for(asyncio.gather(*sent[:3], *sent[4:]), 60)
        assert not sent[3].done()
        away._is_closing = False
        await flush
        assert [(await delivery).offset for delivery in sent] == [0] * 10
    assert all(set(request) == {3} for request in requests.made[len(requests.first_tries) :])


async def test_where_memory_is_short_the_next_request_departs_before_more_is_taken_in(
    few: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers wait for that request, and a batch is filled in each turn of the loop."""
    events: list[str] = []
    request, open_batch = Connections.request, Accumulator.open_batch

    async def noting(self: Connections, method: str, url: Any, **more: Any) -> Answer:
        events.append("ask")
        answer = await request(self, method, url, **more)
        events.append("answer" if producer._intake.is_waiting else "other")
        return answer

    def opening(self: Accumulator, *arguments: Any) -> Batch:
        events.append("open")
        return open_batch(self, *arguments)

    async with producer_to(few, batch_size=4096, max_request_size=16 << 10, buffer_memory=64 << 10) as producer:
        await producer.send_and_wait("many", b"v", partition=0)
        monkeypatch.setattr(Connections, "request", noting)
        monkeypatch.setattr(Accumulator, "open_batch", opening)
        for _ in range(2_000):
            await producer.send("many", b"v" * 1000, partition=0)
    between = "".join({"ask": "?", "answer": "!", "other": ".", "open": "o"}[event] for event in events)
    assert len(re.findall(r"!(?=\?)", between)) >= 2_000 // 64 // 2
    assert not re.findall(r"!o+\?", between), between
