"""A Paxos partition, told as stories on a stage of three brokers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.partitions.partition_handle import Offsets
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.broker.paxos.proposing import ORDER_LEVEL
from tidelog.broker.routing.bulk_calls import offsets_of
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import (
    EndOffsetMoved,
    LeaderNotAvailable,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TimedOutAfterAppend,
)
from tidelog.replication.paxos.messages import WriteRequest


def test_what_is_acknowledged_is_on_a_majority_and_everywhere_the_same() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        for number in range(5):
            receipt = await stage.produce(1, b"v%d" % number)
            assert isinstance(receipt, ProduceReceipt)
            assert receipt.base_offset == number and receipt.durability == "fsynced"
            assert len(receipt.acked_by) >= 2
        await stage.quiet()
        contents = [site.content() for site in stage.sites.values()]
        assert contents[0] and contents[0] == contents[1] == contents[2]
        rows = [site.rows() for site in stage.sites.values()]
        assert rows[0] == rows[1] == rows[2]
        assert [position for _, position, _ in rows[0]] == [1, 2, 3, 4, 5]

    play(story)


def test_requests_that_gather_go_in_as_one_value_and_each_gets_its_offsets() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        asked = [stage.produce(1, b"v%d" % number) for number in range(100)]
        receipts = await asyncio.gather(*asked)
        offsets = [receipt.base_offset for receipt in receipts if isinstance(receipt, ProduceReceipt)]
        assert sorted(offset for offset in offsets if offset is not None) == list(range(100))
        await stage.quiet()
        assert len({position for _, position, _ in stage.sites[2].rows()}) < 50

    play(story)


def test_a_repeat_gets_the_offset_of_the_original_applied_or_on_its_way() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        first, repeat = await asyncio.gather(
            stage.produce(1, b"a", producer=(7, 0)), stage.produce(1, b"a", producer=(7, 0))
        )
        late = await stage.produce(1, b"a", producer=(7, 0))
        for receipt in (first, repeat, late):
            assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 0
        stage.sites[3].pause()
        await stage.lead(2)
        after = await stage.produce(2, b"a", producer=(7, 0))
        assert isinstance(after, ProduceReceipt) and after.base_offset == 0
        gap = await stage.produce(2, b"c", producer=(7, 2))
        assert isinstance(gap, OutOfOrderSequence)

    play(story)


PIPELINED = (b"a", b"b", b"c", b"d")


async def leader_dies_with_a_hole(stage: Stage) -> None:
    """A producer has four batches under way; the second never leaves its leader, which dies."""

    def is_let_through(sender: int, to: int, message: msgspec.Struct) -> bool:
        request = message.frame.message if isinstance(message, PartitionFrame) else None
        return not (isinstance(request, WriteRequest) and request.value.count and request.value.base_offset == 1)

    leader = await stage.lead(1)
    stage.on_frame = is_let_through
    asked = []
    for sequence, value in enumerate(PIPELINED):
        asked.append(asyncio.ensure_future(stage.produce(1, value, producer=(7, sequence))))
        await until(lambda: leader.appended_end == len(asked))  # or the next one would go with it
    await until(lambda: all(stage.sites[node].replica.engine.node.replica.end == 5 for node in (2, 3)))
    await stage.sites[1].crash(is_power_lost=True)
    await asyncio.gather(*asked)
    stage.on_frame = lambda sender, to, message: True
    await stage.lead(2)


def test_batches_behind_a_hole_are_void_and_their_producer_goes_on_in_order() -> None:
    """A power cut, or a crash, takes a batch of a pipelining producer, and leaves those that were sent after it."""

    async def story(stage: Stage) -> None:
        await leader_dies_with_a_hole(stage)
        assert stage.sites[2].replica.high_watermark == 1
        for sequence, value in enumerate(PIPELINED):
            receipt = await stage.produce(2, value, producer=(7, sequence))
            assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == sequence
        await stage.sites[1].boot()
        await stage.quiet()
        assert stage.sites[1].rows() == stage.sites[2].rows() == stage.sites[3].rows()

    play(story)


def test_before_all_brokers_know_of_the_rule_each_batch_counts_by_itself() -> None:
    async def story(stage: Stage) -> None:
        stage.level = ORDER_LEVEL - 1
        await leader_dies_with_a_hole(stage)
        assert stage.sites[2].replica.high_watermark == 4
        assert isinstance(await stage.produce(2, b"b", producer=(7, 1)), OutOfOrderSequence)

    play(story)


def test_batches_that_are_promised_to_memory_alone_count_by_themselves() -> None:
    """A batch that was chosen in memory may be lost with the power, and the next one have been acknowledged."""

    async def story(stage: Stage) -> None:
        stage.config = TopicConfig(ack_durability="replicated")
        await leader_dies_with_a_hole(stage)
        assert stage.sites[2].replica.high_watermark == 4

    play(story)


def test_a_paused_replica_delays_nobody() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.sites[3].pause()
        begun = asyncio.get_running_loop().time()
        for number in range(20):
            receipt = await stage.produce(1, b"v%d" % number)
            assert isinstance(receipt, ProduceReceipt) and receipt.acked_by == [1, 2]
        assert asyncio.get_running_loop().time() - begun < 1.0
        stage.sites[3].resume()
        await stage.quiet()
        assert stage.sites[3].content() == stage.sites[1].content()

    play(story)


def test_alone_a_leader_acknowledges_only_what_asks_for_no_more_than_itself() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.cut = {(1, 2), (1, 3)}
        one = await stage.produce(1, b"one", acks=1)
        assert isinstance(one, ProduceReceipt) and one.acked_by == [1] and one.durability == "leader"
        unknown = await stage.produce(1, b"all", wait_s=1.0)
        assert isinstance(unknown, TimedOutAfterAppend)
        assert stage.sites[1].replica.high_watermark == 0

    play(story)


def test_the_ghost_of_an_old_leader_is_void_and_its_producer_told_so() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.cut = {(1, 2), (1, 3)}
        ghost = asyncio.ensure_future(stage.produce(1, b"ghost", wait_s=30.0))
        await asyncio.sleep(0.5)
        assert not ghost.done()
        await stage.lead(2)
        receipt = await stage.produce(2, b"new")
        assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 0
        stage.cut = set()
        outcome = await ghost
        assert isinstance(outcome, LeaderNotAvailable) and "nothing was appended" in str(outcome)
        await stage.quiet()
        assert stage.sites[1].content() == stage.sites[2].content()

    play(story)


def test_a_batch_that_expects_an_end_follows_that_end_across_what_is_void() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        first = await stage.produce(1, b"a", expected_end=0)
        assert isinstance(first, ProduceReceipt) and first.base_offset == 0
        stage.cut = {(1, 2), (1, 3)}
        ghost = asyncio.ensure_future(stage.produce(1, b"ghost", expected_end=1, wait_s=30.0))
        rival = asyncio.ensure_future(stage.produce(1, b"rival", expected_end=1, wait_s=30.0))
        assert isinstance(await rival, EndOffsetMoved), "the ghost may yet be committed"
        await stage.lead(2)
        second = await stage.produce(2, b"b", expected_end=1)
        assert isinstance(second, ProduceReceipt) and second.base_offset is not None
        stage.cut = set()
        assert isinstance(await ghost, LeaderNotAvailable)
        late = await stage.produce(2, b"late", expected_end=1)
        assert isinstance(late, EndOffsetMoved)
        third = await stage.produce(2, b"c", expected_end=second.base_offset + 1)
        assert isinstance(third, ProduceReceipt)
        await stage.quiet()
        assert [value for value in (b"ghost", b"rival", b"late") if value in stage.sites[1].content()] == []

    play(story)


def test_requests_that_expect_ends_follow_each_other_while_others_are_on_their_way() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        asked = [stage.produce(1, b"v%d" % number, expected_end=number) for number in range(20)]
        receipts = await asyncio.gather(*asked)
        assert [receipt.base_offset for receipt in receipts if isinstance(receipt, ProduceReceipt)] == list(range(20))

    play(story)


def test_a_leader_tells_no_end_before_it_knows_of_all_that_was_acknowledged() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.cut = {(1, 3), (2, 3)}
        assert isinstance(await stage.produce(1, b"a"), ProduceReceipt)
        stage.elect(3)
        await until(lambda: stage.sites[3].replica.leader is not None)
        leader = stage.sites[3].replica.leader
        assert leader is not None
        with pytest.raises(LeaderNotAvailable):
            await leader.extent()
        with pytest.raises(LeaderNotAvailable):
            await leader.read(1, bytes_max=1)
        with pytest.raises(LeaderNotAvailable):
            await leader.offset_for_timestamp(0)
        reading = asyncio.ensure_future(leader.read(1, bytes_max=1))
        await asyncio.sleep(0.1)
        assert not reading.done(), "it is about to be elected"
        stage.cut = set()
        assert (await reading).high_watermark == 1
        assert leader.is_serving
        with pytest.raises(OffsetOutOfRange):
            await leader.read(2, bytes_max=1)
        assert (await leader.extent()).high_watermark == 1

    play(story)


def test_a_deposed_leader_still_tells_what_became_of_its_values() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        stage.on_frame = lambda sender, to, message: to != 1
        kept = asyncio.ensure_future(stage.produce(1, b"kept", wait_s=30.0))
        await asyncio.sleep(0.3)
        stage.on_frame = lambda sender, to, message: True
        stage.cut = {(1, 2), (1, 3)}
        await stage.lead(2)
        stage.cut = set()
        outcome = await kept
        assert isinstance(outcome, ProduceReceipt) and outcome.base_offset == 0
        await stage.quiet()
        assert stage.sites[1].content() == stage.sites[3].content()

    play(story)


def test_a_leader_that_lost_takes_nothing() -> None:
    async def story(stage: Stage) -> None:
        old = await stage.lead(1)
        stage.sites[1].pause()
        await stage.lead(2)
        stage.sites[1].resume()
        await until(lambda: not old.is_serving)
        refused = await stage.produce(1, b"late")
        assert refused is None or isinstance(refused, LeaderNotAvailable)
        assert stage.sites[1].replica.leader is None
        with pytest.raises(NotLeader):
            await old.extent()
        with pytest.raises(NotLeader):
            await old.read(9, bytes_max=1)

    play(story)


def test_everything_is_there_after_the_power_went() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        for number in range(30):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        before = stage.sites[1].content()
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        await stage.lead(3)
        assert stage.sites[3].content() == before
        receipt = await stage.produce(3, b"more")
        assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 30
        await stage.quiet()
        assert len({site.content() for site in stage.sites.values()}) == 1

    play(story)


def test_journals_are_cut_short_and_who_is_behind_copies_a_log() -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        await stage.produce(1, b"first")
        await stage.quiet()
        await stage.sites[3].crash()
        for number in range(60):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        node = stage.sites[1].replica.engine.node
        await until(lambda: node.replica.begin > 5)
        floor = node.replica.begin
        await stage.sites[3].boot()
        third = stage.sites[3].replica
        await until(lambda: third.engine.node.replica.begin >= floor)
        await stage.quiet()
        assert stage.sites[3].content() == stage.sites[1].content()
        assert third.voting.membership.is_known
        await stage.lead(3)
        for site in stage.sites.values():
            await site.crash()
        await stage.boot()
        await stage.lead(2)
        assert isinstance(await stage.produce(2, b"more"), ProduceReceipt)
        await stage.quiet()
        assert len({site.content() for site in stage.sites.values()}) == 1
        assert stage.sites[3].replica.log.log_end_offset == 62

    play(story)


def test_a_replica_that_is_alive_is_waited_for() -> None:
    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        stage.sites[3].pause()
        for number in range(40):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await asyncio.sleep(5.0)
        assert stage.sites[1].replica.engine.node.replica.begin == 0
        for number in range(60):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await until(lambda: stage.sites[1].replica.engine.node.replica.begin > 0)
        stage.sites[3].resume()
        await stage.quiet()
        assert stage.sites[3].content() == stage.sites[1].content()

    play(story)


@pytest.mark.parametrize("others", [(2, 3), ()], ids=["a majority", "nobody else"])
def test_where_a_partition_ends_is_told_as_soon_as_its_leader_is_elected(others: tuple[int, ...]) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.lead(1)
        assert isinstance(await stage.produce(1, b"a"), ProduceReceipt)
        stage.cut = {(1, node) for node in (2, 3) if node not in others}
        stage.elect(1)
        await until(lambda: stage.sites[1].replica.leader not in (first, None))
        leader = stage.sites[1].replica.leader
        assert leader is not None and not leader.is_serving
        (found,) = await stage.sites[1].run(offsets_of([(leader, None)]))
        if others:
            assert isinstance(found, Offsets) and found.extent.high_watermark == 1
        else:
            assert isinstance(found, LeaderNotAvailable)

    play(story)
