"""A handle for a partition that another broker leads: every request goes to the current leader.

The handle names a partition, not a leader: `LeaderCalls.reach` asks the broker that leads when the request is sent,
which may be this broker by then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, NotRequired, TypedDict, Unpack

from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches, Offsets
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing.fan_out import fan_out_fingerprints, fan_out_offsets
from tidelog.broker.routing.leader_calls import LeaderCalls, Target
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import TidelogError
from tidelog.model.ids import ProducerId, TopicId

READ_PATIENCE_S: Final = 5.0
"""Seconds for which a read looks for a leader. After that a client that did not ask to wait gets a 503."""


class ProduceOptions(TypedDict):
    """The keyword arguments of `LedPartition.produce`, which handles pass on to the leader."""

    acks: int
    deadline_s: float
    idempotency: NotRequired[tuple[ProducerId, int] | None]
    expected_end: NotRequired[int | None]
    is_own: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """A `PartitionHandle` for a partition that another broker led when the handle was made."""

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

    async def produce(self, batches: list[RecordBatch], **options: Unpack[ProduceOptions]) -> ProduceReceipt:
        """Appends batches at the leader; `options` are passed on to its `LedPartition.produce`. After an unknown
        outcome the request is repeated only if the partition recognises duplicates, by producer ids or an idempotency
        key.
        """
        return await self.calls.reach(
            self.target,
            lambda leader: leader.produce(batches, **options),
            options["deadline_s"],
            appends=True,
            is_repeatable=options.get("idempotency") is not None
            or all(batch.header.producer_id >= 0 for batch in batches),
        )

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Deletes committed records below `offset` at the leader. The request is repeated after an unknown outcome,
        since a deletion may be repeated without harm.
        """
        await self.calls.reach(
            self.target, lambda leader: leader.delete_records(offset, deadline_s=deadline_s), deadline_s, appends=True
        )

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns committed batches from the leader, from the one with `offset` on."""
        return await self.calls.reach(
            self.target, lambda leader: leader.read(offset, bytes_max=bytes_max), _read_deadline_s()
        )

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Waits at the leader until `bytes_min` committed bytes can be read from `offset` on, or until the deadline
        (loop time).
        """
        await self.calls.reach(
            self.target,
            lambda leader: leader.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s),
            deadline_s,
        )

    async def extent(self) -> Extent:
        """Returns the log start, high watermark and log end of the partition at its leader."""
        return (await self._offsets(None)).extent

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns offset and timestamp (ms) of the first record of that time or later; None if there is none."""
        return (await self._offsets(timestamp_ms)).record

    async def _offsets(self, timestamp_ms: int | None) -> Offsets:
        (offsets,) = await fan_out_offsets(self.calls, [(self.target, timestamp_ms)], _read_deadline_s())
        if isinstance(offsets, TidelogError):
            raise offsets
        return offsets

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Returns the fingerprint of the content of the request that was appended under an idempotency key; None if
        none was. `producer_id` is the one made from the key.
        """
        (fingerprint,) = await fan_out_fingerprints(self.calls, [self.target], producer_id, _read_deadline_s())
        if isinstance(fingerprint, TidelogError):
            raise fingerprint
        return fingerprint


def _read_deadline_s() -> float:
    return asyncio.get_running_loop().time() + READ_PATIENCE_S
