"""Whole connections with damaged frames, one after the other: each is answered or closed, and nobody else notices."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from tests.integration.kafka.conftest import Client, KafkaSite, batch
from tests.unit.broker.kafka.test_codecs import FRAMES
from tidelog.broker.kafka.apis import Key


def damaged(rng: Random) -> bytes:
    data = bytearray(rng.choice(FRAMES))
    for _ in range(rng.randrange(3)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(data[: rng.randrange(len(data)) if rng.random() < 0.1 else None])


async def speak(site: KafkaSite, rng: Random) -> None:
    """Says some frames, however they come, and hangs up."""
    client = await Client.open(site.server.address)
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in [damaged(rng) for _ in range(rng.randrange(1, 8))])
    cut = rng.randrange(len(stream))
    client.writer.write(stream[:cut])
    await asyncio.sleep(0)
    client.writer.write(stream[cut:])
    if rng.random() < 0.5:
        await asyncio.sleep(0.01)
    await client.close()


@pytest.mark.parametrize("connections", [200, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
async def test_damaged_conversations_trouble_nobody_else(site: KafkaSite, connections: int) -> None:
    rng = Random(2)
    other = await site.client()
    with capture_logs() as logs:
        for _ in range(connections // 20):
            await asyncio.gather(*[speak(site, rng) for _ in range(20)])
            (done,) = await other.produce(("t", 1, batch(b"a")))
            assert done.error_code == ErrorCode.none
        while site.server.parts.admission.connections.open > 1:
            await asyncio.sleep(0.01)
    assert not [line for line in logs if "not foreseen" in line["event"]]
    assert site.server.parts.admission.bodies.used == site.server.parts.admission.answers.used == 0
    assert (await other.ask(Key.API_VERSIONS, 0)).error_code == ErrorCode.none
