"""A follower's log under the answers of a leader, also under those that it must not take."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.unit.broker.isr.stage import PARTITION, Site, Stage, play, until
from tidelog.broker.isr.follower import Follower, acknowledged_end
from tidelog.broker.isr.replica_messages import FetchStatus, PartitionFetched
from tidelog.storage.segment import Damage


def answer(epoch: int = 1, offset: int = 0, status: FetchStatus = FetchStatus.OK, size: int = 0) -> PartitionFetched:
    return PartitionFetched(*PARTITION, epoch, offset, -1, status, size, 0, 0)


def test_batches_are_appended_as_they_are_and_made_durable() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        follower, sent = stage.follow(), stage.leader.content()
        assert follower.ask() is not None
        follower.answered(answer(size=len(sent)), memoryview(sent))
        await until(lambda: stage.follower.log.durable_offset == 2)
        assert stage.follower.content() == sent

    play(story)


@pytest.mark.parametrize("place", [4, 20, 70])
def test_damaged_bytes_are_not_appended(place: int) -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        follower, sent = stage.follow(), bytearray(stage.leader.content())
        sent[place] ^= 1
        follower.ask()
        follower.answered(answer(size=len(sent)), memoryview(sent))
        assert stage.follower.log.log_end_offset == 0
        assert follower.not_before_s > 0

    play(story)


def test_a_follower_is_aligned_when_the_leader_has_found_its_end() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a")
        follower, sent = stage.follow(), stage.leader.content()
        follower.ask()
        assert follower.aligned_epoch == -1
        follower.answered(answer(size=len(sent)), memoryview(sent))
        assert follower.aligned_epoch == follower.leader_epoch == 1

    play(story)


def test_an_answer_of_another_epoch_is_nobodys() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a")
        follower, sent = stage.follow(epoch=2), stage.leader.content()
        follower.ask()
        follower.answered(answer(epoch=1, size=len(sent)), memoryview(sent))
        assert stage.follower.log.log_end_offset == 0

    play(story)


def test_a_closed_follower_takes_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a")
        follower, sent = stage.follow(), stage.leader.content()
        follower.ask()
        follower.close()
        follower.answered(answer(size=len(sent)), memoryview(sent))
        assert follower.ask() is None
        assert stage.follower.log.log_end_offset == 0

    play(story)


def test_nothing_is_asked_while_the_log_is_cut() -> None:
    async def story(stage: Stage) -> None:
        stage.follower.write(2, b"lost", b"too")
        follower = stage.follow(epoch=3)
        follower.ask()
        diverging = PartitionFetched(*PARTITION, 3, 2, 2, FetchStatus.DIVERGING, 0, 0, 0, 1, 0)
        follower.answered(diverging, memoryview(b""))
        assert follower.ask() is None
        await until(lambda: stage.follower.log.log_end_offset == 0)
        await asyncio.sleep(0.1)
        assert follower.ask() is not None

    play(story)


def beyond(follower: Follower, site: Site, start: int) -> None:
    """The leader's log begins behind the follower's end."""
    follower.ask()
    told = answer(offset=site.log.log_end_offset, status=FetchStatus.OUT_OF_RANGE)
    follower.answered(replace(told, log_start_offset=start, end_offset=start), memoryview(b""))


def test_a_commit_that_was_under_way_before_a_cut_is_not_reported() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        follower, sent = stage.follow(), stage.leader.content()
        follower.ask()
        follower.answered(answer(size=len(sent)), memoryview(sent))
        await asyncio.sleep(0)
        beyond(follower, stage.follower, 10)
        assert not follower.is_readable
        await until(lambda: stage.follower.log.log_start_offset == 10)
        await until(lambda: follower.is_readable)
        assert stage.follower.log.durable_offset == 10

    play(story)


def test_a_closed_follower_is_at_rest_when_its_cut_is_done() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        follower, sent = stage.follow(), stage.leader.content()
        follower.ask()
        follower.answered(answer(size=len(sent)), memoryview(sent))
        beyond(follower, stage.follower, 10)
        follower.close()
        await follower.at_rest()
        before = stage.follower.log.log_end_offset
        await asyncio.sleep(1)
        assert stage.follower.log.log_end_offset == before

    play(story)


@pytest.mark.parametrize(("told", "known"), [(1, 1), (-1, 0)])
def test_a_damaged_leader_tells_how_far_its_log_is_committed(told: int, known: int) -> None:
    """Or what a follower has would be shown to nobody for as long as the leader's next batch is damaged."""

    async def story(stage: Stage) -> None:
        stage.follower.write(1, b"a")
        follower = stage.follow(epoch=1)
        follower.ask()
        damaged = replace(answer(offset=1, status=FetchStatus.DAMAGED), last_epoch=1, high_watermark=told)
        follower.answered(damaged, memoryview(b""))
        assert follower.high_watermark == known
        assert follower.not_before_s > stage.follower.clock.monotonic_s()

    play(story)


def test_a_leader_is_told_what_is_damaged_and_once_more_when_it_is_not() -> None:
    async def story(stage: Stage) -> None:
        stage.follower.write(1, b"a", b"b")
        log = stage.follower.log
        log.damage.note(Damage(1, 2, "batch does not match its catalog row", 1))
        follower, news = stage.follow(epoch=1), list[Follower]()
        follower.on_change = news.append
        asked = follower.ask()
        assert asked is not None and asked.damaged == (1,)
        log.damage.forget(1, 2)
        follower.on_flushed()
        assert news == [follower]
        asked = follower.ask()
        assert asked is not None and asked.damaged == ()
        follower.on_flushed()
        assert news == [follower], "there is nothing to tell"

    play(story)


def test_what_is_damaged_is_acknowledged_when_it_is_repaired_or_known_to_be_committed() -> None:
    """A power cut may have torn it, so that this replica never acknowledged it: the leader must not count this copy."""

    async def story(stage: Stage) -> None:
        stage.follower.write(1, b"a", b"b", b"c")
        log = stage.follower.log
        log.damage.note(Damage(1, 2, "batch does not match its catalog row", 1))
        assert [acknowledged_end(log, high_watermark) for high_watermark in (0, 1, 2, 3)] == [1, 1, 3, 3]
        log.damage.note(Damage(0, 1, "batch and catalog row are both damaged"))
        assert acknowledged_end(log, 0) == 1, "the leader tells what it was that has lost its row as well"
        log.damage.forget(0, 3)
        assert acknowledged_end(log, 0) == 3

    play(story)
