"""Copying forward keeps the log about as long as what it means, and whoever reads it at any moment reads the same."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.groups.stage import Stage, play, until
from tidelog.broker.groups import copying
from tidelog.model.errors import CoordinatorLost, CoordinatorNotAvailable
from tidelog.model.names import OFFSETS_TOPIC

BOTH = pytest.mark.parametrize("protocol", ["paxos", pytest.param("isr", marks=pytest.mark.slow)])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LENGTH_MIN", 60)
    monkeypatch.setattr(copying, "PIECE_RECORDS", 7)


def length(stage: Stage) -> int:
    return stage.partition.log_end_offset - stage.partition.log_start_offset


@BOTH
def test_the_log_stays_short(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.join("m")
        for partition in range(20):
            await stage.commit(partition, 1, "h")
        for round_number in range(40):
            await asyncio.gather(*(stage.commit(partition, round_number, "h") for partition in range(20)))
        await until(lambda: length(stage) < 200)
        assert stage.broker.stats.group_records_copied >= 20
        assert await stage.offsets("h") == dict.fromkeys(range(20), 39)
        before = stage.state.shard
        assert await stage.replayed() == before
        await stage.restart()
        assert await stage.offsets("h") == dict.fromkeys(range(20), 39)
        assert stage.state.shard == before

    play(story, 20, offsets_topic_commit_protocol=protocol)


def test_what_changes_meanwhile_is_not_put_back() -> None:
    async def story(stage: Stage) -> None:
        for partition in range(70):
            await stage.commit(partition, 1)
        await stage.join("m", "h")
        state, log = stage.state, stage.partition
        begin = state.end_offset
        copy = asyncio.create_task(copying.CopyForward(state, stage.broker.stats)._copy())
        for ahead, behind in zip(range(69, 64, -1), range(5), strict=True):
            await asyncio.gather(stage.commit(ahead, 1_000), stage.commit(behind, 2_000))
            assert await stage.replayed() == state.shard
        assert not copy.done()
        await copy
        assert log.log_start_offset == begin
        assert await stage.replayed() == state.shard

    play(story, 70)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("step", [*(pytest.param(step, marks=SLOW) for step in (0, 1, 2, 4, 8, 11, 12)), 9])
def test_a_coordinator_may_die_at_every_step(step: int) -> None:
    async def story(stage: Stage) -> None:
        for partition in range(70):
            await stage.commit(partition, partition)
        batches = stage.broker.stats.group_batches
        copy = asyncio.create_task(copying.CopyForward(stage.state, stage.broker.stats)._copy())
        await until(lambda: copy.done() or stage.broker.stats.group_batches >= batches + step)
        copy.cancel()
        await asyncio.gather(copy, return_exceptions=True)
        await stage.restart()
        assert await stage.offsets() == {partition: partition for partition in range(70)}
        await stage.commit(0, 5)
        for round_number in range(4):
            await asyncio.gather(*(stage.commit(partition, round_number) for partition in range(70)))
        await until(lambda: length(stage) < 400)
        assert await stage.offsets() == dict.fromkeys(range(70), 3)

    play(story, 70)


def test_a_copy_that_fails_leaves_the_log_as_it_is() -> None:
    """The disk stands still while it goes on: the state ends, and the next one finds everything."""

    async def story(stage: Stage) -> None:
        for partition in range(70):
            await stage.commit(partition, partition)
        begin = stage.partition.log_start_offset
        copy = asyncio.create_task(copying.CopyForward(stage.state, stage.broker.stats)._copy())
        await asyncio.sleep(0.005)
        stage.writing.clear()
        with pytest.raises((CoordinatorLost, CoordinatorNotAvailable)):
            await copy
        stage.writing.set()
        assert await stage.offsets() == {partition: partition for partition in range(70)}
        assert stage.partition.log_start_offset == begin

    play(story, 70)


def test_neither_age_nor_size_takes_anything() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        await stage.broker.admin.alter_topic_configs(
            OFFSETS_TOPIC, {"retention.ms": "1", "retention.bytes": "0", "segment.bytes": "1024"}
        )
        for partition in range(40):
            await stage.commit(partition, 1)
        assert len(stage.partition.log.segments) > 2
        await asyncio.sleep(2)
        assert stage.partition.log_start_offset == 0
        await stage.restart()
        assert await stage.offsets() == dict.fromkeys(range(40), 1)

    play(story, 40, log_retention_check_interval_ms=500)
