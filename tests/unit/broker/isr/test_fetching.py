"""A fetcher against the leader's service: what is written arrives, byte for byte, whatever answers are lost."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.conftest import batch, produce
from tests.unit.broker.isr.stage import EPOCHS, PARTITION, Stage, play, until
from tidelog.broker.runtime.log_writer import UNAWAITED_S
from tidelog.model.errors import DiskFull, LeaderNotAvailable, TimedOutAfterAppend
from tidelog.replication.isr.events import IsrChanged


def test_an_acknowledgement_waits_for_the_followers_disk() -> None:
    async def story(stage: Stage) -> None:
        partition, follower = stage.lead(), stage.follow()
        waiting = asyncio.ensure_future(produce(partition, batch(b"a", b"b", timestamp_ms=1)))
        await asyncio.sleep(0.5)
        assert not waiting.done() and partition.high_watermark == 0
        stage.fetch(follower)
        receipt = await waiting
        assert (receipt.base_offset, receipt.acked_by, receipt.durability) == (0, [1, 2], "fsynced")
        assert stage.follower.log.durable_offset == 2
        assert stage.follower.content() == stage.leader.content()
        await until(lambda: follower.high_watermark == 2)

    play(story)


def test_a_follower_that_keeps_up_costs_the_leader_no_read_of_its_log() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"written before")
        partition, follower = stage.lead(), stage.follow()
        stage.fetch(follower)
        await until(lambda: stage.follower.log.log_end_offset == 1)
        assert stage.leader.stats.replica_log_reads == 1
        for number in range(10):
            await produce(partition, batch(b"%d" % number, timestamp_ms=1))
        assert stage.leader.stats.replica_log_reads == 1
        assert stage.follower.content() == stage.leader.content()
        await until(lambda: follower.high_watermark == 11)
        assert stage.recent.used == 0
        partition.close()

    play(story)


def test_a_record_by_itself_costs_a_fetch_and_a_report_of_each_follower() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead()
        stage.fetch(stage.follow())
        await produce(partition, batch(b"first", timestamp_ms=1))
        fetches, reports = len(stage.fetches), stage.leader.stats.replica_reports
        for number in range(20):
            await produce(partition, batch(b"%d" % number, timestamp_ms=1))
        assert len(stage.fetches) - fetches <= 20
        assert stage.leader.stats.replica_reports - reports <= 20

    play(story)


def test_an_fsync_that_is_waited_for_begins_before_the_next_fetch() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead()
        stage.fetch(stage.follow())
        for number in range(5):
            await produce(partition, batch(b"%d" % number, timestamp_ms=1))
        assert len(stage.unflushed) > 5 and not any(stage.unflushed)

    play(story)


def test_a_follower_reports_nothing_of_its_disk_while_nobody_waits_for_it() -> None:
    async def story(stage: Stage) -> None:
        partition, follower = stage.lead(), stage.follow()
        follower.reconfigure(follower.log.settings, is_fsynced=False)
        config = partition.config.model_copy(update={"ack_durability": "replicated"})
        partition.reconfigure(config, partition.log.settings)
        partition.tell(IsrChanged((1, 2), (1, 2), 0, EPOCHS, is_fsynced=False))
        stage.fetch(follower)
        await produce(partition, batch(b"first", timestamp_ms=1))
        await asyncio.sleep(2 * UNAWAITED_S)
        reports, flushes = stage.leader.stats.replica_reports, stage.follower.stats.flushes
        for number in range(20):
            await produce(partition, batch(b"%d" % number, timestamp_ms=1))
        assert stage.leader.stats.replica_reports == reports
        await asyncio.sleep(2 * UNAWAITED_S)
        assert stage.follower.stats.flushes == flushes + 1
        assert stage.follower.log.durable_offset == 21

    play(story)


def test_a_follower_that_is_put_out_does_not_keep_batches_in_memory() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead()
        await produce(partition, batch(b"a", timestamp_ms=1), acks=1)
        assert stage.recent.used > 0
        partition.tell(IsrChanged((1, 2), (1,), 1, EPOCHS))
        assert stage.recent.used == 0
        await produce(partition, batch(b"b", timestamp_ms=1))
        assert stage.recent.used == 0

    play(story)


def test_a_leadership_that_ends_gives_its_memory_back() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead()
        await produce(partition, batch(b"a", timestamp_ms=1), acks=1)
        partition.close(is_deposed=True)
        assert stage.recent.used == 0

    play(story)


def test_a_lost_answer_begins_another_session() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b", b"c")
        stage.lead()
        stage.lost = 2
        stage.fetch(stage.follow())
        await until(lambda: stage.follower.log.durable_offset == 3)
        assert stage.follower.content() == stage.leader.content()
        assert len({fetch.session for fetch in stage.fetches}) == 3

    play(story)


def test_a_report_that_is_lost_is_made_up_for_by_the_next_fetch() -> None:
    async def story(stage: Stage) -> None:
        stage.loses_reports = True
        partition = stage.lead()
        stage.fetch(stage.follow())
        receipt = await produce(partition, batch(b"a", timestamp_ms=1))
        assert (receipt.acked_by, receipt.durability) == ([1, 2], "fsynced")

    play(story)


def test_only_what_has_changed_is_asked_for_again() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a")
        stage.lead()
        stage.fetch(stage.follow())
        await until(lambda: stage.follower.log.durable_offset == 1)
        await asyncio.sleep(5.0)
        idle = [fetch for fetch in stage.fetches if not fetch.changed]
        assert len(idle) >= 3, "a question stays open at the leader"

    play(story)


def test_a_follower_that_is_removed_is_not_asked_for() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead(isr=(1,))
        fetcher = stage.fetch(follower := stage.follow())
        await asyncio.sleep(1.0)
        fetcher.remove(follower.partition_id)
        follower.close()
        await produce(partition, batch(b"a", timestamp_ms=1), acks=1)
        await asyncio.sleep(1.0)
        assert stage.follower.log.log_end_offset == 0

    play(story)


def test_a_divergent_tail_is_cut_and_replaced() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        stage.leader.write(3, b"c", b"d")
        stage.follower.write(1, b"a", b"b")
        stage.follower.write(2, b"lost", b"lost too", b"and this")
        stage.lead(epoch=4)
        stage.fetch(stage.follow(epoch=4))
        await until(lambda: stage.follower.log.durable_offset == 4)
        assert stage.follower.content() == stage.leader.content()

    play(story)


def test_a_follower_that_starts_over_recognises_what_was_deleted_at_the_leader_and_leads() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead(isr=(1,))
        for sequence in range(2):
            await produce(partition, batch(b"gone", producer_id=7, sequence=sequence, timestamp_ms=1))
        await produce(partition, batch(b"kept", producer_id=7, sequence=2, timestamp_ms=1))
        await produce(partition, batch(b"kept", producer_id=8, sequence=0, timestamp_ms=1))
        stage.leader.log.delete_records(2)
        partition.close(is_deposed=True)
        partition = stage.lead(epoch=2, isr=(1,))
        follower = stage.follow(epoch=2)
        fetcher = stage.fetch(follower)
        await until(lambda: stage.follower.log.durable_offset == 4)
        assert stage.follower.log.log_start_offset == 2
        fetcher.remove(PARTITION)
        follower.close()
        partition.close(is_deposed=True)
        stage.leader = stage.follower
        after = stage.lead(epoch=3, isr=(1,))
        for sequence in range(3):
            repeated = batch(b"again", producer_id=7, sequence=sequence, timestamp_ms=1)
            assert (await produce(after, repeated)).base_offset == sequence
        assert after.log_end_offset == 4

    play(story)


def test_a_deletion_is_answered_when_all_members_have_deleted() -> None:
    """The follower hears of a deletion and confirms it at once, also where nothing else is written."""

    async def story(stage: Stage) -> None:
        partition = stage.lead()
        stage.fetch(stage.follow())
        await produce(partition, batch(b"a", b"b", timestamp_ms=1), acks=-1)
        await asyncio.sleep(5.0)
        now_s = asyncio.get_running_loop().time()
        await partition.delete_records(1, deadline_s=now_s + 60)
        assert asyncio.get_running_loop().time() - now_s < 0.1, "no fetch was waited for until its time was up"
        assert stage.follower.log.log_start_offset == stage.leader.log.log_start_offset == 1

    play(story)


def test_a_deletion_that_a_member_has_not_heard_of_is_not_answered_as_done() -> None:
    """It may lead next, and show the records again."""

    async def story(stage: Stage) -> None:
        partition = stage.lead()
        fetcher = stage.fetch(follower := stage.follow())
        await produce(partition, batch(b"a", b"b", timestamp_ms=1), acks=-1)
        fetcher.remove(follower.partition_id)
        follower.close()
        with pytest.raises(TimedOutAfterAppend):
            await partition.delete_records(1, deadline_s=asyncio.get_running_loop().time() + 5)
        assert stage.follower.log.log_start_offset == 0
        waiting = asyncio.ensure_future(partition.delete_records(1, deadline_s=asyncio.get_running_loop().time() + 60))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        partition.tell(IsrChanged((1, 2), (1,), 1, EPOCHS))
        await waiting

    play(story)


def test_a_deletion_for_which_a_follower_has_no_room_is_tried_again() -> None:
    async def story(stage: Stage) -> None:
        refused: list[int] = []

        def without_room(offset: int) -> None:
            refused.append(offset)
            if len(refused) > 2:
                monkeypatch.undo()
            raise DiskFull("no room")

        with pytest.MonkeyPatch.context() as monkeypatch:
            partition = stage.lead()
            stage.fetch(stage.follow())
            await produce(partition, batch(b"a", b"b", timestamp_ms=1), acks=-1)
            monkeypatch.setattr(stage.follower.log, "delete_records", without_room)
            await partition.delete_records(1, deadline_s=asyncio.get_running_loop().time() + 60)
        assert refused == [1, 1, 1]
        assert stage.follower.log.log_start_offset == 1

    play(story)


def test_who_waits_for_a_deletion_is_told_when_another_leads() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        partition = stage.lead(epoch=2, isr=(1,))
        partition.tell(IsrChanged((1, 2), (1, 2), 1, EPOCHS))
        waiting = asyncio.ensure_future(partition.delete_records(1, deadline_s=asyncio.get_running_loop().time() + 60))
        await asyncio.sleep(1.0)
        partition.close(is_deposed=True)
        with pytest.raises(LeaderNotAvailable):
            await waiting

    play(story)


def test_damaged_rows_of_producers_are_asked_for_again() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead(isr=(1,))
        await produce(partition, batch(b"gone", producer_id=7, sequence=0, timestamp_ms=1))
        stage.leader.log.delete_records(1)
        partition.close(is_deposed=True)
        stage.lead(epoch=2, isr=(1,))
        stage.damaged = 1
        follower = stage.follow(epoch=2)
        stage.fetch(follower)
        await until(lambda: len(stage.fetches) == 2)
        assert stage.follower.log.log_end_offset == 0
        await until(lambda: stage.follower.log.log_end_offset == 1 and follower.is_readable)
        assert stage.follower.log.producers.check(7, 0, 0, 1) == (0, 0)

    play(story)


def test_who_has_cut_its_tail_learns_how_far_the_rest_is_committed() -> None:
    """Where nothing more is written, and the answer that told it to cut named the same high watermark."""

    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        stage.follower.write(1, b"a", b"b")
        stage.follower.write(2, b"lost")
        stage.lead(epoch=4, isr=(1,))
        stage.fetch(follower := stage.follow(epoch=4))
        await until(lambda: stage.follower.log.log_end_offset == 2 and follower.high_watermark == 2)

    play(story)


def test_whoever_has_caught_up_is_proposed_for_the_in_sync_set() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        stage.lead(isr=(1,))
        stage.fetch(stage.follow())
        await until(lambda: bool(stage.asked))
        assert stage.asked[0].isr == ((1, 11), (2, 12))
        assert stage.follower.log.durable_offset == 2

    play(story)


def test_fetches_of_one_session_are_numbered() -> None:
    async def story(stage: Stage) -> None:
        stage.lead()
        stage.fetch(stage.follow())
        await asyncio.sleep(3.0)
        numbers = [fetch.number for fetch in stage.fetches]
        assert numbers == list(range(len(numbers)))

    play(story)
