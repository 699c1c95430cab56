"""A request that opens or builds much is served beside the others, not before them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import StreamReader

from tests.integration.http.conftest import Site
from tidelog.broker.http import json_body
from tidelog.broker.http.connections import CHUNKS_MAX
from tidelog.broker.routing import json_reads
from tidelog.model.batch_header import Compression
from tidelog.model.record_slices import record_slices

RAW = {"Content-Type": "application/vnd.tidelog.batches"}


async def test_other_requests_are_served_between_the_slices_of_a_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def noted(*args: Any, **options: Any) -> Any:
        for part in record_slices(*args, **options):
            events.append("slice")
            yield part

    monkeypatch.setattr(json_reads, "record_slices", noted)
    batch = site.batch(*[b"x"] * 50_000, compression=Compression.ZSTD)
    assert (await site.ask("POST", "/topics/t/partitions/0/batches", batch, RAW)).status == 200
    reading = asyncio.ensure_future(site.get("/topics/t/partitions/0/records?offset=0&max_bytes=8000000"))
    async with await site.wire() as other:
        while not reading.done():
            assert (await other.request("GET", "/healthz")).status == 200
            events.append("health")
    assert len((await reading).json()) == 50_000
    first, last = events.index("slice"), len(events) - events[::-1].index("slice")
    assert "health" in events[first:last]
    assert events.count("slice") == 50


async def test_tiny_chunks_are_taken_in_some_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    read = StreamReader.readany

    async def noted(self: StreamReader) -> bytes:
        piece = await read(self)
        taken.append(len(piece))
        return piece

    monkeypatch.setattr(StreamReader, "readany", noted)
    document = b'{"records":[{"value":"%b"}]}' % (b"x" * 60_000)
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in document) + b"0\r\n\r\n"
    reader, writer = await asyncio.open_connection(*site.address)
    writer.write(
        b"POST /topics/t HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/vnd.kafka.json.v2+json\r\n\r\n" + body
    )
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()
    assert sum(taken) == len(document)
    assert sorted(taken)[-2] <= 2 * CHUNKS_MAX  # but for what came with the head


async def test_other_requests_are_served_between_the_slices_of_a_produce(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    decode = json_body._items

    def noted(*args: Any) -> Any:
        steps = decode(*args)
        step = next(steps)
        while True:
            events.append("slice")
            yield step
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(json_body, "_items", noted)
    producing = asyncio.ensure_future(site.produce(*({"number": number, "text": "x" * 60} for number in range(9_000))))
    async with await site.wire() as other:
        while not producing.done():
            assert (await other.request("GET", "/healthz")).status == 200
            events.append("health")
    offsets = (await producing).json()["offsets"]
    assert [receipt["offset"] for receipt in offsets] == list(range(9_000))
    first, last = events.index("slice"), len(events) - events[::-1].index("slice")
    assert events.count("slice") > 5
    assert "health" in events[first:last]


async def test_a_busy_broker_refuses_what_was_not_appended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the receipts of what was."""
    work = site.broker.work
    monkeypatch.setattr(work, "jobs_max", 0)
    monkeypatch.setattr(work, "waiting_max", 0)
    reply = await site.produce(*range(9_000))
    assert (reply.status, reply.code) == (503, 50305)
    assert site.values() == []
    assert (await site.produce(1)).status == 200
