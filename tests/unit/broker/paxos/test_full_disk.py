"""A Paxos replica whose disk is full: a leader refuses, a follower is not missed, and with room both go on."""

from __future__ import annotations

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.model.errors import DiskFull, TimedOutAfterAppend

VALUE = bytes(4_000)
PLENTY = 1 << 30


def fill(stage: Stage, node: int) -> None:
    """No byte more fits on a broker's disk."""
    medium = stage.sites[node].disk.medium
    medium.capacity_bytes = sum(len(file.data) for file in medium.walk().values())


def test_a_leader_without_room_refuses_and_leads_on_when_it_has_some() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        assert isinstance(await stage.produce(1, VALUE), ProduceReceipt)
        fill(stage, 1)
        unlucky = await stage.produce(1, VALUE + b"unlucky", wait_s=1.0)
        assert isinstance(unlucky, TimedOutAfterAppend), "it was proposed before it was known that there is no room"
        assert stage.sites[1].replica.is_out_of_room
        assert isinstance(await stage.produce(1, b"never"), DiskFull)
        stage.sites[1].disk.medium.capacity_bytes = PLENTY
        await until(lambda: not stage.sites[1].replica.is_out_of_room)
        assert isinstance(await stage.produce(1, b"after"), ProduceReceipt)
        await stage.quiet()
        assert len({site.content() for site in stage.sites.values()}) == 1
        content = stage.sites[1].content()
        assert b"unlucky" in content and b"never" not in content

    play(story)


def test_a_follower_without_room_holds_nobody_up_and_catches_up() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        fill(stage, 3)
        for _ in range(20):
            receipt = await stage.produce(1, VALUE)
            assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 2]
        assert stage.sites[3].replica.is_out_of_room
        stage.sites[3].disk.medium.capacity_bytes = PLENTY
        await stage.quiet()
        assert stage.sites[3].content() == stage.sites[1].content()

    play(story)
