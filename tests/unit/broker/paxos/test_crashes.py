"""Replicas of a Paxos partition whose machines crash, pause and lose frames at any moment: what was acknowledged is
there, once, in its producer's order, and all logs are the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play, random_of
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import KEY, NONE, TOTAL

NEVER = 1 << 62
KEYS = 3
ROTTEN = 3
"""The one whose disk rots: what it loses, others have."""
OF_A_MACHINE = ("crash", "crash at", "pause", "resume", "boot", "boot", "blackout")
MISFORTUNES = (*OF_A_MACHINE, "rot", "rot", "elect", "elect", "loss", "cut", "isolate", "isolate", "heal", "heal")

Misfortune = Callable[[Stage, random.Random], Awaitable[None]]
"""One thing that befalls the cluster."""


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
                key, producer = b"%d" % (sequence % KEYS), (100 + self.number, sequence)
                receipt = await self.stage.produce(leader, value, key=key, wait_s=1.0, producer=producer)
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


async def lesser_misfortune(stage: Stage, rng: random.Random) -> None:
    """As `misfortune`, but nobody forgets anything as long as another has."""
    site = stage.sites[rng.choice(sorted(stage.sites))]
    what = rng.choice([what for what in (*MISFORTUNES, "stop", "stop", "betray", "betray") if what != "rot"])
    match what:
        case "crash" | "blackout":
            if stage.is_whole:
                await site.crash()
        case "crash at":
            if stage.is_whole:
                site.disk.crash_at(site.disk.operations + rng.randint(1, 30))
                await asyncio.sleep(0.5)
                site.disk.crash_at(NEVER)
        case "stop":
            await site.stop()
        case "betray":
            if stage.is_whole and site.node != stage.leader:
                await betray(stage, site)
        case _ if what in OF_A_MACHINE:
            await _befall(stage, site, what, rng)
        case _:
            await _disturb(stage, site, what, rng)


async def betray(stage: Stage, site: Site) -> None:
    """The leader commits with one other replica alone, which loses its memory; then the leader is cut off, and the
    third tries to lead with the forgetful one."""
    leader = stage.leader
    third = next(other for node, other in stage.sites.items() if node not in (leader, site.node))
    stage.cut = {(third.node, other) for other in stage.sites}
    await asyncio.sleep(0.1)
    await site.crash()
    stage.cut = {(leader, other) for other in stage.sites}
    await site.boot()
    stage.elect(third.node)
    await asyncio.sleep(1.0)
    stage.cut = set()


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
        case "rot":
            rot(stage.sites[ROTTEN], rng)


def rot(site: Site, rng: random.Random) -> None:
    """A payload of its journal, or a batch of its log. Others have copies."""
    if not site.is_ready:
        return
    log, replica = site.replica.log, site.replica.engine.node.replica
    if rng.random() < 0.5 and replica.begin < replica.end:
        site.harm_journal(rng.randrange(replica.begin, replica.end))
    elif log.log_start_offset < log.durable_offset:
        site.harm_log(rng.randrange(log.log_start_offset, log.durable_offset))


async def revive(stage: Stage) -> None:
    for site in stage.sites.values():
        if not site.is_up:
            await site.crash()
            await site.boot()


async def check(stage: Stage, producers: list[Producer], operator: Operator) -> None:
    await stage.quiet()
    await until(lambda: all(site.is_sound() for site in stage.sites.values()))
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


async def live(stage: Stage, rng: random.Random, befalls: Misfortune) -> None:
    """A history: producers and an operator at work while things happen; then all heals, and it has to be right."""
    producers = [Producer(stage, number) for number in range(3 if stage.config.commit_order == TOTAL else 8)]
    work = [asyncio.ensure_future(producer.run()) for producer in producers]
    operator, deletions = Operator(stage, rng), rng.choice((0.0, 0.2))
    asked: list[asyncio.Future[None]] = []
    stage.elect(1)
    for _ in range(rng.randint(5, 40)):
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        if rng.random() < deletions:
            asked.append(asyncio.ensure_future(operator.act()))
        else:
            await befalls(stage, rng)
    stage.cut, stage.loss = set(), 0.0
    for site in stage.sites.values():
        site.disk.crash_at(NEVER)
        site.resume()
    await revive(stage)
    before = [len(producer.acknowledged) for producer in producers]
    await lead_on(stage, lambda: all(len(p.acknowledged) > b for p, b in zip(producers, before, strict=True)))
    for producer in producers:
        producer.is_stopping = True
    await asyncio.gather(*work, *asked)
    await check(stage, producers, operator)


async def lead_on(stage: Stage, is_enough: Callable[[], bool]) -> None:
    """One after the other is named the leader, until one is elected and serves long enough. Not all have a vote."""
    for node in 2 * sorted(stage.sites):
        stage.elect(node)
        for _ in range(100):
            if is_enough():
                return
            await asyncio.sleep(0.1)
    raise AssertionError("nobody can lead")


def seeds(quick: int, slow: int) -> list[Any]:
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, slow))]


@pytest.mark.parametrize("seed", seeds(6, 80))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    async def story(stage: Stage) -> None:
        rng = random_of(seed)
        stage.journal_bounds = JournalBounds(bytes_max=1 << 30, slots_max=rng.choice((10, 50, 10_000)))
        stage.disk_delay_s = rng.choice((0.001, 0.03))
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        await live(stage, rng, misfortune)

    play(story, seed)


@pytest.mark.parametrize("seed", seeds(4, 160))
def test_nothing_is_lost_that_was_acknowledged_past_a_hole(seed: int) -> None:
    async def story(stage: Stage) -> None:
        rng = random_of(seed)
        span = rng.choice((4, 16, 256))
        stage.config = TopicConfig(commit_protocol="paxos", commit_order=rng.choice((KEY, NONE)), commit_hole_span=span)
        stage.journal_bounds = JournalBounds(bytes_max=1 << 30, slots_max=rng.choice((10, 50, 10_000)))
        stage.disk_delay_s = rng.choice((0.001, 0.03))
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        stage.loss = 0.2
        await live(stage, rng, misfortune)

    play(story, seed)


@pytest.mark.parametrize("seed", seeds(4, 80))
def test_nothing_is_lost_that_only_memories_held(seed: int) -> None:
    """With `ack.durability=replicated`, while one at most has forgotten what it accepted."""

    async def story(stage: Stage) -> None:
        rng = random_of(seed)
        stage.config = TopicConfig(ack_durability="replicated")
        stage.journal_bounds = JournalBounds(bytes_max=1 << 30, slots_max=rng.choice((10, 50, 10_000)))
        stage.disk_delay_s = rng.choice((0.001, 0.03))
        for site in stage.sites.values():
            await site.stop()
        await stage.boot()
        tending = asyncio.ensure_future(stage.tend())
        await live(stage, rng, lesser_misfortune)
        tending.cancel()

    play(story, seed)
