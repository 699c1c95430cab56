"""What a value costs the replicas of a Paxos partition while all is well: bounds on work, counted and not timed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage, play
from tidelog.broker.consensus.payloads import HELD_BYTES_MAX, Payloads, digest_of, split
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.applied_log import FLUSH_BYTES, FLUSH_S
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import CommitOrder
from tidelog.replication.paxos.state import Kind, Value

VALUES = 20
ORDERS = pytest.mark.parametrize("order", ["total", "key", "none"])


def test_what_is_accepted_is_applied_without_being_read_back_and_let_go() -> None:
    async def story(stage: Stage) -> None:
        stage.is_orderly = True
        await stage.lead(1)
        await stage.quiet()
        reads = [site.disk.medium.statistics.operations["read"] for site in stage.sites.values()]
        for number in range(VALUES):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await stage.quiet()
        assert [site.disk.medium.statistics.operations["read"] for site in stage.sites.values()] == reads
        assert [len(site.replica.engine.payloads) for site in stage.sites.values()] == [0, 0, 0]

    play(story)


@ORDERS
def test_each_value_costs_one_commit_of_the_journal_and_the_log_is_committed_later(order: CommitOrder) -> None:
    async def story(stage: Stage) -> None:
        stage.is_orderly = True
        stage.config = TopicConfig(commit_protocol="paxos", commit_order=order)
        await stage.lead(1)
        await stage.quiet()
        sites = list(stage.sites.values())
        syncs = [site.disk.medium.statistics.operations["sync"] for site in sites]
        for number in range(VALUES):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await stage.quiet()
        for site, before in zip(sites, syncs, strict=True):
            assert site.disk.medium.statistics.operations["sync"] - before <= 2 * VALUES + 2
            assert site.replica.log.durable_offset == 0 < site.replica.log.log_end_offset
        sites[1].replica.tell_durable()
        await until(lambda: sites[1].replica.log.durable_offset == VALUES)
        assert sites[2].replica.log.durable_offset == 0
        await until(lambda: sites[0].replica.durable_end_of(3) == VALUES)

    play(story)


@ORDERS
def test_that_a_value_is_chosen_is_told_and_written_with_the_next_value(order: CommitOrder) -> None:
    async def story(stage: Stage) -> None:
        stage.is_orderly = True
        stage.config = TopicConfig(commit_protocol="paxos", commit_order=order)
        await stage.lead(1)
        await stage.quiet()
        told: list[tuple[str, int]] = []

        def note(sender: int, to: int, message: msgspec.Struct) -> bool:
            if isinstance(message, PartitionFrame):
                told.append((type(message.frame.message).__name__, len(message.frame.notices)))
            return True

        stage.on_frame = note
        writes = [site.disk.medium.statistics.operations["write"] for site in stage.sites.values()]
        for number in range(VALUES):
            assert isinstance(await stage.produce(1, b"v%d" % number), ProduceReceipt)
        await stage.quiet()
        of_the_last = [("Learned", 0)] * 2
        first, later = [("WriteRequest", 0)] * 2, [("WriteRequest", 1)] * (2 * VALUES - 2)
        answers = [("WriteResponse", 0)] * (2 * VALUES)
        assert sorted(told) == sorted([*first, *later, *answers, *of_the_last])
        for site, before in zip(stage.sites.values(), writes, strict=True):
            assert site.disk.medium.statistics.operations["write"] - before <= 4 * VALUES + 4

    play(story)


def test_a_log_of_much_is_committed_without_being_asked() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        value = bytes(FLUSH_BYTES // 16)
        for _ in range(16):
            assert isinstance(await stage.produce(1, value), ProduceReceipt)
        begun = asyncio.get_running_loop().time()
        await until(lambda: stage.sites[1].replica.log.durable_offset == 16)
        assert asyncio.get_running_loop().time() - begun < FLUSH_S

    play(story)


def test_a_payload_stays_in_the_frame_that_it_came_in() -> None:
    frame = memoryview(bytearray(b"header, one, another"))
    values = [Value(Kind.APPEND, digest=digest_of(payload)) for payload in (b"one", b", another")]
    parts = split(frame[8:], (3, 9), values)
    assert parts is not None and [bytes(part) for part in parts] == [b"one", b", another"]
    assert all(part.obj is frame.obj for part in parts)
    assert split(frame[8:], (3, 8), values) is None and split(frame[7:], (3, 9), values) is None


def test_what_is_held_for_applying_is_bounded_and_nothing_if_all_is_applied() -> None:
    payloads = Payloads()
    parts = [bytes([number]) * (HELD_BYTES_MAX // 4) for number in range(6)]
    for part in parts:
        payloads.hold(part)
        payloads.hold(part)
    payloads.trim(is_any_open=True)
    assert [payloads.get(digest_of(part)) is None for part in parts] == [True, True, False, False, False, False]
    payloads.trim(is_any_open=False)
    assert len(payloads) == 0
