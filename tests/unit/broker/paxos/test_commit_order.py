"""A partition whose order is not total, told as stories: the writes of some position do not arrive at the followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.early_reads import EarlyReader
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.proposing import IN_FLIGHT_BYTES_MAX
from tidelog.config.schema import TopicConfig
from tidelog.model.early_reads import AboveOffsets
from tidelog.model.errors import TidelogError, TimedOutAfterAppend
from tidelog.replication.paxos.messages import WriteRequest
from tidelog.replication.paxos.state import Kind

Outcome = ProduceReceipt | TidelogError | None


class Hole:
    """Loses all writes of the value at a position on their way to followers, while it is open."""

    def __init__(self, stage: Stage, *, at: int) -> None:
        self.position = at
        self.is_open = True
        stage.on_frame = self._passes

    def _passes(self, sender: int, to: int, message: msgspec.Struct) -> bool:
        request = message.frame.message if isinstance(message, PartitionFrame) else None
        return not (self.is_open and isinstance(request, WriteRequest) and request.position == self.position)


def config(order: str, **settings: str) -> TopicConfig:
    values = {"commit.protocol": "paxos", "commit.order": order, **settings}
    return TopicConfig.model_validate({name.replace("_", "."): value for name, value in values.items()})


def play_order(
    order: str, story: Callable[[Stage, PaxosPartition], Coroutine[Any, Any, None]], **settings: str
) -> None:
    """Plays a story with broker 1 as leader of a topic with this order."""

    async def begun(stage: Stage) -> None:
        stage.config = config(order, **settings)
        await story(stage, await stage.lead(1))

    play(begun)


def ask(
    stage: Stage, value: bytes, key: bytes | None, *, producer: tuple[int, int] | None = None
) -> asyncio.Task[Outcome]:
    return asyncio.ensure_future(stage.produce(1, value, key=key, producer=producer, wait_s=60.0))


async def pause() -> None:
    await asyncio.sleep(1.0)


def offset_of(outcome: Outcome) -> int:
    assert isinstance(outcome, ProduceReceipt) and outcome.base_offset is not None
    return outcome.base_offset


def test_batches_of_other_keys_are_acknowledged_and_shown_past_a_hole() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        hole = Hole(stage, at=1)
        stuck = ask(stage, b"a1", b"a")
        await pause()
        receipt = await ask(stage, b"b1", b"b")
        same_key, no_key = ask(stage, b"a2", b"a"), ask(stage, b"n", None)
        await pause()
        assert isinstance(receipt, ProduceReceipt) and receipt.durability == "fsynced" and len(receipt.acked_by) >= 2
        assert (offset_of(receipt), offset_of(await no_key)) == (1, 3)
        assert not stuck.done() and not same_key.done()
        assert leader.high_watermark == 0
        assert [(one.base_offset, one.next_offset) for one in leader.released()] == [(1, 2), (3, 4)]
        assert b"b1" in bytes(leader.released()[0].read() or b"")
        hole.is_open = False
        assert [offset_of(await stuck), offset_of(await same_key)] == [0, 2]
        await until(lambda: leader.high_watermark == 4)
        assert leader.released() == []
        await stage.quiet()
        contents = [site.content() for site in stage.sites.values()]
        assert contents[0] == contents[1] == contents[2]

    play_order("key", story)


def test_a_reader_gets_what_it_lacks_past_a_hole_and_is_woken_for_it() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        hole = Hole(stage, at=1)
        stuck = ask(stage, b"a1", b"a")
        await pause()
        first = EarlyReader(leader, AboveOffsets())
        assert not first.has_data(0, 1)
        woken = asyncio.ensure_future(leader.watchers.wait())
        await ask(stage, b"b1", b"b")
        await woken
        assert first.has_data(0, 1)
        (early,) = first.batches(await leader.read(0, bytes_max=1 << 20), 1 << 20)
        assert early.range == (1, 2) and b"b1" in bytes(early.batch.data)
        second = EarlyReader(leader, AboveOffsets([early.range]))
        assert not second.has_data(0, 1)
        await ask(stage, b"c1", b"c")
        fetched = await leader.read(0, bytes_max=1 << 20)
        assert [early.range for early in second.batches(fetched, 1 << 20)] == [(2, 3)]
        hole.is_open = False
        await stuck
        await until(lambda: leader.high_watermark == 3)
        assert second.batches(fetched, 1 << 20) == [], "the high watermark has moved"
        assert second.batches(await leader.read(0, bytes_max=1 << 20), 1 << 20) == []

    play_order("key", story)


def test_an_idempotent_producers_batches_stay_in_order_whatever_their_keys_are() -> None:
    for order in ("key", "none"):

        async def story(stage: Stage, leader: PaxosPartition) -> None:
            hole = Hole(stage, at=1)
            first = ask(stage, b"1", b"a", producer=(7, 0))
            await pause()
            second, other = ask(stage, b"2", b"b", producer=(7, 1)), ask(stage, b"3", b"c", producer=(8, 0))
            await pause()
            assert offset_of(await other) == 2
            assert not first.done() and not second.done()
            hole.is_open = False
            assert [offset_of(await first), offset_of(await second)] == [0, 1]

        play_order(order, story)


def test_without_an_order_records_of_one_key_overtake_each_other() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        Hole(stage, at=1)
        stuck = ask(stage, b"a1", b"a")
        await pause()
        assert offset_of(await ask(stage, b"a2", b"a")) == 1
        assert not stuck.done()
        stuck.cancel()

    play_order("none", story)


def test_a_total_order_waits_for_every_hole() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        hole = Hole(stage, at=1)
        outcomes = [ask(stage, b"a", b"a")]
        await pause()
        outcomes.append(ask(stage, b"b", b"b"))
        await pause()
        assert not any(outcome.done() for outcome in outcomes) and leader.released() == []
        hole.is_open = False
        assert [offset_of(await outcome) for outcome in outcomes] == [0, 1]

    play_order("total", story)


def test_a_repeat_of_a_released_batch_is_answered_at_once() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        Hole(stage, at=1)
        stuck = ask(stage, b"1", b"a", producer=(7, 0))
        await pause()
        assert offset_of(await ask(stage, b"2", b"b", producer=(8, 0))) == 1
        repeat = await ask(stage, b"2", b"b", producer=(8, 0))
        assert offset_of(repeat) == 1
        repeat_of_stuck = ask(stage, b"1", b"a", producer=(7, 0))
        await pause()
        assert not stuck.done() and not repeat_of_stuck.done()
        stuck.cancel()
        repeat_of_stuck.cancel()

    play_order("key", story)


def test_what_was_acknowledged_past_a_hole_outlives_the_leader_and_the_rest_is_void() -> None:
    """The hole is a value that only the dead leader has. Its successor fills it; the batch of another key stays, and
    the one that needed the lost one goes, so that its producer can send both again, in order."""

    async def story(stage: Stage, leader: PaxosPartition) -> None:
        Hole(stage, at=1)
        lost = ask(stage, b"1", b"a", producer=(7, 0))
        await pause()
        second = ask(stage, b"2", b"a", producer=(7, 1))
        assert offset_of(await ask(stage, b"other", b"b", producer=(8, 0))) == 2
        await pause()
        assert not lost.done() and not second.done()
        await stage.sites[1].crash()
        stage.on_frame = lambda sender, to, message: True
        successor = await stage.lead(2)
        assert b"other" in stage.sites[2].content() and b"2" not in stage.sites[2].content()
        for sequence, value in enumerate((b"1", b"2")):
            outcome = await stage.produce(2, value, key=b"a", producer=(7, sequence))
            assert offset_of(outcome) == 3 + sequence
        repeat = await stage.produce(2, b"other", key=b"b", producer=(8, 0))
        assert offset_of(repeat) == 2
        assert successor.high_watermark == 5
        for unanswered in (lost, second):
            unanswered.cancel()

    play_order("key", story)


def test_no_more_is_proposed_than_the_hole_span_and_it_goes_on_when_the_hole_is_filled() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        hole = Hole(stage, at=1)
        outcomes = [ask(stage, b"0", b"a")]
        for number in range(1, 12):
            await asyncio.sleep(0.1)
            outcomes.append(ask(stage, b"%d" % number, b"key %d" % number))
        await pause()
        replica = stage.sites[1].replica.engine.node.replica
        assert replica.end - replica.applied.position == 8
        assert [outcome.done() for outcome in outcomes] == [False, *[True] * 7, *[False] * 4]
        hole.is_open = False
        assert sorted([offset_of(await outcome) for outcome in outcomes]) == list(range(12))

    play_order("key", story, commit_hole_span="8")


def test_large_values_fill_the_memory_above_a_hole_and_no_more() -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        hole = Hole(stage, at=1)
        outcomes = [ask(stage, b"0", b"a")]
        large = bytes(1_000_000)
        for number in range(20):
            await asyncio.sleep(0.1)
            outcomes.append(ask(stage, large, b"key %d" % number))
        await pause()
        assert IN_FLIGHT_BYTES_MAX // 1_000_000 - 1 <= sum(outcome.done() for outcome in outcomes) < 20
        hole.is_open = False
        assert sorted([offset_of(await outcome) for outcome in outcomes]) == list(range(21))

    play_order("key", story)


@pytest.mark.parametrize("durability", ["fsynced", "replicated"])
def test_a_hole_that_stays_is_an_unknown_outcome_for_its_own_batches_alone(durability: str) -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        Hole(stage, at=1)
        stuck = asyncio.ensure_future(stage.produce(1, b"a", key=b"a", wait_s=2.0))
        await asyncio.sleep(0.5)
        receipt = await ask(stage, b"b", b"b")
        assert isinstance(receipt, ProduceReceipt) and receipt.durability == durability
        assert isinstance(await stuck, TimedOutAfterAppend)

    play_order("key", story, ack_durability=durability)


def test_values_in_total_order_name_nothing_and_others_only_what_is_open() -> None:
    """The work per value: nothing is added to what a value has on disk and in frames."""

    async def story(stage: Stage, leader: PaxosPartition) -> None:
        for number in range(5):
            await ask(stage, b"%d" % number, b"a")
        slots = stage.sites[2].replica.engine.node.replica.slots.values()
        assert [slot.value.begin for slot in slots if slot.value.kind is Kind.APPEND] == [0] * 5

    play_order("key", story)
