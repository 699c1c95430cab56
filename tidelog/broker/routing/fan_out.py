"""Requests about many partitions that other brokers lead: one request to each leader, all at the same time.

A partition is asked about again, as `LeaderCalls.reach` does for one partition, if the request reached a broker that
does not lead it or no broker at all; any other answer of a leader is final. A leader that is out of reach delays the
result until the deadline at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import Offsets, PartitionHandle
from tidelog.broker.routing.forwarding_messages import Addressed
from tidelog.broker.routing.leader_calls import NOT_DONE, UNKNOWN, LeaderCalls, Pauses, Target, not_reached
from tidelog.broker.routing.peer_partition import PeerLeader
from tidelog.model.errors import TidelogError
from tidelog.model.ids import ProducerId
from tidelog.transport.peer import PeerLost

T = TypeVar("T")

AskHere = Callable[[int, LedPartition], Awaitable[T]]
AskPeer = Callable[[PeerLeader, list[tuple[int, Addressed]]], Awaitable[Sequence[T | TidelogError]]]


@dataclass(frozen=True, slots=True)
class FanOut(Generic[T]):
    """A question about each of `targets` (partitions): `ask_here` answers it for a partition that this broker leads,
    `ask_peer` sends it to another leader for several partitions. Both get indexes into `targets`.
    """

    calls: LeaderCalls
    targets: Sequence[Target]
    ask_here: AskHere[T]
    ask_peer: AskPeer[T]

    async def run(self, deadline_s: float) -> list[T | TidelogError]:
        """Asks about all targets, and returns an answer or an error for each, in their order."""
        pauses = Pauses(deadline_s)
        answers: dict[int, T | TidelogError] = {}
        pending: list[int] = list(range(len(self.targets)))
        await self.calls.until_opened(self.targets, deadline_s)
        while pending:
            tried_epochs = await self._round(pending, answers, deadline_s)
            pending = [number for number in pending if isinstance(answers[number], NOT_DONE + UNKNOWN)]
            if pauses.is_over:
                break
            if pending:
                tried = [(self.targets[number], tried_epochs[number]) for number in pending]
                await self.calls.wait_for_news(tried, pauses.next_end_s())
        for number in pending:
            failure = answers[number]
            assert isinstance(failure, TidelogError)
            answers[number] = not_reached(self.targets[number], failure)
        return [answers[number] for number in range(len(self.targets))]

    async def _round(
        self, pending: Sequence[int], answers: dict[int, T | TidelogError], deadline_s: float
    ) -> dict[int, int | None]:
        """Asks once about the `pending` targets and stores the results in `answers`. Returns the leader epoch in which
        each target was asked.
        """
        tried_epochs = {number: self.calls.epoch(self.targets[number]) for number in pending}
        questions: dict[PeerLeader, list[tuple[int, Addressed]]] = {}
        for number in pending:
            try:
                leader = self.calls.locate(self.targets[number], deadline_s)
                if isinstance(leader, LedPartition):
                    answers[number] = await self.ask_here(number, leader)
                    continue
            except TidelogError as error:
                answers[number] = error
                continue
            questions.setdefault(leader.peer, []).append((number, leader.addressed))
        await asyncio.gather(*(self._ask(leader, group, answers) for leader, group in questions.items()))
        return tried_epochs

    async def _ask(
        self, leader: PeerLeader, group: list[tuple[int, Addressed]], answers: dict[int, T | TidelogError]
    ) -> None:
        try:
            group_answers: Sequence[T | TidelogError] = await self.ask_peer(leader, group)
        except TimeoutError as error:
            group_answers = [PeerLost(str(error))] * len(group)
        except TidelogError as error:
            group_answers = [error] * len(group)
        answers.update(zip((number for number, _ in group), group_answers, strict=True))


async def fan_out_offsets(
    calls: LeaderCalls, questions: Sequence[tuple[Target, int | None]], deadline_s: float
) -> list[Offsets | TidelogError]:
    """Returns the extent (log start, high watermark, log end) of each partition and, with a timestamp (ms), the first
    record of that time or later; or the error of that partition.
    """

    async def here(number: int, partition: LedPartition) -> Offsets:
        await partition.wait_for_end(deadline_s)
        return await offsets_at(partition, questions[number][1])

    async def peer(leader: PeerLeader, group: list[tuple[int, Addressed]]) -> list[Offsets | TidelogError]:
        return await leader.offsets([(addressed, questions[number][1]) for number, addressed in group], deadline_s)

    return await FanOut(calls, [target for target, _ in questions], here, peer).run(deadline_s)


async def fan_out_fingerprints(
    calls: LeaderCalls, targets: Sequence[Target], producer_id: ProducerId, deadline_s: float
) -> list[int | TidelogError | None]:
    """Returns for each partition, in order, the fingerprint of the content of the request that was appended under an
    idempotency key, None if none was, or an error. `producer_id` is the one made from the key.
    """

    async def here(_number: int, partition: LedPartition) -> int | None:
        return await partition.fingerprint_of(producer_id)

    async def peer(leader: PeerLeader, group: list[tuple[int, Addressed]]) -> list[int | TidelogError | None]:
        return await leader.fingerprints([addressed for _, addressed in group], producer_id, deadline_s)

    return await FanOut(calls, targets, here, peer).run(deadline_s)


async def offsets_at(partition: PartitionHandle, timestamp_ms: int | None) -> Offsets:
    """Returns the extent of one partition and, if a timestamp (ms) is given, the first record of that time or later.
    Raises `DamagedBatch` if the record's batch is damaged; `NotLeader` or `LeaderNotAvailable` if the leader cannot
    answer.
    """
    record = None if timestamp_ms is None else await partition.offset_for_timestamp(timestamp_ms)
    return Offsets(await partition.extent(), record)
