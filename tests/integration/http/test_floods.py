"""More of something than anybody needs: requests on one connection, and connections. F113 and F114 of docs/testing.md.

A few each time, all that the catalogue asks for with `-m slow`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.http.conftest import JSON_V2, Site, simulated
from tests.integration.http.wire import Wire, head

BODY = b'{"records":[{"value":1}]}'
PRODUCE = head("POST", "/topics/t", {**JSON_V2, "Content-Length": str(len(BODY))}) + BODY
MEMORY_BYTES_MAX = 64 << 20
PLACES = 100
AT_ONCE = 300
"""Connections that are open at the same time: this process has the files of a login shell."""


def memory_bytes() -> int:
    """Returns how many bytes of memory this process, broker and clients, has now."""
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_requests_that_nobody_waited_for_are_answered_in_their_turn(site: Site, count: int) -> None:
    """F113: all of one connection, each with its answer, in order; others are served meanwhile, from bounded memory."""
    before = memory_bytes()
    async with await site.wire() as wire, await site.wire() as other:

        async def send() -> None:
            for _ in range(count):
                wire.write(PRODUCE)
                await wire.writer.drain()

        sending = asyncio.ensure_future(send())
        for number in range(count):
            reply = await wire.read()
            assert reply.status == 200 and reply.json()["offsets"][0]["offset"] == number
            if number % 100 == 0:
                assert (await other.request("GET", "/topics/t")).status == 200
        await sending
    assert site.partition().high_watermark == count
    assert memory_bytes() < before + MEMORY_BYTES_MAX + 400 * count  # the simulated disk is in memory


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_a_flood_of_connections_keeps_nobody_out_who_is_in(count: int) -> None:
    """F114: whoever finds no place is told so with 503; who has one is served, and the memory stays bounded."""
    async with simulated(connections_max=PLACES, probes_max=2) as site:
        async with await site.wire() as member:
            assert (await member.request("POST", "/topics/t", BODY, JSON_V2)).status == 200
            before = memory_bytes()
            told = 0
            for start in range(0, count, AT_ONCE):
                crowd = await asyncio.gather(*(asking(site) for _ in range(min(AT_ONCE, count - start))))
                assert (await member.request("POST", "/topics/t", BODY, JSON_V2)).status == 200
                told += sum(await asyncio.gather(*(is_told(wire) for wire in crowd)))
            assert told >= count // 2, "most of them find no place"
            assert memory_bytes() < before + MEMORY_BYTES_MAX
        await site.until_idle()
        assert len(site.values()) == 1 + -(-count // AT_ONCE)


async def asking(site: Site) -> Wire:
    wire = await site.wire()
    wire.write(head("GET", "/topics", {}))
    return wire


async def is_told(wire: Wire) -> bool:
    """Returns whether it was refused; a refusal has its status, or the connection is gone."""
    try:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            reply = await wire.read()
            assert reply.status in (200, 503)
            return reply.status == 503
        return True
    finally:
        await wire.close()
