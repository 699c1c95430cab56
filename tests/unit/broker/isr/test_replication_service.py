"""The leader's answers to fetches, one question at a time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.broker.conftest import batch, produce
from tests.unit.broker.isr.stage import EPOCHS, PARTITION, Stage, play
from tidelog.broker.isr.replica_messages import (
    FetchReplicas,
    FetchStatus,
    FollowerState,
    PartitionFetched,
    ReplicasFetched,
    ReplicasFlushed,
)
from tidelog.model.errors import ImplausibleNumber, StaleBrokerEpoch
from tidelog.replication.isr.events import IsrChanged
from tidelog.transport.peer import Hello


def state(epoch: int = 1, offset: int = 0, last_epoch: int = -1, durable: int | None = None) -> FollowerState:
    return FollowerState(*PARTITION, epoch, offset, last_epoch, offset if durable is None else durable, 0)


async def ask(
    stage: Stage, *states: FollowerState, session: str = "s", number: int = 0, epoch: int = 12
) -> ReplicasFetched:
    asked = FetchReplicas(2, epoch, session, number, states, (), 300, 1 << 20)
    answer = (await stage.service.fetch(Hello(2, "life"), asked)).message
    assert isinstance(answer, ReplicasFetched)
    return answer


async def told(stage: Stage, asked: FollowerState) -> PartitionFetched:
    (entry,) = (await ask(stage, asked)).partitions
    return entry


def test_a_process_of_the_past_is_refused() -> None:
    async def story(stage: Stage) -> None:
        stage.lead()
        with pytest.raises(StaleBrokerEpoch):
            await ask(stage, state(), epoch=10)

    play(story)


def test_a_disk_beyond_the_logs_end_is_refused_and_moves_nothing() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead(isr=(1, 2))
        await produce(partition, batch(b"a", timestamp_ms=1), acks=1)
        impossible = state(offset=1, last_epoch=1, durable=2**40)
        with pytest.raises(ImplausibleNumber, match=r"ends at 1 .* durable up to 1099511627776"):
            await ask(stage, impossible)
        with pytest.raises(ImplausibleNumber):
            stage.service.flushed(ReplicasFlushed(2, 12, (impossible,)))
        assert partition.high_watermark == 0
        assert (await told(stage, state())).status is FetchStatus.OK

    play(story)


def test_epochs_that_differ_are_told_apart() -> None:
    async def story(stage: Stage) -> None:
        stage.lead(epoch=5)
        assert (await told(stage, state(epoch=4))).status is FetchStatus.FENCED_EPOCH
        assert (await told(stage, state(epoch=6))).status is FetchStatus.UNKNOWN_EPOCH

    play(story)


def test_a_partition_that_is_not_led_here_is_unknown() -> None:
    async def story(stage: Stage) -> None:
        assert (await told(stage, state())).status is FetchStatus.UNKNOWN_EPOCH

    play(story)


def test_a_tail_that_is_not_the_leaders_diverges() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        stage.leader.write(3, b"c")
        stage.lead(epoch=4)
        found = await told(stage, state(epoch=4, offset=5, last_epoch=2))
        assert (found.status, found.epoch, found.end_offset) == (FetchStatus.DIVERGING, 1, 2)

    play(story)


def test_there_is_nothing_to_say_until_something_is_written() -> None:
    async def story(stage: Stage) -> None:
        partition = stage.lead(isr=(1,))
        asking = asyncio.ensure_future(ask(stage, state()))
        await asyncio.sleep(0.1)
        assert not asking.done()
        await produce(partition, batch(b"a", timestamp_ms=1), acks=1)
        (entry,) = (await asking).partitions
        assert entry.status is FetchStatus.OK and entry.size > 0

    play(story)


def test_a_damaged_batch_keeps_nobody_from_hearing_what_is_committed() -> None:
    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        partition = stage.lead(isr=(1,))
        assert partition.high_watermark == 2
        stage.leader.harm(1)
        found = await told(stage, state(offset=1, last_epoch=1))
        assert (found.status, found.high_watermark) == (FetchStatus.DAMAGED, 2)

    play(story)


def test_who_is_damaged_where_the_leader_is_not_joins_when_it_is_repaired() -> None:
    """No waiting brings back what the leader has lost, too."""

    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b")
        stage.lead(isr=(1,))
        whole = state(offset=2, last_epoch=1)
        await ask(stage, msgspec.structs.replace(whole, damaged=(0, 1)))
        assert stage.asked == []
        stage.leader.harm(0)
        await ask(stage, msgspec.structs.replace(whole, damaged=(0, 1)), session="t")
        assert stage.asked == [], "the leader has the other one"
        await ask(stage, msgspec.structs.replace(whole, damaged=(0,)), session="u")
        assert [effect.isr for effect in stage.asked] == [((1, 11), (2, 12))]

    play(story)


def test_a_fetch_out_of_turn_loses_the_session() -> None:
    async def story(stage: Stage) -> None:
        stage.lead()
        await ask(stage, state())
        assert (await ask(stage, number=2)).is_session_lost
        assert (await ask(stage, session="other", number=1)).is_session_lost
        assert not (await ask(stage, number=1)).is_session_lost

    play(story)


def test_an_open_question_is_answered_when_the_leadership_ends() -> None:
    async def story(stage: Stage) -> None:
        stage.lead()
        asking = asyncio.ensure_future(ask(stage, state()))
        await asyncio.sleep(0.1)
        del stage.partitions[PARTITION]
        stage.service.forget(PARTITION)
        (entry,) = (await asking).partitions
        assert entry.status is FetchStatus.UNKNOWN_EPOCH

    play(story)


def test_who_was_put_out_of_the_set_is_asked_again_where_nothing_is_written() -> None:
    """Kept: its question stayed open, the leader had forgotten what it said, and too few in sync let nobody write."""

    async def story(stage: Stage) -> None:
        partition = stage.lead(minimum=2)
        stage.fetch(stage.follow())
        await asyncio.sleep(1)
        partition.tell(IsrChanged((1, 2), (1,), 1, EPOCHS))
        await asyncio.sleep(1)
        assert [effect.isr for effect in stage.asked] == [((1, 11), (2, 12))]

    play(story)


def test_t19_what_a_replica_had_before_it_was_removed_does_not_bring_its_empty_log_into_the_set() -> None:
    """The leader takes the removal and the return at once, as one image; only the leader epoch tells of them."""

    async def story(stage: Stage) -> None:
        stage.leader.write(1, b"a", b"b", b"c")
        before = stage.lead(epoch=1)
        had_all = state(epoch=1, offset=3, last_epoch=1)
        await ask(stage, had_all)
        assert before.replica_lags == {2: 0}
        before.close(is_deposed=True)
        after = stage.lead(epoch=2, isr=(1,))
        assert (await told(stage, had_all)).status is FetchStatus.FENCED_EPOCH
        stage.service.flushed(ReplicasFlushed(2, 12, (had_all,)))
        await ask(stage, state(epoch=2, offset=0))
        await asyncio.sleep(5)
        assert (stage.asked, after.replica_lags) == ([], {2: 3})
        await ask(stage, state(epoch=2, offset=3, last_epoch=1))
        assert [effect.isr for effect in stage.asked] == [((1, 11), (2, 12))]

    play(story)
