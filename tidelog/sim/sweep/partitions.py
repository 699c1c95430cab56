"""The sweep over partitions, with both commit protocols: a topic with many partitions, and a pattern for each.

Starting brokers is slow, so a cluster has dozens of partitions, which are independent of one another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.broker.broker import Broker, NewTopic
from tidelog.model.ids import PartitionId, TopicId
from tidelog.sim.kit import rot
from tidelog.sim.kit.medium import Medium
from tidelog.sim.kit.seeds import stream
from tidelog.sim.sweep.brokers import IDLE_S, Brokers, brokers_of
from tidelog.sim.sweep.cases import ENTRIES, Case, Plan, Protocol, Variant
from tidelog.sim.sweep.copies import Content, Copy, check_majority, damage_copies, find_copies, spare, with_rows
from tidelog.sim.sweep.reading import Judge, append
from tidelog.sim.sweep.verdicts import Result
from tidelog.storage.log_manager import JOURNAL, log_directory
from tidelog.storage.rows import RowCodec

TOPIC: Final = "swept"
FILL: Final = 24
PAUSE_S: Final = 0.25
LATE_S: Final = 15.0
OVER_S: Final = 40.0


class Written(NamedTuple):
    """The disks of stopped brokers, and the offsets and values that they acknowledged, by partition and entry."""

    plan: Plan
    topic_id: TopicId
    disks: dict[int, Content]
    offsets: list[list[int]]
    values: list[list[bytes]]
    copies: list[list[Copy]]
    """Intact copies of each partition's entries, on all disks."""


async def write(plan: Plan, partitions: int) -> Written:
    """Starts brokers, writes the entries of all partitions, ends the brokers, and returns their disks."""
    rng = stream(plan.seed, f"values {plan}")
    values = [[_draw_value(number, entry, rng) for entry in range(ENTRIES)] for number in range(partitions)]
    behind = rng.choice(plan.nodes) if plan.variant is Variant.BEHIND else 0
    async with brokers_of(plan, f"{plan.seed}/written") as brokers:
        await brokers.start_in_turn(rng)
        assert await brokers.are_up(), brokers.words()
        topic_id = await _create(brokers, partitions)
        offsets: list[list[int]] = [[] for _ in values]
        for entry in range(ENTRIES):
            if behind and entry == ENTRIES // 2:
                await asyncio.sleep(IDLE_S)
                await brokers.down(behind)
            if entry == ENTRIES - 1:
                await asyncio.sleep(IDLE_S)
            writes = (
                _write(brokers, number, partition_values[entry]) for number, partition_values in enumerate(values)
            )
            for partition_offsets, offset in zip(offsets, await asyncio.gather(*writes), strict=True):
                partition_offsets.append(offset)
        disks = await brokers.end()
    copies = [
        _find(disks, PartitionId(topic_id, number), partition_values) for number, partition_values in enumerate(values)
    ]
    for some in copies:
        check_majority(some, plan.variant.replicas)
    return Written(plan, topic_id, disks, offsets, values, copies)


def _draw_value(number: int, entry: int, rng: random.Random) -> bytes:
    return f"{number}.{entry}.{rng.randbytes(FILL).hex()}".encode()


async def _create(brokers: Brokers, partitions: int) -> TopicId:
    nodes = [*brokers.plan.nodes]
    turns = {number: nodes[number % len(nodes) :] + nodes[: number % len(nodes)] for number in range(partitions)}
    new = NewTopic(TOPIC, assignments=turns, configs={"commit.protocol": brokers.plan.protocol})

    async def create(broker: Broker) -> TopicId:
        if TOPIC not in broker.image.topics:
            await broker.admin.create_topic(new)
        return broker.image.topics[TOPIC].topic_id

    return await brokers.insist(create, lambda: nodes[0])


async def _write(brokers: Brokers, number: int, value: bytes) -> int:
    async def write_value(broker: Broker) -> int:
        return await append(broker, TOPIC, number, value)

    def leader() -> int:
        node = brokers.image.topics[TOPIC].partitions[number].leader
        return node if node in brokers.machines else 1

    return await brokers.insist(write_value, leader)


