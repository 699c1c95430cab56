"""A partition that this broker leads, as a handle: as good as the partition itself, until the leadership ends.

Leaders change while requests are under way: one reads its body, or waits in the mailbox. What the former leader has
surely not done (`NotLeader`) goes on at the next one, as if it had been sent to the wrong broker: a client is not asked
to try again because another broker leads now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import FetchedBatches, PartitionHandle
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing.remote_partition import RemotePartition
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import NotLeader
from tidelog.model.ids import ProducerId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LedHere(RemotePartition):
    """A `PartitionHandle` for a partition that was led here when it was made."""

    led: LedPartition

    async def _ask(self, question: Callable[[PartitionHandle], Awaitable[T]]) -> T:
        try:
            return await question(self.led)
        except NotLeader:
            return await question(RemotePartition(self.calls, self.target, self.config))

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
        """Asks as `LedPartition.produce`."""
        return await self._ask(
            lambda leader: leader.produce(
                batches,
                acks=acks,
                deadline_s=deadline_s,
                idempotency=idempotency,
                expected_end=expected_end,
                is_own=is_own,
            )
        )

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Asks as `LedPartition.delete_records`."""
        await self._ask(lambda leader: leader.delete_records(offset, deadline_s=deadline_s))

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Asks as `LedPartition.read`."""
        return await self._ask(lambda leader: leader.read(offset, bytes_max=bytes_max))

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Asks as `LedPartition.wait_for_data`."""
        await self._ask(lambda leader: leader.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s))

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Asks as `LedPartition.fingerprint_of`."""
        return await self._ask(lambda leader: leader.fingerprint_of(producer_id))
