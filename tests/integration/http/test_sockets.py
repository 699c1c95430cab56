"""What can be done to a server with a raw socket: smuggling, half bodies, silence, pipelining, disappearing."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.integration.http.conftest import JSON_V2, Site, simulated
from tests.integration.http.wire import Wire, head

BODY = b'{"records":[{"value":1}]}'
SECOND = b"GET /topics HTTP/1.1\r\nHost: test\r\n\r\n"


def request(*lines: str, body: bytes = b"", start: str = "POST /topics/t HTTP/1.1") -> bytes:
    return "\r\n".join([start, *lines, "", ""]).encode("latin-1") + body


SMUGGLING = {
    "length and chunks": request("Host: x", "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "two lengths": request("Host: x", "Content-Length: 5", "Content-Length: 6", body=b"xxxxxx"),
    "length list": request("Host: x", "Content-Length: 5, 5", body=b"xxxxx"),
    "signed length": request("Host: x", "Content-Length: +5", body=b"xxxxx"),
    "negative length": request("Host: x", "Content-Length: -5", body=b"xxxxx"),
    "hex length": request("Host: x", "Content-Length: 0x5", body=b"xxxxx"),
    "huge length": request("Host: x", f"Content-Length: {10**30}"),
    "unknown encoding": request("Host: x", "Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "two hosts": request("Host: x", "Host: y", "Content-Length: 0"),
    "no host": request("Content-Length: 0"),
    "bare line feed": b"POST /topics/t HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
    "space before colon": request("Host: x", "Content-Length : 5", body=b"xxxxx"),
    "folded header": request("Host: x", "X: a", " b", "Content-Length: 0"),
    "null in header": request("Host: x", "X: a\x00b", "Content-Length: 0"),
    "long line": request("Host: x", start=f"POST /{'a' * 20_000} HTTP/1.1"),
    "long header": request("Host: x", "X: " + "a" * 20_000),
    "many headers": request("Host: x", *(f"X-{i}: 1" for i in range(1000))),
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n",
    "version 9": request("Host: x", start="POST /topics/t HTTP/9.9"),
    "no version": request("Host: x", start="POST /topics/t"),
    "long method": request("Host: x", start=f"{'P' * 9000} /topics/t HTTP/1.1"),
}


@pytest.mark.parametrize("name", SMUGGLING)
async def test_what_is_not_correct_http_gets_one_400_and_the_door(site: Site, name: str) -> None:
    """F107."""
    async with await site.wire() as wire:
        wire.write(SMUGGLING[name] + SECOND)
        reply = await wire.read()
        assert (reply.status, reply.code) == (400, 40002)
        assert await wire.is_closed()
    assert site.values() == []


@pytest.mark.parametrize(
    "target",
    ["*", "http://evil.example/topics", "/topics/../topics", "/./topics", "/topics?", "/topics#x", "/topics/%2e/x"],
)
async def test_odd_targets_are_answered(site: Site, target: str) -> None:
    """F108."""
    async with await site.wire() as wire:
        wire.write(head("GET", target, {}))
        assert (await wire.read()).status in (200, 400, 404)


async def test_connect_and_upgrade_lead_nowhere(site: Site) -> None:
    async with await site.wire() as wire:
        wire.write(b"CONNECT example.com:80 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await wire.read()).status in (400, 404)
    async with await site.wire() as wire:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "x",
        }
        wire.write(head("GET", "/topics", headers))
        assert (await wire.read()).status == 200


async def test_a_body_shorter_than_its_length_appends_nothing(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for target, body in (("/topics/t", BODY), ("/topics/t/partitions/0/batches", site.batch(b"x"))):
        for sent in (body, body[:-1], body[:1], b""):
            wire = await site.wire()
            headers = JSON_V2 if target == "/topics/t" else {}
            wire.write(head("POST", target, {**headers, "Content-Length": str(len(body) + 1)}) + sent)
            await wire.writer.drain()
            await wire.close()
    await site.until_idle()
    assert site.values() == []
    assert not caplog.records


async def test_a_body_that_does_not_come_is_408() -> None:
    """F111."""
    async with simulated(body_timeout_s=0.05) as site:
        for sent in (b"", BODY[:5]):
            async with await site.wire() as wire:
                wire.write(head("POST", "/topics/t", {**JSON_V2, "Content-Length": str(len(BODY))}) + sent)
                reply = await wire.read()
                assert (reply.status, reply.code) == (408, 40801)
                assert reply.headers["connection"] == "close"
                assert await wire.is_closed()
        assert site.values() == []
        await site.until_idle()


async def test_a_trickled_body_is_408_too() -> None:
    """F111."""
    async with simulated(body_timeout_s=0.1) as site, await site.wire() as wire:
        wire.write(head("POST", "/topics/t", {**JSON_V2, "Content-Length": "100000"}))
        trickle = asyncio.ensure_future(_trickle(wire))
        assert (await wire.read()).code == 40801
        trickle.cancel()


async def _trickle(wire: Wire) -> None:
    while True:
        wire.write(b" ")
        await asyncio.sleep(0.005)


async def test_a_body_in_many_pieces_is_one_body(site: Site) -> None:
    batch = site.batch(*(b"x" * 1000 for _ in range(900)))
    async with await site.wire() as wire:
        wire.write(head("POST", "/topics/t/partitions/0/batches", {"Content-Length": str(len(batch))}))
        for start in range(0, len(batch), 7919):
            wire.write(batch[start : start + 7919])
            await wire.writer.drain()
        assert (await wire.read()).status == 200
    assert len(site.values()) == 900


async def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    async with await site.wire() as wire:
        for number in range(200):
            body = json.dumps({"records": [{"value": number}]}).encode()
            wire.write(head("POST", "/topics/t", {**JSON_V2, "Content-Length": str(len(body))}) + body)
        offsets = [(await wire.read()).json()["offsets"][0]["offset"] for _ in range(200)]
    assert offsets == list(range(200))
    assert site.values() == [b"%d" % number for number in range(200)]


async def test_a_connection_goes_on_after_an_ordinary_error(site: Site) -> None:
    async with await site.wire() as wire:
        assert (await wire.request("POST", "/topics/t", b"{", JSON_V2)).status == 400
        assert (await wire.request("GET", "/topics/none")).status == 404
        assert (await wire.request("POST", "/topics/t", BODY, JSON_V2)).status == 200


async def test_http_1_0_is_answered_and_closed(site: Site) -> None:
    async with await site.wire() as wire:
        wire.write(b"GET /topics/t/partitions/0/batches?offset=0&to=5 HTTP/1.0\r\n\r\n")
        status, headers = await wire.read_head()
        assert (status, headers.get("transfer-encoding")) == (200, None)
        assert await wire.is_closed()


async def test_expect_continue_is_honoured_when_the_body_is_wanted(site: Site) -> None:
    async with await site.wire() as wire:
        wire.write(head("POST", "/topics/t", {**JSON_V2, "Content-Length": str(len(BODY)), "Expect": "100-continue"}))
        assert (await wire.read_head())[0] == 100
        wire.write(BODY)
        assert (await wire.read()).status == 200
    async with await site.wire() as wire:
        wire.write(head("POST", "/topics/none", {**JSON_V2, "Content-Length": "5", "Expect": "100-continue"}))
        assert (await wire.read()).status == 404


async def test_a_refused_client_that_sends_on_sees_its_answer() -> None:
    """The answer must not be lost in a reset because data was still coming."""
    size = 6 << 20
    async with simulated(lingering_s=1.0) as site, await site.wire() as wire:
        wire.write(head("POST", "/topics/t", {**JSON_V2, "Content-Length": str(size)}))
        wire.write(b" " * size)
        assert (await wire.read()).code == 41301
