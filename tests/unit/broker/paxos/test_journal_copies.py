"""A batch that no log has whole is taken from a journal, the own one first."""

from __future__ import annotations

import asyncio

import pytest
from xxhash import xxh3_128_digest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play, random_of
from tests.unit.broker.paxos.test_damage import write
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import DamagedBatch
from tidelog.storage.copies import Identity, identity_at

BATCHES = 4


async def begin(stage: Stage, count: int = 10) -> bytes:
    """So many batches, in all logs, all durable; returns them."""
    await stage.lead(1)
    await write(stage, 1, count)
    await stage.quiet()
    await until(lambda: all(site.replica.log.durable_offset == count for site in stage.sites.values()))
    return stage.sites[1].content()


def positions(site: Site) -> dict[int, int]:
    """The position of each batch, by its offset."""
    return {offset: position for offset, position, _ in site.rows()}


def batch_at(content: bytes, offset: int) -> bytes:
    return next(bytes(batch.data) for batch in iter_batches(content) if batch.header.base_offset == offset)


@pytest.mark.parametrize("whole", [1, 2, 3])
def test_a_batch_that_is_damaged_in_all_logs_is_repaired_from_the_one_whole_journal(whole: int) -> None:
    async def story(stage: Stage) -> None:
        before = await begin(stage)
        at = positions(stage.sites[1])
        for site in stage.sites.values():
            if site.node != whole:
                assert site.harm_journal(at[3])
            site.harm_log(3)
        for site in stage.sites.values():
            site.is_sound()  # a reader comes by, and finds it
        await until(lambda: all(site.is_sound() for site in stage.sites.values()))
        assert all(site.content() == before for site in stage.sites.values())
        assert [site.stats.repaired_from_own_copy for site in stage.sites.values()] == [
            site.node == whole for site in stage.sites.values()
        ]

    play(story)


def test_a_replica_that_reaches_nobody_repairs_its_log_from_its_own_journal() -> None:
    async def story(stage: Stage) -> None:
        before = await begin(stage)
        third = stage.sites[3]
        stage.cut = {(3, 1), (3, 2)}
        third.harm_log(3)
        third.harm_log(7)
        assert not third.is_sound()
        await until(third.is_sound)
        assert third.content() == before
        assert third.stats.repaired_batches == third.stats.repaired_from_own_copy == 2

    play(story)


def test_what_is_below_the_floor_of_all_journals_and_damaged_everywhere_waits() -> None:
    async def story(stage: Stage) -> None:
        stage.journal_bounds = JournalBounds(slots_max=8)
        for site in stage.sites.values():
            await site.crash()
            await site.boot()
        await begin(stage, 40)
        await until(lambda: all(site.replica.engine.node.replica.begin > 4 for site in stage.sites.values()))
        for site in stage.sites.values():
            site.harm_log(1)
            assert not site.is_sound()
        await asyncio.sleep(10)
        for site in stage.sites.values():
            with pytest.raises(DamagedBatch):
                site.replica.log.read(1, 1, 2)
            assert site.replica.log.read(2, 1, 3).data
            assert site.stats.repaired_batches == 0

    play(story)


def test_a_journal_gives_what_the_question_names_and_nothing_else() -> None:
    async def story(stage: Stage) -> None:
        before = await begin(stage)
        replica = stage.sites[2].replica
        named = identity_at(replica.log, 3)
        assert replica.second_copy(named) == batch_at(before, 3)
        assert replica.second_copy(named._replace(digest=b"x" * 16)) is None
        assert replica.second_copy(Identity(3)) == batch_at(before, 3), "applied, so committed"
        assert replica.second_copy(Identity(10)) is None, "nothing is there yet"

    play(story)


def test_what_is_not_applied_yet_is_not_given_for_its_offset_alone() -> None:
    async def story(stage: Stage) -> None:
        await begin(stage)
        stage.on_frame = lambda sender, to, _: sender == 1  # values reach the others, and no answer does
        await stage.produce(1, b"open", wait_s=0.5)
        replica = stage.sites[2].replica
        (slot,) = [slot for slot in replica.engine.node.replica.slots.values() if slot.value.base_offset == 10]
        assert slot.value.count and not slot.learned
        assert replica.second_copy(Identity(10)) is None
        payload = replica.engine.payload_of(slot.position, slot.value)
        assert payload is not None
        named = Identity(10, 0, xxh3_128_digest(payload))
        assert replica.second_copy(named) == payload, "the digest proves it"

    play(story)


@pytest.mark.parametrize("seed", range(12))
def test_one_good_copy_in_any_log_or_journal_is_enough(seed: int) -> None:
    """Batches rot at random in three logs and three journals, but each stays whole in one of the six; then all brokers
    are killed and started again."""

    async def story(stage: Stage) -> None:
        rng = random_of(seed)
        before = await begin(stage, BATCHES)
        at = positions(stage.sites[1])
        for offset in range(BATCHES):
            spared = (rng.choice([1, 2, 3]), rng.choice(["log", "journal", "journal"]))
            for site in stage.sites.values():
                if (site.node, "log") != spared and rng.random() < 0.9:
                    site.harm_log(offset)
                if (site.node, "journal") != spared and rng.random() < 0.8:
                    site.harm_journal(at[offset])
        for site in stage.sites.values():
            await site.crash(is_power_lost=False)
        for site in stage.sites.values():
            await site.boot()
        stage.elect(1 + seed % 3)
        await until(lambda: all(site.is_sound() for site in stage.sites.values()))
        assert all(site.content() == before for site in stage.sites.values())

    play(story, seed)
