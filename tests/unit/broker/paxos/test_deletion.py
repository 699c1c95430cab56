"""Deleting the prefix of a Paxos partition: agreed on like a batch, so that all logs begin at the same offset."""

from __future__ import annotations

import asyncio

from tests.unit.broker.conftest import batch
from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import LeaderNotAvailable, OffsetOutOfRange, TimedOutAfterAppend

LARGE = bytes(3000)


async def write(stage: Stage, node: int, count: int) -> None:
    for _ in range(count):
        assert isinstance(await stage.produce(node, LARGE), ProduceReceipt)


def starts(stage: Stage) -> list[int]:
    return [site.replica.log.log_start_offset for site in stage.sites.values()]


def test_a_prefix_is_deleted_on_all_replicas_and_stays_deleted() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 30)
        assert await stage.delete(1, 17) is None
        assert stage.sites[1].replica.log.log_start_offset == 17
        await stage.quiet()
        assert starts(stage) == [17, 17, 17]
        assert all(site.replica.log.segments[0].base_offset > 0 for site in stage.sites.values())
        await stage.restart()
        await stage.lead(2)
        await stage.quiet()
        assert starts(stage) == [17, 17, 17]
        receipt = await stage.produce(2, b"more")
        assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 30
        assert await stage.delete(2, 5) is None, "what is gone already needs no deletion"
        beyond = await stage.delete(2, 32)
        assert isinstance(beyond, OffsetOutOfRange)
        await stage.quiet()
        assert len({site.content() for site in stage.sites.values()}) == 1

    play(story)


def test_all_can_be_deleted_and_no_offset_is_used_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        assert await stage.delete(1, 10) is None
        await stage.quiet()
        await stage.restart()
        await stage.lead(3)
        await stage.quiet()
        assert starts(stage) == [10, 10, 10]
        assert all(len(site.replica.log.segments) == 1 for site in stage.sites.values())
        receipt = await stage.produce(3, b"more")
        assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 10

    play(story)


def test_the_leader_alone_applies_retention() -> None:
    async def story(stage: Stage) -> None:
        stage.config = TopicConfig(retention_bytes=20_000)
        leader = await stage.lead(1)
        await write(stage, 1, 40)
        await until(lambda: leader.log.durable_offset == 40)
        stage.sites[1].act(lambda: leader.apply_retention(0))
        await until(lambda: leader.log_start_offset > 20)
        await stage.quiet()
        assert len(set(starts(stage))) == 1 and starts(stage)[0] > 20
        assert all(site.replica.log.log_bytes < 45_000 for site in stage.sites.values())

    play(story)


def test_several_deletions_at_a_time() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 20)
        asked = [asyncio.ensure_future(stage.delete(1, offset)) for offset in (3, 12, 7)]
        more = [asyncio.ensure_future(stage.produce(1, LARGE)) for _ in range(5)]
        assert await asyncio.gather(*asked) == [None, None, None]
        assert all(isinstance(receipt, ProduceReceipt) for receipt in await asyncio.gather(*more))
        await stage.quiet()
        assert starts(stage) == [12, 12, 12]

    play(story)


def test_without_a_majority_nothing_is_deleted() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        await stage.quiet()
        stage.cut = {(1, 2), (1, 3)}
        outcome = await stage.delete(1, 5, wait_s=1.0)
        assert isinstance(outcome, TimedOutAfterAppend)
        await stage.lead(2)
        assert starts(stage) == [0, 0, 0]
        await write(stage, 2, 1)
        stage.cut = set()
        await stage.quiet()
        assert starts(stage) == [0, 0, 0], "the deletion of an old leader is void"
        assert isinstance(await stage.delete(1, 5), LeaderNotAvailable)

    play(story)


def test_a_deletion_goes_on_under_the_same_leader_when_voters_have_changed() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        change = asyncio.ensure_future(stage.change(1, add=4, remove=3))
        await asyncio.sleep(0)
        assert await stage.delete(1, 6) is None
        await change
        await until(lambda: stage.sites[4].replica.log.log_start_offset == 6)

    play(story, spares=1)


def test_who_is_behind_begins_where_the_others_begin_also_within_a_batch() -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        leader = await stage.lead(1)
        await write(stage, 1, 2)
        await stage.quiet()
        await stage.sites[3].crash()
        deadline_s = asyncio.get_running_loop().time() + 5
        ten = batch(*[b"v"] * 10, timestamp_ms=1_700_000_000_000)
        assert (await stage.sites[1].run(leader.produce(ten, acks=-1, deadline_s=deadline_s))).base_offset == 2
        assert await stage.delete(1, 7) is None
        await write(stage, 1, 60)
        node = stage.sites[1].replica.engine.node
        await until(lambda: node.replica.begin > 20)
        await stage.sites[3].boot()
        await stage.quiet()
        assert starts(stage) == [7, 7, 7]
        assert len({site.content() for site in stage.sites.values()}) == 1
        await stage.restart()
        await stage.lead(3)
        await stage.quiet()
        assert starts(stage) == [7, 7, 7] and stage.sites[3].rows()[0][0] == 2

    play(story)


def test_who_starts_over_recognises_what_was_deleted_and_leads() -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        await stage.quiet()
        await stage.sites[3].crash()
        for sequence in range(3):
            assert isinstance(await stage.produce(1, LARGE, producer=(7, sequence)), ProduceReceipt)
        await write(stage, 1, 30)
        assert await stage.delete(1, 20) is None
        await write(stage, 1, 30)
        node = stage.sites[1].replica.engine.node
        await until(lambda: node.replica.begin > 20)
        await stage.sites[3].boot()
        await stage.quiet()
        assert starts(stage) == [20, 20, 20]
        await stage.lead(3)
        for sequence in range(3):
            repeated = await stage.produce(3, LARGE, producer=(7, sequence))
            assert isinstance(repeated, ProduceReceipt) and repeated.base_offset == sequence
        assert stage.sites[3].replica.log.log_end_offset == 63

    play(story)


def test_a_restart_between_agreement_and_deletion_makes_up_for_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 20)
        third = stage.sites[3]
        third.replica.applied.is_truncating = True  # its log takes nothing, nor lets it go
        assert await stage.delete(1, 12) is None
        await until(lambda: third.replica.applied_position == stage.sites[1].replica.applied_position)
        assert third.replica.log.log_start_offset == 0
        await third.crash()
        await third.boot()
        await stage.quiet()
        assert starts(stage) == [12, 12, 12]

    play(story)
