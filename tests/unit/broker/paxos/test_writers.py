"""Writers that contend for a Paxos partition while its machines crash, pause and lose frames: each entry that is in the
log is behind its own writer's claim, and before the next one (decision 0018)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play, random_of
from tests.unit.broker.paxos.test_crashes import NEVER, misfortune, revive
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import EndOffsetMoved, LeaderNotAvailable, Overloaded

SEEDS = 200
QUICK = 3
DEFINITE = (LeaderNotAvailable, Overloaded)
PATIENCE_S = 5.0


class Lost(Exception):
    """The entry is surely not in the log, and the writer has lost it."""


class Unknown(Exception):
    pass


class Story:
    """What writers were told. An entry's value is `term-number`, a claim's `term-claim`."""

    def __init__(self) -> None:
        self.terms: Iterator[int] = itertools.count()
        self.acknowledged: list[tuple[int, bytes]] = []
        self.refused: list[bytes] = []


class Contender:
    """A writer that claims the log, appends until it has lost it or does not know, and claims it again."""

    def __init__(self, stage: Stage, story: Story) -> None:
        self.stage = stage
        self.story = story
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._write_term(next(self.story.terms))
            except (Lost, Unknown):
                await asyncio.sleep(self.stage.rng.uniform(0.0, 1.0))

    async def _write_term(self, term: int) -> None:
        end = 1 + await self._append(b"%d-claim" % term, (1000 + term, 0), None)
        for number in range(10_000):
            if self.is_stopping:
                return
            value = b"%d-%d" % (term, number)
            try:
                end = 1 + await self._append(value, (1000 + term, number + 1), end)
            except Lost:
                self.story.refused.append(value)
                raise
            await asyncio.sleep(self.stage.rng.uniform(0.0, 0.1))

    async def _append(self, value: bytes, producer: tuple[int, int], expected_end: int | None) -> int:
        """As `LogPartition.append`: tries again while that is harmless and there is time."""
        is_uncertain = False
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while asyncio.get_running_loop().time() < deadline_s:
            node = max(self.stage.leader, 1)
            outcome = await self.stage.produce(node, value, wait_s=1.0, producer=producer, expected_end=expected_end)
            if isinstance(outcome, ProduceReceipt) and outcome.base_offset is not None:
                self.story.acknowledged.append((outcome.base_offset, value))
                return outcome.base_offset
            if isinstance(outcome, EndOffsetMoved) and not is_uncertain:
                raise Lost
            if isinstance(outcome, EndOffsetMoved):
                break
            is_uncertain = is_uncertain or not isinstance(outcome, DEFINITE)
            await asyncio.sleep(0.05)
        raise Unknown


async def check(stage: Stage, story: Story) -> None:
    await stage.quiet()
    found = {
        record.offset: record.value or b""
        for one in iter_batches(stage.sites[1].content())
        for record in decode_batch(one)
    }
    assert len(set(found.values())) == len(found), "something is there twice"
    current_term, expected = b"", 0
    for offset, value in sorted(found.items()):
        term, _, what = value.partition(b"-")
        if what == b"claim":
            current_term, expected = term, 0
            continue
        assert (term, int(what)) == (current_term, expected), (
            f"{value!r} at {offset} is in the term of {current_term!r}"
        )
        expected += 1
    for offset, value in story.acknowledged:
        assert found.get(offset) == value, f"{value!r} was acknowledged at offset {offset}"
    assert not set(story.refused) & set(found.values()), "refused, and there"


@pytest.mark.parametrize(
    "seed", [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, SEEDS))]
)
def test_whatever_befalls_brokers_and_writers(seed: int) -> None:
    rng = random_of(f"writers {seed}")

    async def story_of(stage: Stage) -> None:
        story = Story()
        await stage.lead(1)
        contenders = [Contender(stage, story) for _ in range(3)]
        writing = [asyncio.get_running_loop().create_task(contender.run()) for contender in contenders]
        for _ in range(rng.randint(5, 25)):
            await asyncio.sleep(rng.expovariate(1.5))
            await misfortune(stage, rng)
        stage.cut, stage.loss = set(), 0.0
        for site in stage.sites.values():
            site.disk.crash_at(NEVER)
            site.resume()
        await revive(stage)
        stage.elect(rng.choice(sorted(stage.sites)))
        before = len(story.acknowledged)
        await until(lambda: len(story.acknowledged) > before + 10)
        for contender in contenders:
            contender.is_stopping = True
        await asyncio.gather(*writing)
        await check(stage, story)

    play(story_of, seed)
