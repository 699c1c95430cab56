"""Groups of which records are lost, and that was accepted: what is left is served, and soon without the lost part."""

from __future__ import annotations

import pytest

from tests.accepted_losses import accept_loss
from tests.unit.broker.groups.stage import Stage, play, soon, until
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import FencedMember, UnknownMember
from tidelog.model.groups import Heartbeat
from tidelog.model.names import OFFSETS_TOPIC

BOTH = pytest.mark.parametrize("protocol", ["isr", "paxos"])


async def lose(stage: Stage, start: int, end: int) -> None:
    """Gives up a part of the groups' log; the coordinator finds out with its next load."""
    await accept_loss(stage.broker, OFFSETS_TOPIC, start, end)
    await stage.restart()


@BOTH
def test_committed_offsets_are_those_that_are_left(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(0, 1)
        await stage.commit(1, 1)
        begin = stage.partition.log_end_offset
        await stage.commit(0, 2)
        await stage.commit(2, 2)
        end = stage.partition.log_end_offset
        await stage.commit(1, 3)
        await lose(stage, begin, end)
        assert await stage.offsets() == {0: 1, 1: 3}
        await stage.commit(2, 4)
        assert await stage.offsets() == {0: 1, 1: 3, 2: 4}

    play(story, offsets_topic_commit_protocol=protocol)


@BOTH
def test_members_join_again_and_hold_what_was_held(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        was = await stage.join("m")
        begin = stage.partition.log_end_offset
        await stage.join("n")
        await lose(stage, begin, stage.partition.log_end_offset)
        with pytest.raises((UnknownMember, FencedMember)):
            beat = Heartbeat(group="g", member_id="m", member_epoch=was.member_epoch)
            await stage.broker.groups.ask(beat, deadline_s=soon())
        now = await stage.join("m")
        assert now.assignment == was.assignment
        assert now.member_epoch > was.member_epoch
        assert list(stage.state.shard.groups["g"].members) == ["m"]

    play(story, offsets_topic_commit_protocol=protocol)


def batches(stage: Stage) -> list[tuple[int, int]]:
    """The offsets [start, end) of each batch in the groups' log."""
    log = stage.partition.log
    data = log.read(log.log_start_offset, 1 << 20, log.log_end_offset).data
    return [(batch.header.base_offset, batch.header.next_offset) for batch in iter_batches(data)]


@pytest.mark.parametrize("number", range(4))
def test_whatever_batch_is_lost_the_rest_is_served_and_copied_forward(number: int) -> None:
    async def story(stage: Stage) -> None:
        await stage.join("m")
        await stage.join("n")
        await stage.commit(0, 1, "h")
        begin, lost_end = batches(stage)[number]
        await lose(stage, begin, lost_end)
        await stage.join("n")
        await until(lambda: stage.partition.log_start_offset >= lost_end)
        before = stage.state.shard
        assert await stage.replayed() == before
        await stage.restart()
        await stage.offsets("h")
        assert stage.state.lost == ()
        assert stage.state.shard == before
        assert list(before.groups["g"].members) == ["n"]

    play(story)
