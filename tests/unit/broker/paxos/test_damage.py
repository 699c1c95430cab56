"""Damage on a Paxos replica's disk: what the journal loses the log has, or another replica; what the log loses others
have, at the same offset, byte for byte."""

from __future__ import annotations

import asyncio

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt


async def write(stage: Stage, node: int, count: int) -> None:
    for number in range(count):
        assert isinstance(await stage.produce(node, b"v%d" % number), ProduceReceipt)


def test_a_journal_gets_back_from_the_own_log_what_is_applied() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        await stage.quiet()
        third = stage.sites[3]
        await until(lambda: third.replica.log.durable_offset == 10)
        assert third.harm_journal(4) and third.harm_journal(5)
        await third.crash()
        stage.cut = {(3, 1), (3, 2)}
        await third.boot()
        replica = third.replica.engine.node.replica
        assert replica.applied.position > 5 and replica.faulty() == []
        await asyncio.sleep(1)
        await third.crash()
        await third.boot()
        replica, store = third.replica.engine.node.replica, third.replica._files.store
        assert store.has_payload(4, replica.slots[4].value.digest), "it was written once more"

    play(story)


def test_what_a_running_replica_finds_damaged_in_its_journal_it_takes_from_its_log() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        await stage.quiet()
        engine = stage.sites[1].replica.engine
        assert stage.sites[1].harm_journal(4)
        value = engine.node.replica.slots[4].value
        assert engine.payload_of(4, value) is not None
        assert not engine.node.replica.slots[4].faulty

    play(story)


def test_a_journal_whose_log_has_not_come_so_far_asks_another_replica() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        third = stage.sites[3]
        await stage.quiet()
        assert third.replica.log.durable_offset < 10
        assert third.harm_journal(9)
        await third.crash()
        stage.cut = {(3, 1), (3, 2)}
        await third.boot()
        await asyncio.sleep(1)
        assert third.replica.log.log_end_offset < 10
        stage.cut = set()
        await stage.quiet()
        assert third.content() == stage.sites[1].content()
        assert third.replica.engine.node.replica.faulty() == []

    play(story)


def test_a_damaged_batch_of_the_log_is_repaired_from_another_replica() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        await stage.quiet()
        first = stage.sites[1]
        await until(lambda: first.replica.log.durable_offset == 10)
        before = first.content()
        first.harm_log(3)
        first.harm_log(7)
        assert not first.is_sound()
        await until(first.is_sound)
        assert first.content() == before

    play(story)


def test_who_lacks_what_nobody_has_any_more_and_is_deleted_starts_over() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 3)
        await stage.quiet()
        stage.cut = {(3, 1), (3, 2)}
        await write(stage, 1, 6)
        await stage.quiet([1, 2])
        first, second, third = stage.sites.values()
        await until(lambda: first.replica.log.durable_offset == second.replica.log.durable_offset == 9)
        for site in (first, second):
            position = next(position for offset, position, _ in site.rows() if offset == 5)
            assert site.harm_journal(position)
            site.harm_log(5)
            assert not site.is_sound()
        assert await stage.delete(1, 7) is None
        stage.cut = set()
        await stage.quiet()
        await write(stage, 1, 2)
        await stage.quiet()
        assert [site.replica.log.log_start_offset for site in stage.sites.values()] == [7, 7, 7]
        assert first.content() == second.content() == third.content()

    play(story)
