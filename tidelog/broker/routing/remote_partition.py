"""A partition that another broker leads, as a handle: every request goes to the leader, wherever that is by then.

The handle is a partition of a topic, not a leader: `LeaderCalls.reach` asks whoever leads when the request sets out,
this very broker if it has just taken over.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches, Offsets
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing.fan_out import fan_out_fingerprints, fan_out_offsets
from tidelog.broker.routing.leader_calls import LeaderCalls, Target
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import TidelogError
from tidelog.model.ids import ProducerId, TopicId

READ_PATIENCE_S: Final = 5.0
"""How long a read looks for a leader. A client that asked for nothing longer is better off with a 503."""


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """A `PartitionHandle` for a partition that was led elsewhere when it was made."""

    calls: LeaderCalls
    target: Target
    config: TopicConfig

    @property
    def topic(self) -> str:
        return self.target.topic

    @property
    def topic_id(self) -> TopicId:
        return self.target.topic_id

    @property
    def partition(self) -> int:
        return self.target.partition

    async def produce(
        self,
        batches: list[RecordBatch],
        *,
        acks: int,
        deadline_s: float,
        idempotency: tuple[ProducerId, int] | None = None,
        expected_end: int | None = None,
        is_own: bool = False,
    ) -> ProduceReceipt:
        """Produces at the leader, as `LedPartition.produce` says. Repeats after an unknown outcome only if the
        partition will recognise a repeat.
        """
        return await self.calls.reach(
            self.target,
            lambda leader: leader.produce(
                batches,
                acks=acks,
                deadline_s=deadline_s,
                idempotency=idempotency,
                expected_end=expected_end,
                is_own=is_own,
            ),
            deadline_s,
            appends=True,
            is_repeatable=idempotency is not None or all(batch.header.producer_id >= 0 for batch in batches),
        )

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Deletes records at the leader, as `LedPartition.delete_records` says. A repetition does no harm."""
        await self.calls.reach(
            self.target, lambda leader: leader.delete_records(offset, deadline_s=deadline_s), deadline_s, appends=True
        )

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Reads committed batches at the leader, as `LedPartition.read` says."""
        return await self.calls.reach(
            self.target, lambda leader: leader.read(offset, bytes_max=bytes_max), _read_deadline_s()
        )

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Waits for data at the leader, as `LedPartition.wait_for_data` says."""
        await self.calls.reach(
            self.target,
            lambda leader: leader.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s),
            deadline_s,
        )

    async def extent(self) -> Extent:
        """Returns where the partition begins and ends now."""
        return (await self._offsets(None)).extent

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns the first record of that time or later, as `LedPartition.offset_for_timestamp` says."""
        return (await self._offsets(timestamp_ms)).record

    async def _offsets(self, timestamp_ms: int | None) -> Offsets:
        (offsets,) = await fan_out_offsets(self.calls, [(self.target, timestamp_ms)], _read_deadline_s())
        if isinstance(offsets, TidelogError):
            raise offsets
        return offsets

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Returns the fingerprint under an idempotency key, as `LedPartition.fingerprint_of` says."""
        (fingerprint,) = await fan_out_fingerprints(self.calls, [self.target], producer_id, _read_deadline_s())
        if isinstance(fingerprint, TidelogError):
            raise fingerprint
        return fingerprint


def _read_deadline_s() -> float:
    return asyncio.get_running_loop().time() + READ_PATIENCE_S
