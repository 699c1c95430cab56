"""Damage is repaired with whatever copy can be had, again and again until there is one."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.repair.stage import RepairStage, play
from tidelog.model.errors import DamagedBatch
from tidelog.storage.segment import Damage


def find(stage: RepairStage) -> None:
    """As a reader does that comes by."""
    log = stage.site.log
    log.damage.on_change = lambda: stage.repairer.noticed(PARTITION)
    for offset in range(log.log_end_offset):
        log.extent(offset, 1, log.log_end_offset)


@pytest.mark.parametrize("giver", [2, 3])
def test_a_copy_is_taken_from_any_replica(giver: int) -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        before = stage.site.content()
        stage.harm(1, *{1, 2, 3} - {giver})
        find(stage)
        await until(lambda: not stage.site.log.damage)
        assert stage.site.content() == before
        assert stage.site.stats.repaired_batches == 1

    play(story)


def test_a_reader_is_woken_by_the_repair() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a")
        stage.harm(0, 1)
        woken = asyncio.Event()
        stage.replica(1).watchers.add(woken.set)
        find(stage)
        async with asyncio.timeout(1):
            await woken.wait()
        assert stage.site.log.read(0, 1, 1).data

    play(story)


def test_what_nobody_has_is_asked_for_until_somebody_has_it() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b")
        stage.harm(1, 1, 2)
        stage.silent = {3}
        find(stage)
        await asyncio.sleep(60)
        assert 10 < len(stage.asked) < 100, "neither given up nor asked all the time"
        with pytest.raises(DamagedBatch):
            stage.site.log.read(1, 1, 2)
        assert stage.site.log.read(0, 1, 2).data
        assert stage.site.log.log_end_offset == 2
        assert (stage.repairer.without_copy, stage.repairer.unasked) == ({PARTITION: 1}, {PARTITION: {3}})
        stage.silent = set()
        await until(lambda: not stage.site.log.damage)
        assert (stage.repairer.without_copy, stage.repairer.unasked) == ({}, {})

    play(story)


def test_news_of_one_partition_does_not_repeat_what_was_asked_for_another() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a")
        stage.harm(0, 1, 2, 3)
        find(stage)
        await asyncio.sleep(60)
        assert stage.repairer.unasked == {PARTITION: set()}, "all have said that they have no good copy either"
        asked = len(stage.asked)
        for number in range(1, 101):
            stage.repairer.noticed(PARTITION._replace(partition=number))
            await asyncio.sleep(0.1)
        assert 2 <= len(stage.asked) - asked <= 10, "asked as often as without the news"

    play(story)


def test_of_many_damaged_batches_all_come_back() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(*(b"%d" % n for n in range(200)))
        before = stage.site.content()
        for offset in range(0, 200, 2):
            stage.harm(offset, 1)
        find(stage)
        await until(lambda: not stage.site.log.damage)
        assert stage.site.content() == before
        assert stage.site.stats.repaired_batches == 100

    play(story)


def test_another_batch_in_that_place_is_left_where_it_is() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a")
        stage.write(b"mine", nodes=(1,))
        stage.write(b"theirs", nodes=(2, 3), epoch=2)
        stage.harm(1, 1)
        find(stage)
        await asyncio.sleep(10)
        assert stage.site.log.damaged_ranges() == [Damage(1, 2, "batch does not match its catalog row", 1)], (
            "epochs decide, not the repair"
        )
        assert stage.site.stats.repaired_batches == 0

    play(story)


def test_what_is_whole_again_by_itself_is_damaged_no_more() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b")
        stage.harm(1, 1, 2, 3)
        find(stage)
        await asyncio.sleep(5)
        assert stage.site.log.damage
        told = stage.replica(1).flushed
        stage.harm(1, 1)  # the same bit turns back
        await until(lambda: not stage.site.log.damage)
        assert stage.replica(1).flushed == told + 1, "a follower has to tell its leader"
        assert stage.site.stats.repaired_batches == 0

    play(story)


@pytest.mark.parametrize("known", [(3, 3), (3, 1), (1, 3)], ids=["both", "asker alone", "giver alone"])
def test_what_is_lost_with_its_row_comes_back_if_it_is_committed(known: tuple[int, int]) -> None:
    """By what both replicas know."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        before = stage.site.content()
        stage.harm(1, 1)
        stage.harm_row(1, 1)
        stage.silent = {3}
        stage.replica(1).high_watermark, stage.replica(2).high_watermark = known
        find(stage)
        await asyncio.sleep(10)
        is_repaired = not stage.site.log.damage
        assert is_repaired == (known == (3, 3))
        assert not is_repaired or stage.site.content() == before

    play(story)


@pytest.mark.parametrize(
    ("aligned", "is_repaired"),
    [((7, 7), True), ((7, 6), False), ((-1, -1), False), ((7, -1), False), ((-1, 7), False)],
    ids=["same leader", "an older leader's", "no leader", "asker alone", "giver alone"],
)
def test_what_is_lost_with_its_row_comes_back_from_a_log_of_the_same_leader(
    aligned: tuple[int, int], *, is_repaired: bool
) -> None:
    """It is not committed. Both logs are prefixes of the leader's, so it is the same batch."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        before = stage.site.content()
        stage.harm(1, 1)
        stage.harm_row(1, 1)
        stage.silent = {3}
        stage.replica(1).aligned_epoch, stage.replica(2).aligned_epoch = aligned
        find(stage)
        await asyncio.sleep(10)
        assert (not stage.site.log.damage) is is_repaired
        assert not is_repaired or stage.site.content() == before

    play(story)


def test_an_answer_to_a_follower_of_another_epoch_fills_nothing_in() -> None:
    """The leader changes while the question is under way."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.harm(1, 1)
        stage.harm_row(1, 1)
        stage.silent = {3}
        asker = stage.replica(1)
        asker.aligned_epoch = stage.replica(2).aligned_epoch = 7
        find(stage)
        while not stage.asked:
            await asyncio.sleep(0)
        asker.aligned_epoch = 8
        await asyncio.sleep(10)
        assert stage.site.log.damage

    play(story)


def test_a_role_that_has_ended_is_not_repaired_for() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b")
        stage.harm(1, 1)
        find(stage)
        stage.replicas[1] = type(stage.replica(1))(stage.sites[2].log)
        await asyncio.sleep(10)
        assert stage.site.log.damage

    play(story)


def test_what_waits_and_what_was_repaired_from_where_is_counted() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        size = len(stage.site.log.read(1, 1, 3).data)
        stats, repairer = stage.site.stats, stage.repairer
        stage.harm(1, 1, 2)
        stage.harm(2, 1)
        stage.silent = {3}
        find(stage)
        await asyncio.sleep(30)
        assert repairer.without_copy == {PARTITION: 1}, "the other one came from broker 2"
        assert 29 < repairer.damaged_for_s()[PARTITION] < 31
        assert (stats.repaired_peer_bytes, stats.repaired_own_bytes) == (size, 0)
        assert stats.repair_seconds < 1
        stage.silent = set()
        await until(lambda: not stage.site.log.damage)
        await asyncio.sleep(1)
        assert (repairer.without_copy, repairer.damaged_for_s()) == ({}, {})
        assert stats.repaired_peer_bytes == 2 * size
        assert 29 < stats.repair_seconds < 40

    play(story)
