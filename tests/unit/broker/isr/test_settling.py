"""A leader whose log's end is damaged: what it asks, whom it believes, and what is left of its log."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.repair.stage import EPOCH, IDENTITIES, RepairStage, play
from tidelog.broker.isr.settling import LogIdentity, Settling
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.storage.partition_log import PartitionLog


def ends(stage: RepairStage) -> list[int]:
    return [site.log.log_end_offset for site in stage.sites.values()]


def is_whole(log: PartitionLog) -> bool:
    return not log.damage and len(log.read(0, 1 << 20, log.log_end_offset).data) > 0


def test_a_whole_end_is_settled_at_once() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.harm(0, 1)
        assert await stage.settle(high_watermark=1) is None
        assert stage.asked == []

    play(story)


@pytest.mark.parametrize("giver", [2, 3])
def test_a_batch_that_anybody_has_is_put_back(giver: int) -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b")
        stage.write(b"c", nodes=(1, giver))
        before = stage.site.content()
        stage.silent = {2, 3} - {giver}
        stage.harm(1, 1)
        stage.harm(2, 1)
        assert await stage.settle() is not None
        assert stage.site.content() == before
        assert stage.site.stats.repaired_batches == 2

    play(story)


def test_what_one_member_lacks_is_cut_with_all_that_follows() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b")
        stage.write(b"c", b"d", nodes=(1,))
        stage.silent = {3}
        stage.harm(2, 1)
        await stage.settle(high_watermark=1)
        assert ends(stage) == [2, 2, 2]
        assert is_whole(stage.site.log)

    play(story)


def test_of_a_gap_and_a_later_loss_each_is_decided() -> None:
    """T6: batches are damaged on different disks; nobody has all, and all come back."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c", b"d")
        stage.write(b"e", nodes=(1, 3))
        for offset, nodes in ((0, (1, 2)), (1, (1, 3)), (2, (2, 3)), (4, (1, 3))):
            stage.harm(offset, *nodes)
        await stage.settle()
        assert ends(stage) == [4, 4, 5]
        assert is_whole(stage.site.log)

    play(story)


async def is_stuck(stage: RepairStage, members: tuple[int, ...] = (2, 3)) -> bool:
    """It has asked for long, and nothing has changed."""
    before = stage.site.log.log_end_offset
    try:
        async with asyncio.timeout(30):
            await stage.settle(high_watermark=1, members=members)
    except TimeoutError:
        assert stage.site.log.log_end_offset == before
        assert len(stage.asked) > 10
        return True
    return False


@pytest.mark.parametrize("reason", ["no member", "later life", "older epoch", "cutting", "faulty", "deleted nothing"])
def test_who_proves_nothing_is_not_believed(reason: str) -> None:
    """T14, and all other ways to lack a batch that was committed."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b")
        stage.write(b"c", nodes=(1, 3) if reason != "faulty" else (1, 2, 3))
        stage.silent = {3}
        stage.harm(2, 1)
        replica = stage.replica(2)
        match reason:
            case "later life":
                replica.broker_epoch += 1
            case "older epoch":
                replica.leader_epoch = EPOCH - 1
            case "cutting":
                replica.is_readable = False
            case "faulty":
                stage.harm(2, 2)
        members = (3,) if reason == "no member" else (2, 3)
        assert await is_stuck(stage, members) is (reason != "deleted nothing")
        stage.silent = set()
        settling = asyncio.ensure_future(stage.settle(high_watermark=1, members=members))
        await settling
        assert stage.site.log.log_end_offset == (2 if reason == "deleted nothing" else 3)
        assert is_whole(stage.site.log)

    play(story)


def test_what_another_knows_to_be_committed_holds_nobody_up() -> None:
    """Nor is it cut: it waits for its repair."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.harm(2, 1, 2, 3)
        stage.replica(3).high_watermark = 3
        await stage.settle(high_watermark=1)
        assert ends(stage) == [3, 3, 3]
        assert [damage.start for damage in stage.site.log.damaged_ranges()] == [2]

    play(story)


def test_what_all_members_have_damaged_is_got_over() -> None:
    """A power cut of all has torn the last batch everywhere: within a second the epoch begins, and it stays damaged."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.harm(2, 1, 2, 3)
        stage.silent = {3}
        assert await is_stuck(stage), "broker 3 may have it whole"
        settling = asyncio.ensure_future(stage.settle(high_watermark=1))
        await asyncio.sleep(2)
        stage.silent = set()
        back_s = asyncio.get_running_loop().time()
        settled = await settling
        assert asyncio.get_running_loop().time() - back_s < 0.5
        assert settled is not None and settled.core.committed_end == 3
        assert ends(stage) == [3, 3, 3]
        assert [damage.start for damage in stage.site.log.damaged_ranges()] == [2]

    play(story)


def test_a_member_that_lost_its_log_or_its_disk_is_not_waited_for() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.harm(2, 1, 2)
        stage.silent = {3}
        settling = asyncio.ensure_future(stage.settle(high_watermark=1))
        await asyncio.sleep(2)
        begun = stage.replicas[1]
        assert isinstance(begun, Settling)
        begun.look(IDENTITIES)
        await asyncio.sleep(2)
        assert not settling.done(), "broker 3 may have it whole"
        begun.look({**IDENTITIES, 3: LogIdentity("disk-3", 7)})
        settled = await settling
        assert settled is not None and settled.core.committed_end == 3
        assert ends(stage) == [3, 3, 3]

    play(story)


def test_whoever_has_lost_the_row_too_does_not_say_that_all_have_it_damaged() -> None:
    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.harm(1, 1, 2, 3)
        stage.harm_row(1, 3)
        assert await is_stuck(stage)

    play(story)


def test_the_copy_of_a_leader_to_be_is_read_while_nobody_leads() -> None:
    """Whole batches below its high watermark; `replica=any` asks for no more."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a", b"b", b"c")
        stage.silent = {2, 3}
        stage.harm(2, 1)
        settling = asyncio.ensure_future(stage.settle(high_watermark=2))
        await asyncio.sleep(1)
        holder = stage.replicas[1]
        assert isinstance(holder, Settling)
        copy = LocalCopy(holder, 1, Purgatory(16), stage.site.stats)
        read = await copy.read(0, bytes_max=1 << 20)
        assert (read.next_offset, read.high_watermark) == (2, 2)
        settling.cancel()

    play(story)


def test_a_copy_of_another_epoch_is_not_the_batch() -> None:
    """T8: offset alone names nothing."""

    async def story(stage: RepairStage) -> None:
        stage.write(b"a")
        stage.write(b"old", nodes=(2, 3), epoch=1)
        stage.write(b"new", nodes=(1,), epoch=3)
        stage.harm(1, 1)
        await stage.settle()
        assert ends(stage) == [1, 2, 2]

    play(story)
