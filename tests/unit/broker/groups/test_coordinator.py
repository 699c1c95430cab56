"""A coordinator loads, decides, commits in groups, and tells only what is committed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.unit.broker.groups.stage import Stage, play, soon, until
from tidelog.broker.broker import NewTopic
from tidelog.broker.groups import coordinator as coordinator_page
from tidelog.broker.groups import coordinator_state, outbox
from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.broker.groups.loading import Loaded, append, claim, load
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.groups.records import encode
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    NotLeader,
    Overloaded,
    TooLarge,
    UnknownMember,
)
from tidelog.model.groups import CommitOffsets, CommittedOffset, FetchOffsets, Heartbeat, TopicPartitions
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.kit.rot import flip_bit


@pytest.mark.parametrize("protocol", ["paxos", "isr"])
def test_offsets_outlive_the_broker_that_keeps_them(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        for partition in range(5):
            await stage.commit(partition, 10 * partition)
        member = await stage.join("m")
        before = stage.state.shard
        await stage.restart()
        assert await stage.offsets() == {partition: 10 * partition for partition in range(5)}
        assert stage.state.shard == before
        beat = Heartbeat(group="g", member_id="m", member_epoch=member.member_epoch, owned=member.assignment)
        assert (await stage.broker.groups.ask(beat, deadline_s=soon())).member_epoch == member.member_epoch

    play(story, offsets_topic_commit_protocol=protocol)


def test_many_commits_are_one_batch() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        before = stage.broker.stats.group_batches
        await asyncio.gather(*(stage.commit(partition, 7) for partition in range(100)))
        assert stage.broker.stats.group_batches - before <= 3
        assert stage.broker.stats.group_changes >= 100
        assert await stage.offsets() == dict.fromkeys(range(100), 7)

    play(story, 100)


def test_nothing_is_told_before_it_is_committed() -> None:
    """Neither what a request has written itself nor what others have; a refusal is an answer, too."""

    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        member = await stage.join("m")
        end = stage.state.end_offset
        stage.writing.clear()
        requests = (
            Heartbeat(group="g", member_id="m", member_epoch=-1),
            FetchOffsets(group="g"),
            CommitOffsets(group="g", member_id="m", member_epoch=member.member_epoch, offsets=()),
        )
        tasks = [asyncio.create_task(stage.coordinator.ask(request, soon())) for request in requests]
        await asyncio.sleep(1)
        assert not any(task.done() for task in tasks)
        assert stage.state.end_offset == end
        stage.writing.set()
        left, offsets, refused = await asyncio.gather(*tasks, return_exceptions=True)
        assert not isinstance(left, BaseException)
        assert not isinstance(offsets, BaseException)
        assert isinstance(refused, UnknownMember)

    play(story)


def test_offsets_are_told_when_an_append_that_began_later_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if nothing has to be written, where another broker may be elected. Who only beats is told at once."""
    monkeypatch.setattr(PaxosPartition, "is_only_candidate", False)

    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        member = await stage.join("m")
        end = stage.state.end_offset
        stage.writing.clear()
        fetches = [asyncio.create_task(stage.offsets()) for _ in range(5)]
        beat = Heartbeat(group="g", member_id="m", member_epoch=member.member_epoch)
        await stage.broker.groups.ask(beat, deadline_s=soon(0.5))
        assert not any(fetch.done() for fetch in fetches)
        stage.writing.set()
        assert await asyncio.gather(*fetches) == [{0: 1}] * 5
        assert stage.state.end_offset == end + 1, "one record serves all who asked meanwhile"

    play(story)


