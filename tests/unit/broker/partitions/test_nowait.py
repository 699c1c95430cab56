"""Requests that nobody awaits: taken in at once, judged in the order they came in, answered once."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.conftest import Bench, batch, produce, values
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.mailbox import BYTES_MAX, PROPOSALS_MAX, Mailbox
from tidelog.broker.partitions.proposals import ProduceReceipt, Proposal
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import InvalidRequest, OutOfOrderSequence, Overloaded, TidelogError


class Listening:
    """An asker that remembers what it was told."""

    is_gone = False

    def __init__(self) -> None:
        self.heard: list[ProduceReceipt | TidelogError] = []

    def hear(self, outcome: ProduceReceipt | TidelogError) -> None:
        self.heard.append(outcome)


def offer(partition: LedPartition, batches: list[RecordBatch], acks: int = -1) -> Listening:
    asker = Listening()
    deadline_s = asyncio.get_running_loop().time() + 5
    partition.produce_nowait(batches, acks=acks, deadline_s=deadline_s, asker=asker)
    return asker


def numbered(sequence: int, epoch: int = 0) -> list[RecordBatch]:
    return batch(b"%d" % sequence, producer_id=7, epoch=epoch, sequence=sequence)


async def settled(askers: list[Listening]) -> list[int | type[TidelogError] | None]:
    while not all(asker.heard for asker in askers):
        await asyncio.sleep(0)
    outcomes = [asker.heard[0] for asker in askers]
    return [one.base_offset if isinstance(one, ProduceReceipt) else type(one) for one in outcomes]


async def test_a_pipeline_of_one_producer_is_one_write(bench: Bench) -> None:
    partition = await bench.topic()
    await produce(partition, numbered(0))
    writes = bench.broker.stats.append_writes
    askers = [offer(partition, numbered(sequence)) for sequence in range(1, 6)]
    assert await settled(askers) == [1, 2, 3, 4, 5]
    assert bench.broker.stats.append_writes - writes == 1


async def test_a_gap_in_a_pipeline_refuses_all_that_follows_it(bench: Bench) -> None:
    partition = await bench.topic()
    askers = [offer(partition, numbered(sequence)) for sequence in (0, 1, 3, 4)]
    assert await settled(askers) == [0, 1, OutOfOrderSequence, OutOfOrderSequence]
    assert await settled([offer(partition, numbered(2))]) == [2]


async def test_a_repeat_in_a_pipeline_is_answered_with_the_original(bench: Bench) -> None:
    partition = await bench.topic()
    askers = [offer(partition, numbered(sequence)) for sequence in (0, 1, 1, 2, 0)]
    assert await settled(askers) == [0, 1, 1, 2, 0]
    assert values(partition) == [b"0", b"1", b"2"]


async def test_a_new_epoch_in_a_pipeline_begins_anew(bench: Bench) -> None:
    partition = await bench.topic()
    askers = [offer(partition, numbered(0)), offer(partition, numbered(1)), offer(partition, numbered(0, epoch=1))]
    assert await settled(askers) == [0, 1, 2]


async def test_who_is_gone_before_the_append_appends_nothing(bench: Bench) -> None:
    partition = await bench.topic()
    offer(partition, batch(b"gone")).is_gone = True
    assert await settled([offer(partition, batch(b"here"))]) == [0]


async def test_an_asker_is_told_once(bench: Bench) -> None:
    partition = await bench.topic()
    asker = Listening()
    proposal = partition.produce_nowait(batch(b"a"), acks=-1, deadline_s=1e9, asker=asker)
    proposal.expire()
    await produce(partition, batch(b"b"))
    assert [type(outcome) for outcome in asker.heard] == [Overloaded]


async def test_a_topic_of_the_brokers_takes_nothing(bench: Bench) -> None:
    partition = await bench.topic()
    partition.topic = "__consumer_offsets"
    with pytest.raises(InvalidRequest, match="nothing was appended"):
        offer(partition, batch(b"a"))


async def test_a_mailbox_says_when_there_is_room_again() -> None:
    mailbox, calls = Mailbox(), list[str]()
    for _ in range(PROPOSALS_MAX):
        assert mailbox.has_room(1)
        mailbox.put(Proposal(batch(b"a"), -1, 1.0, Listening()))
    assert not mailbox.has_room(1)
    mailbox.when_room(lambda: calls.append("room"))
    mailbox.take_group()
    assert calls == ["room"]
    assert mailbox.has_room(2 * BYTES_MAX), "one request is always taken"
    mailbox.take_group()
    assert calls == ["room"]
