"""A journal that begins between positions that have lapsed and the batches that name these: in a topic whose order is
not total, a replica that starts from such a journal, or that is sent its floor, judges those batches as all others do.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tests.unit.broker.paxos.test_commit_order import Hole, ask, config, offset_of
from tidelog.broker.paxos.journal_truncation import JournalBounds

LOST, VOID, IN_FORCE, VOID_TOO = 1, 2, 3, 4
"""Positions, below the next leader's barrier at 5. The batch at 2 names 1, that at 4 names 2."""


async def leader_dies_with_a_hole(stage: Stage) -> None:
    """The leader dies with the first of a producer's three batches, which never left it; between the other two a
    batch of another key and producer is acknowledged. Broker 2 leads then, and settles what 1 has left open."""
    await stage.lead(1)
    hole = Hole(stage, at=LOST)
    unanswered = []
    for sequence in range(2):
        unanswered.append(ask(stage, b"lost %d" % sequence, b"a", producer=(7, sequence)))
        await asyncio.sleep(0.2)
    assert offset_of(await ask(stage, b"other", b"b", producer=(8, 0))) == IN_FORCE - 1
    unanswered.append(ask(stage, b"lost 2", b"a", producer=(7, 2)))
    await until(lambda: stage.sites[2].replica.engine.node.replica.end == VOID_TOO + 1)
    await stage.sites[1].crash()
    for outcome in unanswered:
        outcome.cancel()
    hole.is_open = False
    stage.on_frame = lambda sender, to, message: True
    await stage.lead(2)


@pytest.mark.parametrize("order", ["key", "none"])
def test_a_journal_that_begins_behind_lapsed_positions_remembers_them(order: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=4))
        stage.config = config(order)
        await leader_dies_with_a_hole(stage)
        # The journals of 2 and 3 let go of the lost position at once: no log has to hold anything of it.
        replicas = [stage.sites[node].replica.engine.node.replica for node in (2, 3)]
        await until(lambda: all(replica.floor.position == VOID for replica in replicas))
        assert [replica.floor.lapsed for replica in replicas] == [(LOST,), (LOST,)]
        assert [position for _, position, _ in stage.sites[2].rows()] == [IN_FORCE]
        # Broker 1 comes back, behind all journals, and copies; then all start from what they have on disk.
        await stage.sites[1].boot()
        await stage.quiet()
        await stage.restart()
        floors = [site.replica.engine.node.replica.floor for site in stage.sites.values()]
        assert [(floor.position, floor.lapsed) for floor in floors] == [(VOID, (LOST,))] * 3
        await stage.lead(3)
        for sequence in range(3):
            outcome = await stage.produce(3, b"again %d" % sequence, key=b"a", producer=(7, sequence))
            assert offset_of(outcome) == IN_FORCE + sequence
        assert offset_of(await stage.produce(3, b"other", key=b"b", producer=(8, 0))) == IN_FORCE - 1
        await stage.quiet()
        (content,) = {site.content() for site in stage.sites.values()}
        assert b"lost" not in content and b"other" in content

    play(story)