@pytest.mark.parametrize("protocol", ["paxos", "isr"])
def test_offsets_are_told_at_once_and_nothing_is_written_where_no_other_broker_can_be_elected(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        end = stage.partition.log_end_offset
        stage.writing.clear()
        answer = await stage.broker.groups.ask(FetchOffsets(group="g"), deadline_s=soon(0.5))
        assert [committed.offset for committed in answer.offsets] == [1]
        assert stage.partition.log_end_offset == end
        stage.partition._lease._until_s = 0
        with pytest.raises(CoordinatorNotAvailable):
            await stage.coordinator.ask(FetchOffsets(group="g"), soon(0.5))

    play(story, offsets_topic_commit_protocol=protocol)


def test_a_write_of_unknown_fate_ends_the_tenure() -> None:
    """Whoever wrote is told that it is unknown, whoever did not that nothing was done; then the log decides."""

    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        first = stage.state
        stage.writing.clear()
        offsets = (CommittedOffset("t", 0, 2),)
        requests = (
            CommitOffsets(group="g", offsets=offsets),
            CommitOffsets(group="g", offsets=offsets),
            FetchOffsets(group="other"),
        )
        tasks = []
        for request in requests:
            tasks.append(asyncio.create_task(stage.coordinator.ask(request, soon())))
            await asyncio.sleep(0.01)
        sent, unsent, read = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(sent, CoordinatorLost)
        assert isinstance(unsent, CoordinatorNotAvailable), "it waited for the one before"
        assert isinstance(read, CoordinatorNotAvailable)
        stage.writing.set()
        assert await stage.offsets() == {0: 2}, "it was in the log"
        assert stage.state is not first
        assert stage.broker.stats.group_loads == 2

    play(story)


def test_a_deadline_ends_the_wait_and_not_the_write() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        stage.writing.clear()
        with pytest.raises(CoordinatorLost):
            await stage.commit(0, 2, wait_s=0.5)
        with pytest.raises(CoordinatorNotAvailable):
            await stage.broker.groups.ask(FetchOffsets(group="g"), deadline_s=soon(0.5))
        stage.writing.set()
        assert await stage.offsets() == {0: 2}
        assert stage.broker.stats.group_loads == 1

    play(story)


def test_a_write_that_is_refused_for_now_is_tried_again_and_ends_nothing() -> None:
    """Here, since the broker's lease is over until it hears from the controller again."""

    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        loads, state = stage.broker.stats.group_loads, stage.state
        stage.partition._lease._until_s = 0
        await stage.commit(0, 2)
        assert await stage.offsets() == {0: 2}
        assert (stage.broker.stats.group_loads, stage.state) == (loads, state)

    play(story)


def test_who_finds_that_somebody_else_has_written_loads_anew() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        committed = CommittedOffset("t", 1, 5)
        (record,) = stage.state._decided(CommitOffsets(group="g", offsets=(committed,))).records
        await append(stage.partition, [encode(record)], 0, soon())
        await stage.commit(2, 9)
        assert await stage.offsets() == {0: 1, 1: 5, 2: 9}
        assert stage.broker.stats.group_loads == 2

    play(story)


def test_a_new_claim_stops_the_coordinator_before() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        first = stage.state
        await claim(stage.partition, 9, 0)
        with pytest.raises(CoordinatorNotAvailable, match="nothing was done"):
            await first.ask(CommitOffsets(group="g", offsets=(CommittedOffset("t", 0, 2),)), soon())
        assert await stage.offsets() == {0: 1}

    play(story)


def test_a_damaged_batch_is_not_passed_over() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 111)
        await stage.commit(1, 222)
        topic_id = stage.partition.topic_id
        await stage.broker.stop()
        _flip(stage, f"topics/{topic_id}/", b'"offset":111')
        await stage.start()
        with pytest.raises(CoordinatorNotAvailable, match="damaged"):
            await stage.broker.groups.ask(FetchOffsets(group="g"), deadline_s=soon())
        end = stage.partition.log_end_offset
        with pytest.raises(CoordinatorNotAvailable):
            await stage.commit(2, 1)
        assert stage.partition.log_end_offset == end, "one claim is enough"

    play(story, offsets_topic_commit_protocol="isr")


def _flip(stage: Stage, directory: str, text: bytes) -> None:
    ((path, position),) = [
        (path, node.data.find(text))
        for path, node in stage.disk.medium.walk().items()
        if directory in path and node.data.find(text) >= 0
    ]
    flip_bit(stage.disk.medium, path, position + 10)


def test_bounds_refuse_and_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        stage.writing.clear()
        under_way = asyncio.create_task(stage.commit(0, 2))
        await asyncio.sleep(0.01)
        monkeypatch.setattr(outbox, "WAITING_BYTES_MAX", 10)
        with pytest.raises(Overloaded):
            await stage.commit(1, 1)
        monkeypatch.setattr(coordinator_state, "REQUESTS_MAX", 1)
        with pytest.raises(Overloaded):
            await stage.offsets()
        assert stage.broker.stats.group_requests_refused == 2
        stage.writing.set()
        await under_way
        assert await stage.offsets() == {0: 2}

    play(story)


def test_a_request_that_changes_too_much_for_one_batch_is_refused() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        await stage.broker.admin.alter_topic_configs(OFFSETS_TOPIC, {"max.message.bytes": "2000"})
        offsets = tuple(CommittedOffset("t", partition, 5) for partition in range(100))
        with pytest.raises(TooLarge, match=r"max\.message\.bytes"):
            await stage.broker.groups.ask(CommitOffsets(group="g", offsets=offsets), deadline_s=soon())
        await asyncio.gather(*(stage.commit(partition, 5) for partition in range(100)))
        assert await stage.offsets() == dict.fromkeys(range(100), 5), (
            "of many requests, each batch takes as many as fit"
        )

    play(story, 100)


