"""A handle for a partition that this broker leads. It stays usable when the leadership moves to another broker.

A leader may change while a request reads its body or waits in a queue. If the former leader certainly did not execute
it (`NotLeader`), the request is sent to the next leader, so that the client need not retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar, Unpack

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import FetchedBatches, PartitionHandle
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing.remote_partition import ProduceOptions, RemotePartition
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import NotLeader
from tidelog.model.ids import ProducerId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LedHere(RemotePartition):
    """A `PartitionHandle` for a partition that this broker led when the handle was made. After `NotLeader` it asks the
    new leader.
    """

    led: LedPartition

    async def _ask(self, question: Callable[[PartitionHandle], Awaitable[T]]) -> T:
        try:
            return await question(self.led)
        except NotLeader:
            return await question(RemotePartition(self.calls, self.target, self.config))

    async def produce(self, batches: list[RecordBatch], **options: Unpack[ProduceOptions]) -> ProduceReceipt:
        """Appends batches at the leader, here or, after a change of leader, elsewhere. Raises a definite error, such as
        `NotLeader`, if nothing was appended; `TimedOutAfterAppend` or `InternalError` if the outcome is unknown.
        """
        return await self._ask(lambda leader: leader.produce(batches, **options))

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Deletes committed records below `offset` at the leader. Raises `OffsetOutOfRange` beyond the high watermark,
        `TimedOutAfterAppend` at the deadline (loop time), `InvalidRequest` if users may not write to the topic, or
        `LeaderNotAvailable`, `NotLeader`, `Overloaded`, `DiskFull`, `LogOffline`.
        """
        await self._ask(lambda leader: leader.delete_records(offset, deadline_s=deadline_s))

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns committed batches from the leader, from the one with `offset` on. Raises `OffsetOutOfRange`,
        `DamagedBatch`, `NotLeader` or `LeaderNotAvailable`.
        """
        return await self._ask(lambda leader: leader.read(offset, bytes_max=bytes_max))

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Waits until `bytes_min` committed bytes can be read from `offset` on, or until the deadline (loop time)."""
        await self._ask(lambda leader: leader.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s))

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Returns the fingerprint of the content of the request that was appended under an idempotency key; None if
        none was. `producer_id` is the one made from the key.
        """
        return await self._ask(lambda leader: leader.fingerprint_of(producer_id))
