"""Voters that cannot read a chosen entry wait until somebody gives it back, and their logs do not grow meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.consensus.stage import SETTINGS, Site, Stage, play
from tests.unit.broker.isr.stage import until
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment

WAIT_S = 60.0
TIMEOUT_S = SETTINGS.timeout_ms / 1000


def harm(site: Site, position: int) -> None:
    """Turns over a byte of the payload that was accepted there."""
    assert site.member is not None
    store = site.member.store
    payload = store._entries.index.slots[position].payload
    assert payload is not None
    segment, row = next(store.journal.parts(payload.offset)), next(store.journal.entries(payload.offset))
    assert isinstance(segment, Segment) and isinstance(row, Row) and row.next_offset <= store.durable_end
    place = row.file_position + row.length - 2
    (byte,) = segment.log.pread(1, place)
    segment.log.pwritev([bytes([byte ^ 1])], place)
    segment.log.sync()


async def begin(stage: Stage, *nodes: int) -> tuple[int, int]:
    """Has all brokers take part, and three entries applied by all; these brokers lose the second, and start again.
    Returns its position, and the end of the log."""
    leader = await stage.found()
    for site in stage.sites.values():
        if site.log is None:
            await site.boot()
    leader.running.set_learners(list(stage.sites))
    _, second, _ = [await leader.run(leader.running.append(b"entry %d" % number, 1)) for number in range(3)]
    await asyncio.sleep(2.0)  # until all of them know on their disks that it is chosen
    stage.silent |= set(stage.sites) - set(nodes)
    await leader.run(leader.running.append(b"open", 1))
    end = leader.running.engine.node.replica.end
    for node in nodes:
        harm(stage.sites[node], second.position)
        await stage.sites[node].crash()
    for node in nodes:
        await stage.sites[node].boot()
    return int(second.position), end


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("voters", [1, 3])
def test_voters_that_all_lack_an_entry_append_no_more_than_one_each(voters: int, seed: int) -> None:
    """A broker without a vote has it, and comes back later."""

    async def story(stage: Stage) -> None:
        lacking, learner = range(1, voters + 1), voters + 1
        position, end = await begin(stage, *lacking)
        running = [stage.sites[node].running for node in lacking]
        await asyncio.sleep(WAIT_S)
        assert max(log.engine.node.replica.end for log in running) <= end + voters
        assert all(log.unreadable == position and not log.is_leading for log in running)
        stage.silent.remove(learner)
        await until(lambda: any(log.delivery.position > position for log in running))
        await asyncio.sleep(TIMEOUT_S / 2)
        assert any(log.is_leading for log in running), "nobody waits for another timeout"
        await until(lambda: all(log.delivery.position > position for log in running))
        await stage.check_serves()

    play(story, founders=voters, spares=1, seed=seed)


def test_what_is_open_is_settled_meanwhile() -> None:
    async def story(stage: Stage) -> None:
        position, end = await begin(stage, 1)
        await asyncio.sleep(TIMEOUT_S)
        voter = stage.sites[1].running
        assert voter.delivery.position == position and voter.applied_position == end + 1, "and one barrier"

    play(story, founders=1, spares=1)
