"""A replica that is moved is copied at the rate of moves, out of journals or logs, and producers do not notice."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.move_throttle import cut
from tidelog.model.cluster import ClusterImage, PartitionInfo, PartitionMember, Topic
from tidelog.model.ids import NodeId
from tidelog.replication.paxos.messages import LearnResponse
from tidelog.replication.paxos.state import NOP, ORIGIN, Kind, Slot, Value
from tidelog.replication.token_bucket import BURST_S

NEW = 4
RATE = 50_000
VALUE_BYTES = 4_000
VALUES = 150
JOURNALS = JournalBounds()
LOGS = JournalBounds(bytes_max=1 << 30, slots_max=20)


def moving(rate: int, *voting: int) -> ClusterImage:
    """Broker 4 is to have what 1 leads; these vote."""
    replicas = tuple(NodeId(node) for node in (4, 1, 2, 3))
    members = tuple(PartitionMember(node, node, "") for node in voting)
    isr = tuple(node for node in replicas if node in voting)
    info = PartitionInfo(0, NodeId(1), 0, replicas, isr, adding=replicas[:1], removing=replicas[-1:], members=members)
    topic = Topic("t", PARTITION.topic_id, {"commit.protocol": "paxos"}, (info,))
    return ClusterImage("c1", topics={"t": topic}, moves_throttle=rate)


def follow(stage: Stage, image: ClusterImage) -> None:
    for site in stage.sites.values():
        site.throttle.follow(image)


async def fill(stage: Stage) -> None:
    """The new replica hears nothing of it."""
    for site in stage.sites.values():
        await site.crash()
    await stage.boot()
    stage.cut = {(NEW, node) for node in (1, 2, 3)}
    await stage.lead(1)
    for number in range(VALUES):
        assert isinstance(await stage.produce(1, b"%d" % number + bytes(VALUE_BYTES)), ProduceReceipt)
    await stage.quiet([1, 2, 3])


@pytest.mark.parametrize("bounds", [JOURNALS, LOGS], ids=["journals", "logs"])
def test_a_replica_that_is_moved_is_copied_at_the_rate(bounds: JournalBounds) -> None:
    async def story(stage: Stage) -> None:
        stage.journal_bounds = bounds
        await fill(stage)
        if bounds is LOGS:
            journals = [stage.sites[node].replica.engine.node.replica for node in (1, 2, 3)]
            await until(lambda: min(journal.begin for journal in journals) > 0)
        follow(stage, moving(RATE, 1, 2, 3))
        stage.cut = set()
        new = stage.sites[NEW]
        moved = new.replica.log.log_bytes
        await asyncio.sleep(8.0)
        moved = new.replica.log.log_bytes - moved
        assert 0.7 * 8.0 * RATE < moved <= (8.0 + BURST_S) * RATE + 2 * VALUE_BYTES
        assert isinstance(await stage.produce(1, b"meanwhile"), ProduceReceipt)
        await stage.quiet()
        assert new.content() == stage.sites[1].content()
        assert new.stats.moves_received_bytes >= new.replica.log.log_bytes - 100
        assert sum(site.stats.moves_sent_bytes for site in stage.sites.values()) >= new.stats.moves_received_bytes

    play(story, spares=1)


def test_who_votes_is_held_no_more() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        follow(stage, moving(1, 1, 2, 3))
        stage.cut = set()
        await asyncio.sleep(5.0)
        assert stage.sites[NEW].replica.log.log_bytes < VALUES * VALUE_BYTES
        follow(stage, moving(1, 1, 2, 3, 4))
        await stage.quiet()
        assert stage.sites[NEW].content() == stage.sites[1].content()

    play(story, spares=1)


def answer(*sizes: int) -> PaxosFrame:
    """One value of each size, a position without a value before each."""
    slots: list[Slot] = []
    for size in sizes:
        slots.append(Slot(len(slots), 1, NOP, learned=True))
        slots.append(Slot(len(slots), 1, Value(Kind.APPEND, 1, 0, 1, b"%d" % size), learned=True))
    return PaxosFrame(1, 2, LearnResponse(ORIGIN, tuple(slots), 99), sizes)


@pytest.mark.parametrize(
    ("room", "values", "slots"), [(1, 1, 3), (100, 1, 3), (299, 1, 3), (300, 2, 5), (600, 3, 6), (1 << 60, 3, 6)]
)
def test_an_answer_is_cut_behind_what_there_is_room_for(room: int, values: int, slots: int) -> None:
    frame = cut(answer(100, 200, 300), room)
    assert frame.sizes == (100, 200, 300)[:values]
    assert isinstance(frame.message, LearnResponse)
    assert [slot.position for slot in frame.message.slots] == [*range(slots)]
    assert (frame.sender, frame.to, frame.message.learned_end) == (1, 2, 99)
