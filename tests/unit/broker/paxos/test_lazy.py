"""A Paxos partition with `ack.durability=replicated`: answers come from memory, and what that costs is paid at a
restart that was not clean."""

from __future__ import annotations

import asyncio

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import TimedOutAfterAppend

LAZY = TopicConfig(ack_durability="replicated")


async def write(stage: Stage, node: int, count: int) -> None:
    for number in range(count):
        assert isinstance(await stage.produce(node, b"v%d" % number), ProduceReceipt)


def test_answers_do_not_wait_for_the_disk_and_say_so() -> None:
    async def story(stage: Stage) -> None:
        stage.config, stage.disk_delay_s = LAZY, 0.5
        for site in stage.sites.values():
            await site.stop()
        await stage.boot()
        await stage.lead(1)
        await write(stage, 1, 1)  # the first waits for the disk to say that others will not
        begun_s = asyncio.get_running_loop().time()
        for _ in range(10):
            receipt = await stage.produce(1, b"v")
            assert isinstance(receipt, ProduceReceipt)
            assert receipt.durability == "replicated" and len(receipt.acked_by) >= 2
        assert asyncio.get_running_loop().time() - begun_s < 0.5, "less than one write takes"
        journal = stage.sites[1].replica._files.store
        await until(lambda: not journal.is_dirty)
        await stage.quiet()

    play(story)


def test_who_was_stopped_in_good_order_votes_again_and_so_does_who_was_at_rest() -> None:
    async def story(stage: Stage) -> None:
        stage.config = LAZY
        await stage.lead(1)
        await write(stage, 1, 5)
        for site in stage.sites.values():
            await site.stop()
        await stage.boot()
        await stage.lead(2)
        assert [site.replica.lost_engine_id for site in stage.sites.values()] == [0, 0, 0]
        await write(stage, 2, 5)
        await asyncio.sleep(6)
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        await stage.lead(3)
        assert [site.replica.lost_engine_id for site in stage.sites.values()] == [0, 0, 0]
        assert stage.sites[3].replica.log.log_end_offset == 10
        await write(stage, 3, 1)

    play(story)


def test_who_was_not_has_no_vote_before_it_has_another_id() -> None:
    async def story(stage: Stage) -> None:
        stage.config = LAZY
        await stage.lead(1)
        await write(stage, 1, 5)
        await stage.sites[3].crash()
        await stage.sites[3].boot()
        third = stage.sites[3]
        assert third.replica.lost_engine_id == 3 and not third.replica.is_voting
        stage.sites[2].pause()
        unknown = await stage.produce(1, b"x", wait_s=1.0)
        assert isinstance(unknown, TimedOutAfterAppend), "one that may have forgotten decides nothing"
        stage.sites[2].resume()
        await third.crash()
        await third.boot()
        assert third.replica.lost_engine_id == 3, "another start does not bring its memory back"
        tending = asyncio.ensure_future(stage.tend())
        await until(lambda: stage.is_whole)
        tending.cancel()
        assert stage.sites[1].replica.voters.ids == (1, 2, 4)
        stage.sites[2].pause()
        receipt = await stage.produce(1, b"y")
        assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 3]
        await stage.quiet([1, 3])

    play(story)


def test_what_only_memories_held_survives_a_leader_that_loses_its_own() -> None:
    async def story(stage: Stage) -> None:
        stage.config, stage.disk_delay_s = LAZY, 0.2
        for site in stage.sites.values():
            await site.stop()
        await stage.boot()
        await stage.lead(1)
        await write(stage, 1, 1)
        await asyncio.sleep(1)
        stage.sites[3].pause()
        await write(stage, 1, 5)
        await stage.sites[1].crash()
        await stage.sites[1].boot()
        stage.cut = {(1, 2), (2, 3)}
        stage.sites[3].resume()
        stage.elect(3)
        await asyncio.sleep(5)
        third = stage.sites[3].replica.leader
        assert third is not None and not third.is_serving, "one has forgotten, the other never knew"
        stage.cut = set()
        await stage.lead(2)
        tending = asyncio.ensure_future(stage.tend())
        await until(lambda: stage.is_whole)
        tending.cancel()
        await stage.quiet()
        assert [site.replica.log.log_end_offset for site in stage.sites.values()] == [6, 6, 6]
        assert len({site.content() for site in stage.sites.values()}) == 1

    play(story)


def test_a_majority_that_has_forgotten_decides_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.config = LAZY
        await stage.lead(1)
        await write(stage, 1, 5)
        for node in (1, 2):
            await stage.sites[node].crash()
            await stage.sites[node].boot()
        stage.elect(3)
        tending = asyncio.ensure_future(stage.tend())
        await asyncio.sleep(10)
        tending.cancel()
        leader = stage.sites[3].replica.leader
        assert leader is not None and not leader.is_serving

    play(story)


def test_of_two_voters_nobody_is_lazy() -> None:
    async def story(stage: Stage) -> None:
        stage.config = LAZY
        await stage.lead(1)
        receipt = await stage.produce(1, b"v")
        assert isinstance(receipt, ProduceReceipt) and receipt.durability == "fsynced"
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        await stage.lead(2)
        assert isinstance(await stage.produce(2, b"v"), ProduceReceipt)

    play(story, replicas=2)
