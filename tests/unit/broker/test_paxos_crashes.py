"""Replicas of a Paxos partition whose machines crash, pause and lose frames at any moment: what was acknowledged is
there, once, in its producer's order, and all logs are the same."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.unit.broker.paxos_stage import Site, Stage, play, random_of
from tests.unit.broker.replication_stage import until
from tidelog.broker.paxos.space import SpaceSettings
from tidelog.broker.proposals import ProduceReceipt
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches

SEEDS = 80
QUICK = 15
NEVER = 1 << 62
OF_A_MACHINE = ("crash", "crash at", "pause", "resume", "boot", "boot", "blackout")
MISFORTUNES = (*OF_A_MACHINE, "elect", "elect", "loss", "cut", "isolate", "isolate", "heal", "heal")


class Producer:
    """An idempotent producer that tries each record until it knows that it is in the log."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.number = number
        self.acknowledged: list[tuple[int, bytes]] = []
        self.is_stopping = False

    async def run(self) -> None:
        sequence = 0
        while not self.is_stopping:
            value = b"%d-%d" % (self.number, sequence)
            offset = await self._send(value, sequence)
            self.acknowledged.append((offset, value))
            sequence += 1
            await asyncio.sleep(self.stage.rng.uniform(0.0, 0.1))

    async def _send(self, value: bytes, sequence: int) -> int:
        while True:
            leader = self.stage.leader
            receipt = None
            if leader > 0:
                receipt = await self.stage.produce(leader, value, wait_s=1.0, producer=(100 + self.number, sequence))
            if isinstance(receipt, ProduceReceipt) and receipt.base_offset is not None:
                return receipt.base_offset
            await asyncio.sleep(0.05)


class Operator:
    """Deletes prefixes, now and then, never more than `margin` records from the end."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self.stage = stage
        self.deleted_to = 0
        """Told so."""
        self.asked_to = 0
        self._rng = rng

    async def act(self) -> None:
        leader = self.stage.leader
        if leader < 0 or not self.stage.sites[leader].is_up:
            return
        log = self.stage.sites[leader].replica.log
        offset = self._rng.randint(log.log_start_offset, log.log_end_offset)
        self.asked_to = max(self.asked_to, offset)
        site, life = self.stage.sites[leader], self.stage.sites[leader].lives
        error = await self.stage.delete(leader, offset, wait_s=1.0)
        if error is None and site.is_up and site.lives == life:
            self.deleted_to = max(self.deleted_to, offset)


async def misfortune(stage: Stage, rng: random.Random) -> None:
    """One thing that befalls the cluster."""
    site = stage.sites[rng.choice(sorted(stage.sites))]
    what = rng.choice(MISFORTUNES)
    if what in OF_A_MACHINE:
        await _befall(stage, site, what, rng)
    else:
        await _disturb(stage, site, what, rng)


async def _befall(stage: Stage, site: Site, what: str, rng: random.Random) -> None:
    match what:
        case "crash":
            await site.crash(is_power_lost=rng.random() < 0.7)
        case "crash at" if site.is_up:
            site.disk.crash_at(site.disk.operations + rng.randint(1, 30))
        case "pause":
            site.pause()
        case "resume":
            site.resume()
        case "boot":
            await revive(stage)
        case "blackout":
            for other in stage.sites.values():
                await other.crash()
            await revive(stage)
            stage.elect(site.node)


async def _disturb(stage: Stage, site: Site, what: str, rng: random.Random) -> None:
    match what:
        case "elect":
            stage.elect(rng.choice([node for node, other in stage.sites.items() if other.is_up] or [1]))
        case "loss":
            stage.loss = rng.choice((0.0, 0.05, 0.3))
        case "cut":
            stage.cut = {(site.node, other) for other in stage.sites if rng.random() < 0.5}
        case "isolate":
            stage.cut = {(stage.leader, other) for other in stage.sites if other != stage.leader}
            await asyncio.sleep(0.2)
            stage.elect(site.node)
        case "heal":
            stage.cut, stage.loss = set(), 0.0


async def revive(stage: Stage) -> None:
    for site in stage.sites.values():
        if not site.is_up:
            await site.crash()
            await site.boot()


async def check(stage: Stage, producers: list[Producer], operator: Operator) -> None:
    await stage.quiet()
    start = stage.sites[1].replica.log.log_start_offset
    assert operator.deleted_to <= start <= operator.asked_to
    contents = {site.content() for site in stage.sites.values()}
    assert len(contents) == 1, "the logs differ"
    found: dict[int, bytes] = {}
    for one in iter_batches(contents.pop()):
        for record in decode_batch(one):
            assert record.value is not None
            found[record.offset] = record.value
    values = list(found.values())
    assert len(values) == len(set(values)), "something is there twice"
    for producer in producers:
        for offset, value in producer.acknowledged:
            assert offset < start or found[offset] == value, f"{value!r} was acknowledged at offset {offset}"
        own = [value for value in values if value.startswith(b"%d-" % producer.number)]
        assert own == sorted(own, key=lambda value: int(value.split(b"-")[1]))


@pytest.mark.parametrize(
    "seed", [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, SEEDS))]
)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    async def story(stage: Stage) -> None:
        rng = random_of(seed)
        stage.space = SpaceSettings(bytes_max=1 << 30, slots_max=rng.choice((10, 50, 10_000)))
        stage.disk_delay_s = rng.choice((0.001, 0.03))
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        producers = [Producer(stage, number) for number in range(3)]
        work = [asyncio.ensure_future(producer.run()) for producer in producers]
        operator, deletions = Operator(stage, rng), rng.choice((0.0, 0.2))
        asked: list[asyncio.Future[None]] = []
        stage.elect(1)
        for _ in range(rng.randint(5, 40)):
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            if rng.random() < deletions:
                asked.append(asyncio.ensure_future(operator.act()))
            else:
                await misfortune(stage, rng)
        stage.cut, stage.loss = set(), 0.0
        for site in stage.sites.values():
            site.disk.crash_at(NEVER)
            site.resume()
        await revive(stage)
        stage.elect(rng.choice(sorted(stage.sites)))
        before = [len(producer.acknowledged) for producer in producers]
        await until(lambda: all(len(p.acknowledged) > b for p, b in zip(producers, before, strict=True)))
        for producer in producers:
            producer.is_stopping = True
        await asyncio.gather(*work, *asked)
        await check(stage, producers, operator)

    play(story, seed)