def test_requests_that_wait_for_a_load_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        await stage.restart()
        stage.coordinator._state = None
        monkeypatch.setattr(coordinator_page, "LOADING_MAX", 0)
        with pytest.raises(Overloaded):
            await stage.coordinator.ask(FetchOffsets(group="g"), soon())

    play(story)


def test_the_end_of_the_role_is_told_to_all_who_wait() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        member = await stage.join("m")
        member_epoch = member.member_epoch
        await stage.broker.groups.ask(
            Heartbeat(group="g", member_id="m", member_epoch=member_epoch, owned=member.assignment), deadline_s=soon()
        )
        coordinator = stage.coordinator
        poll = Heartbeat(group="g", member_id="m", member_epoch=member_epoch, wait_ms=30_000)
        waiting = asyncio.create_task(coordinator.ask(poll, soon(60)))
        await until(lambda: coordinator.polls == 1)
        stage.writing.clear()
        writing = asyncio.create_task(
            coordinator.ask(CommitOffsets(group="h", offsets=(CommittedOffset("t", 0, 2),)), soon(60))
        )
        await asyncio.sleep(0.01)
        coordinator.close()
        outcomes = await asyncio.gather(waiting, writing, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [CoordinatorNotAvailable, CoordinatorLost]
        with pytest.raises(NotLeader):
            await coordinator.ask(poll, soon())
        stage.writing.set()

    play(story)


def test_a_member_that_says_nothing_is_expelled_in_time() -> None:
    async def story(stage: Stage) -> None:
        member = await stage.join("m", session_timeout_ms=6_000)
        changed: list[str] = []
        stage.coordinator.on_changed.append(changed.append)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await until(lambda: bool(changed))
        assert 6 <= loop.time() - began_s < 6.1
        with pytest.raises(UnknownMember):
            beat = Heartbeat(group="g", member_id="m", member_epoch=member.member_epoch)
            await stage.broker.groups.ask(beat, deadline_s=soon())

    play(story)


@pytest.mark.parametrize(("predecessor", "seconds"), [(1, 6), (7, 6), (2, 7), (None, 7)])
def test_silence_counts_when_nobody_else_may_have_heard_the_member(predecessor: int | None, seconds: float) -> None:
    """1 is this broker, 7 is not live, and 2 is: it may not have heard yet that it coordinates no more."""

    async def story(stage: Stage) -> None:
        await stage.join("m", session_timeout_ms=6_000)
        around = replace(stage.state._context, is_live=lambda node_id: node_id in (1, 2))
        began_s = asyncio.get_running_loop().time()
        loaded = Loaded(stage.state.shard, 0, predecessor)
        state = CoordinatorState(stage.partition, loaded, around, lambda group: None)
        assert state.sessions.next_s() == pytest.approx(began_s + seconds)

    play(story)


def test_the_log_says_who_coordinated_before() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        assert (await load(stage.partition, 0, 0)).predecessor is None
        assert (await load(stage.partition, stage.partition.high_watermark, 0)).predecessor == 1
        await claim(stage.partition, 9, 0)
        assert (await load(stage.partition, stage.partition.high_watermark, 0)).predecessor == 9

    play(story)


def test_a_topic_that_comes_is_given_to_those_who_wait_for_it() -> None:
    async def story(stage: Stage) -> None:
        request = Heartbeat(group="g", member_id="m", member_epoch=0, topics=("u",), owned=())
        member = await stage.broker.groups.ask(request, deadline_s=soon())
        assert not member.assignment
        poll = Heartbeat(group="g", member_id="m", member_epoch=member.member_epoch, wait_ms=10_000)
        waiting = asyncio.create_task(stage.broker.groups.ask(poll, deadline_s=soon()))
        await until(lambda: stage.coordinator.polls == 1)
        await stage.broker.admin.create_topic(NewTopic("u", 3))
        assert (await waiting).assignment == (TopicPartitions("u", (0, 1, 2)),)

    play(story)


def test_offsets_that_are_over_go() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        await asyncio.sleep(50)
        await stage.commit(1, 2)
        await asyncio.sleep(30)
        assert await stage.offsets() == {1: 2}
        await stage.restart()
        assert await stage.offsets() == {1: 2}

    play(
        story,
        offsets_retention_minutes=1,
        offsets_retention_check_interval_ms=5_000,
        broker_heartbeat_interval_ms=4_500,
    )
