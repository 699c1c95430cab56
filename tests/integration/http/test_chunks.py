"""Bodies in chunks, as programs send them that do not know the length: taken wherever a body is, and bounded."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from tests.integration.http.conftest import JSON_DOCUMENT, JSON_V2, Site, simulated
from tests.integration.http.wire import TIMEOUT_S, Address, Reply, Wire, head

CHUNKED = {"Transfer-Encoding": "chunked"}
BODY = b'{"records":[{"value":1}]}'
RAW = {"Content-Type": "application/vnd.tidelog.batches"}
BATCHES = "/topics/t/partitions/0/batches"


async def send(site: Site, method: str, target: str, *chunks: bytes, **headers: str) -> Reply:
    """One request whose body comes in these chunks."""
    async with await site.wire() as wire:
        wire.write(head(method, target, {**CHUNKED, **JSON_DOCUMENT, **headers}))
        for chunk in chunks:
            wire.write_chunk(chunk)
            await wire.writer.drain()
        wire.write_chunk(b"")
        return await wire.read()


def pieces(document: object, size: int = 7) -> list[bytes]:
    text = json.dumps(document).encode()
    return [text[start : start + size] for start in range(0, len(text), size)]


async def test_chunks_are_taken_wherever_a_body_is(site: Site) -> None:
    for target in ("/topics/t", "/topics/t/partitions/0"):
        assert (await send(site, "POST", target, *pieces({"records": [{"value": 1}]}))).status == 200
    batch = site.batch(b"2", b"3")
    async with await site.wire() as wire:
        wire.write(head("POST", BATCHES, CHUNKED))
        for start in range(0, len(batch), 11):
            wire.write_chunk(batch[start : start + 11])
        wire.write_chunk(b"")
        assert (await wire.read()).status == 200
        assert (await wire.request("GET", "/topics")).status == 200, "the connection goes on"
    entry = {"id": "a", "value": {"type": "JSON", "data": 4}}
    assert (await send(site, "POST", f"{site.v3}/topics/t/records:batch", *pieces({"entries": [entry]}))).status == 207
    assert site.values() == [b"1", b"1", b"2", b"3", b"4"]


async def test_chunks_are_taken_by_administration_and_consumers(site: Site) -> None:
    assert (await send(site, "POST", f"{site.v3}/topics", *pieces({"topic_name": "u"}))).status == 201
    assert (await send(site, "PATCH", f"{site.v3}/topics/u", *pieces({"partitions_count": 3}))).status == 200
    config = f"{site.v3}/topics/u/configs/retention.ms"
    assert (await send(site, "PUT", config, *pieces({"value": "1"}))).status == 204
    assert (
        await send(site, "POST", "/offsets", *pieces({"partitions": [{"topic": "t", "partition": 0}]}))
    ).status == 200
    assert (await send(site, "POST", "/consumers/g", *pieces({"name": "i", "format": "json"}))).status == 200
    subscription = "/consumers/g/instances/i/subscription"
    assert (await send(site, "POST", subscription, *pieces({"topics": ["t"]}))).status == 204
    assert (await send(site, "POST", "/consumers/g")).status == 200, "where a body may be left out, none may come"
    assert (await send(site, "POST", "/")).status == 200


async def test_an_idempotency_key_knows_the_content_and_not_the_chunks(site: Site) -> None:
    keyed = {**JSON_V2, "Idempotency-Key": "k"}
    first = await site.ask("POST", "/topics/t", BODY, keyed)
    again = await send(site, "POST", "/topics/t", BODY[:9], BODY[9:], **keyed)
    assert (again.status, again.json()) == (200, first.json())
    assert site.values() == [b"1"]


async def test_no_chunks_at_all_are_an_empty_body(site: Site) -> None:
    assert (await send(site, "POST", "/topics/t")).code == 40002
    assert (await send(site, "POST", BATCHES, **RAW)).status in (400, 422)


async def test_chunks_beyond_the_bound_are_refused_as_they_come() -> None:
    async with simulated(json_bytes_max=1000, batches_bytes_max=1000) as site:
        for target in ("/topics/t", BATCHES):
            async with await site.wire() as wire:
                wire.write(head("POST", target, CHUNKED))
                wire.write_chunk(b" " * 1000)
                wire.write_chunk(b" ")  # and no end: nobody waits for it
                reply = await wire.read()
                assert (reply.status, reply.code) == (413, 41301)
                assert "1000" in reply.message
                assert await wire.is_closed()
        body = BODY.ljust(1000)
        assert (await send(site, "POST", "/topics/t", body, **JSON_V2)).status == 200
        await site.until_idle()


async def test_chunks_share_the_memory_for_bodies() -> None:
    async with simulated(body_budget_bytes=10_000) as site:
        async with await site.wire() as slow, await site.wire() as wire:
            slow.write(head("POST", BATCHES, CHUNKED))
            slow.write_chunk(b"x" * 9000)
            await site.until(lambda: site.gauge("tidelog_http_body_bytes") == 9000)
            wire.write(head("POST", BATCHES, CHUNKED))
            wire.write_chunk(b"x" * 2000)
            reply = await wire.read()
            assert (reply.status, reply.code) == (503, 50305)
            assert await wire.is_closed()
        await site.until(lambda: site.gauge("tidelog_http_body_bytes") == 0)
        large = site.batch(b"x" * 20_000)
        assert (await send(site, "POST", BATCHES, large[:9000], large[9000:], **RAW)).status == 200


async def test_chunks_that_do_not_come_are_408() -> None:
    async with simulated(body_timeout_s=0.05) as site:
        for sent in (b"", b"5\r\nabc", b"5\r\nabcde\r\n", b"5\r\nabcde\r\n0\r\n"):
            async with await site.wire() as wire:
                wire.write(head("POST", "/topics/t", {**JSON_V2, **CHUNKED}) + sent)
                reply = await wire.read()
                assert (reply.status, reply.code) == (408, 40801)
                assert await wire.is_closed()
        async with await site.wire() as wire:
            wire.write(head("POST", "/topics/t", {**JSON_V2, **CHUNKED}))
            trickle = asyncio.ensure_future(_trickle(wire))
            assert (await wire.read()).code == 40801
            trickle.cancel()
        assert site.values() == []
        await site.until_idle()


async def _trickle(wire: Wire) -> None:
    while True:
        wire.write_chunk(b" ")
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "body",
    [b"x\r\n", b"-1\r\n", b"0x5\r\nabcde\r\n0\r\n\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"5;\x00\r\nabcde\r\n0\r\n\r\n",
     b"fffffffffffffffff\r\nabc", b"5\nabcde\n0\n\n", b"5 \r\nabcde\r\n0\r\n\r\n", b"\r\n5\r\nabcde\r\n0\r\n\r\n"],
)  # fmt: skip
async def test_what_is_not_correctly_chunked_gets_one_400_and_the_door(site: Site, body: bytes) -> None:
    """F107."""
    second = head("GET", "/topics", {})
    for target in ("/topics/t", BATCHES):
        async with await site.wire() as wire:
            wire.write(head("POST", target, CHUNKED) + body + second)
            reply = await wire.read()
            assert (reply.status, reply.code) == (400, 40002)
            assert await wire.is_closed()
    assert site.values() == []
    await site.until_idle()


async def test_chunks_that_break_off_append_nothing(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    whole = b"%x\r\n%b\r\n" % (len(BODY), BODY)
    for sent in (b"", whole[:2], whole[:-3], whole, whole + b"0\r\n"):
        wire = await site.wire()
        wire.write(head("POST", "/topics/t", {**JSON_V2, **CHUNKED}) + sent)
        await wire.writer.drain()
        if sent == whole:
            wire.writer.write_eof()
        await wire.close()
    await site.until_idle()
    assert site.values() == []
    assert not caplog.records


async def test_expect_continue_is_honoured_for_chunks(site: Site) -> None:
    async with await site.wire() as wire:
        wire.write(head("POST", "/topics/t", {**JSON_V2, **CHUNKED, "Expect": "100-continue"}))
        assert (await wire.read_head())[0] == 100
        wire.write_chunk(BODY)
        wire.write_chunk(b"")
        assert (await wire.read()).status == 200


async def test_a_million_tiny_chunks_leave_the_others_their_turn(site: Site) -> None:
    """Nothing here measures time: while the body is coming, other requests are answered. F112."""
    async with await site.wire() as other:
        sending = asyncio.ensure_future(asyncio.to_thread(_send_tiny, site.address, BODY.ljust(1_000_000)))
        turns = 0
        while not sending.done():
            assert (await other.request("GET", "/healthz")).status == 200
            turns += 1
        assert (await sending).startswith(b"HTTP/1.1 200 ")
        assert turns > 3
    assert site.values() == [b"1"]


def _send_tiny(address: Address, body: bytes) -> bytes:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(head("POST", "/topics/t", {**JSON_V2, **CHUNKED}) + chunks + b"0\r\n\r\n")
        return connection.recv(100)
