"""A log that brokers lead in turn, with the interface of `LedPartition` that a coordinator uses; it has no replicas and
no disks.

An append takes effect at one instant, if its broker leads then, and is committed at once. Its broker may be dead or
replaced before the caller learns of it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.model.batch_header import RecordBatch, assign_offsets
from tidelog.model.errors import (
    EndOffsetMoved,
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotLeader,
    TidelogError,
    TimedOutAfterAppend,
)
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.groups.plan import Scenario

MESSAGE_BYTES_MAX = 1 << 20


@dataclass
class SharedLog:
    """The committed batches, and the leader epoch."""

    epoch: int = 0
    end: int = 0

    def __post_init__(self) -> None:
        self.batches = list[RecordBatch]()

    def put(self, batch: RecordBatch, epoch: int) -> int:
        """Commits a batch; returns its first offset."""
        base = self.end
        placed = assign_offsets(batch, base, epoch)
        self.batches.append(placed)
        self.end = placed.header.next_offset
        return base


@dataclass(frozen=True)
class LogConfig:
    """Topic settings that a coordinator reads."""

    max_message_bytes: int = MESSAGE_BYTES_MAX


class LedLog:
    """The log as one leader sees it. Leadership ends when the log has another epoch."""

    topic = OFFSETS_TOPIC
    partition = 0
    log_start_offset = 0
    config = LogConfig()

    def __init__(self, log: SharedLog, node_id: int, scenario: Scenario, rng: random.Random) -> None:
        log.epoch += 1
        self.leader_epoch = log.epoch
        self.is_calm = False
        """True once faults are over."""
        self._log = log
        self._node_id = node_id
        self._scenario = scenario
        self._rng = rng

    @property
    def is_leading(self) -> bool:
        """True until another broker leads."""
        return self._log.epoch == self.leader_epoch

    async def extent(self) -> Extent:
        """Returns the start and end offset of the log, with its leader epoch and node. Raises `LeaderNotAvailable` once
        another broker leads."""
        if not self.is_leading:
            raise LeaderNotAvailable("the lease is over")
        return Extent(0, self._log.end, self._log.end, self.leader_epoch, self._node_id)

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns the batch at an offset. Raises `LeaderNotAvailable` once another broker leads."""
        await self.extent()
        found = next(batch for batch in self._log.batches if batch.header.next_offset > offset)
        end = self._log.end
        return FetchedBatches(found.data, found.header.next_offset, 0, end, end, self.leader_epoch, self._node_id)

    async def delete_below(self, offset: int, *, deadline_s: float) -> None:
        """Raises `LeaderNotAvailable`: runs are too short for deletions to be needed."""
        raise LeaderNotAvailable("nothing is deleted here")

    async def append(
        self, batches: list[RecordBatch], *, acks: int, deadline_s: float, expected_end: int | None = None
    ) -> ProduceReceipt:
        """Appends one batch. Raises `NotEnoughReplicas` for injected refusals, `NotLeader`, `EndOffsetMoved`, and
        `TimedOutAfterAppend` if the outcome stays unknown."""
        if not self._is_fine(self._scenario.refused_rate):
            raise NotEnoughReplicas("too few replicas are in sync")
        loop = asyncio.get_running_loop()
        landed: asyncio.Future[int | TidelogError] = loop.create_future()
        loop.call_later(self._delay_s(), self._land, batches[0], expected_end, landed)
        try:
            async with asyncio.timeout_at(deadline_s):
                base = await landed
                await asyncio.sleep(self._delay_s())
        except TimeoutError:
            raise TimedOutAfterAppend("no word of it") from None
        if isinstance(base, TidelogError):
            raise base
        if not self.is_leading or not self._is_fine(self._scenario.unknown_rate):
            raise TimedOutAfterAppend("no word of it")
        return ProduceReceipt([(base, self._log.end - 1)], self.leader_epoch, [self._node_id], "fsynced")

    def _is_fine(self, rate: float) -> bool:
        return self.is_calm or self._rng.random() >= rate

    def _delay_s(self) -> float:
        """Draws the seconds of one step of an append; now and then the disk stalls."""
        stall_s = 0.0 if self._is_fine(0.02) else self._rng.random()
        return self._rng.expovariate(1 / self._scenario.append_s) + stall_s

    def _land(self, batch: RecordBatch, expected_end: int | None, landed: asyncio.Future[int | TidelogError]) -> None:
        """Decides at one instant whether an append takes effect, and gives its offset or its error to `landed`, unless
        the caller is gone by then."""
        outcome: int | TidelogError
        if not self.is_leading:
            outcome = NotLeader("another broker leads", self._log.epoch)
        elif expected_end is not None and expected_end != self._log.end:
            outcome = EndOffsetMoved(f"the log ends at {self._log.end}")
        else:
            outcome = self._log.put(batch, self.leader_epoch)
        if not landed.done():
            landed.set_result(outcome)
