"""Brokers die at random while REST consumers read: whatever was committed had been returned, and all is returned."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.sim.rest_consumers.stage import NODES, Stage, play
from tidelog.model.errors import IllegalState, TidelogError, UnknownInstance
from tidelog.sim.kit.machine import ConnectionLost, Unreachable

PARTITIONS = 3
RECORDS = 60
KILLS = 3
NAMES = ("a", "b")
FAILURES = (TidelogError, ConnectionLost, Unreachable)


class Audit:
    """What was written, and what clients got, as `partition: numbers`."""

    def __init__(self) -> None:
        self.written: dict[int, set[str]] = {partition: set() for partition in range(PARTITIONS)}
        self.returned: set[str] = set()
        self.repeated = 0

    @property
    def is_complete(self) -> bool:
        return all(values <= self.returned for values in self.written.values())


async def write(stage: Stage, audit: Audit, rng: random.Random) -> None:
    for number in range(RECORDS):
        partition = number % PARTITIONS
        value = f"{partition}/{number}"
        while True:
            try:
                await stage.produce(value, partition=partition)
                break
            except (*FAILURES, IndexError):
                await asyncio.sleep(0.2)
        audit.written[partition].add(value)
        await asyncio.sleep(rng.uniform(0, 0.2))


async def kill(stage: Stage, rng: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.5, 3))
        machine = stage.machines[rng.choice(NODES)]
        await machine.kill()
        await asyncio.sleep(rng.uniform(0, 3))
        await machine.boot()


async def consume(stage: Stage, audit: Audit, name: str, rng: random.Random) -> None:
    """Reads, and commits what it has got; a request that fails is made again, elsewhere."""
    is_open = False
    while True:
        node = rng.choice(NODES)
        try:
            if not is_open:
                await stage.open(node, name, auto_commit=name == "b")
                is_open = True
            if not await stage.is_subscribed(node, name):
                await stage.subscribe(node, name)
            values = await stage.read(node, name, wait_ms=rng.choice((0, 200, 2_000)))
            audit.repeated += sum(value in audit.returned for value in values)
            audit.returned.update(values)
            if name == "a":
                await stage.commit(rng.choice(NODES), name=name)
        except (UnknownInstance, IllegalState):
            is_open = False
        except FAILURES as error:
            is_open = is_open or getattr(error, "code", 0) == 40902
            await asyncio.sleep(0.1)


async def story(stage: Stage, seed: int) -> Audit:
    audit = Audit()
    rngs = [random.Random(f"{seed}/{number}") for number in range(4)]
    consumers = [
        asyncio.ensure_future(consume(stage, audit, name, rng)) for name, rng in zip(NAMES, rngs, strict=False)
    ]
    try:
        await asyncio.gather(write(stage, audit, rngs[2]), kill(stage, rngs[3]))
        async with asyncio.timeout(60):
            while not audit.is_complete:
                await asyncio.sleep(0.1)
    finally:
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
    for consumer in consumers:
        assert consumer.cancelled()
    return audit


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_every_record_is_returned_at_least_once(seed: int) -> None:
    audit = play(lambda stage: story(stage, seed), seed=seed, partitions=PARTITIONS)
    assert sum(map(len, audit.written.values())) == RECORDS