def _find(disks: Mapping[int, Content], partition_id: PartitionId, values: Sequence[bytes]) -> list[Copy]:
    directory = f"{log_directory(partition_id)}/"
    codec = RowCodec(partition_id)
    return [
        copy
        for node, content in disks.items()
        for copy in with_rows(find_copies(node, content, directory, values, JOURNAL), content, codec)
    ]


async def play(written: Written, cases: Sequence[Case], seed: str) -> list[Result]:
    """Runs one case on each of the first partitions: damages copies, starts the brokers, and judges what they show."""
    plan = written.plan
    rng = stream(seed, "damage")
    async with brokers_of(plan, seed) as brokers:
        brokers.restore(written.disks)
        wiped = rng.choice(plan.nodes) if plan.variant is Variant.DISK else 0
        media = brokers.media
        judges = [_strike(written, number, case, media, wiped, rng) for number, case in enumerate(cases)]
        if wiped:
            brokers.machines[wiped].replace_disk()
        await brokers.start_in_turn(rng)
        if await brokers.are_up():
            await _judge(brokers, judges)
    return [judge.result() for judge in judges]


def _strike(
    written: Written, number: int, case: Case, media: Mapping[int, Medium], wiped: int, rng: random.Random
) -> Judge:
    """Damages a partition as its case says, and returns its judge. If a Paxos vote is lost as well, journal entries
    without a catalog row (index entry) are spared: damaged, they would leave no trace, so no replica could tell whether
    a quorum had accepted what another one lost."""
    partition_id = PartitionId(written.topic_id, number)
    copies = written.copies[number]
    is_spared = written.plan.protocol is Protocol.PAXOS and (case.wiped or wiped)
    struck = spare(copies) if is_spared else copies
    left = damage_copies(case, struck, media, written.plan.variant.replicas, rng)
    left += [copy for copy, hit in zip(copies, struck, strict=True) if copy != hit]
    if case.wiped:
        rot.lose_directory(media[case.wiped], log_directory(partition_id))
    copies, left = ([copy for copy in some if copy.node not in (case.wiped, wiped)] for some in (copies, left))
    offsets = written.offsets[number]
    held = {node: {copy.entry for copy in copies if copy.node == node} for node in media}
    lacked = {node: {offsets[entry] for entry in range(ENTRIES) if entry not in held[node]} for node in media}
    expected = dict(zip(offsets, written.values[number], strict=True))
    return Judge(case, number, partition_id, expected, {offsets[copy.entry] for copy in left}, lacked)


async def _judge(brokers: Brokers, judges: list[Judge]) -> None:
    """Reads all partitions in turn until each has its verdicts, or no new verdict comes for `OVER_S` seconds."""
    loop = asyncio.get_running_loop()
    begun_s = progress_s = loop.time()
    left = dict.fromkeys(range(len(judges)), -1)
    while judges and loop.time() - progress_s <= OVER_S:
        is_late = loop.time() - progress_s > LATE_S
        await asyncio.gather(*(_ask(brokers, node, judges, is_late=is_late) for node in brokers.plan.nodes))
        for judge in judges:
            judge.seconds = loop.time() - begun_s
            if judge.left != left[judge.number]:
                left[judge.number], progress_s = judge.left, loop.time()
        judges = [judge for judge in judges if judge.left]
        await asyncio.sleep(PAUSE_S)


async def _ask(brokers: Brokers, node: int, judges: Sequence[Judge], *, is_late: bool) -> None:
    """Reads, at one broker, the partitions that it leads and its own copies of all. If `is_late`, the leader appends
    the new record to each partition although records are still unread."""

    def questions(broker: Broker) -> Iterator[asyncio.Future[None]]:
        infos = broker.image.topics[TOPIC].partitions
        for judge in judges:
            if infos[judge.number].leader == node:
                yield asyncio.ensure_future(judge.ask_leader(TOPIC, broker, is_late=is_late))
            yield asyncio.ensure_future(judge.ask_replica(node, broker))

    async def ask(broker: Broker) -> None:
        await asyncio.gather(*questions(broker))

    await brokers.ask(node, ask)
