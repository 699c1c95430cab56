"""A partition as listeners see it, whoever leads it: one asynchronous interface, two implementations.

`broker.partitions.led_partition.LedPartition` is the leader's own side; its methods answer without giving the event
loop away unless they have to wait. `broker.routing.remote_partition.RemotePartition` asks the leader over the peer
connection. A handle is good for one request: who leads a partition may change, and the next request asks the broker for
a handle again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.ids import ProducerId, TopicId
from tidelog.model.ports import Buffer


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets where a partition begins and ends at one moment, and the broker that says so."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    leader: int
    """Node id of the broker that answered; of a copy, the one that holds it."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """An extent, and offset and timestamp (ms) of the record that was looked for, if there is one."""

    extent: Extent
    record: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Committed batches, whole; the first may begin before the offset that was asked for."""

    data: Buffer
    next_offset: int
    """The offset to read on at."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    replica: int
    """Node id of the broker whose copy was read."""
    lost: tuple[tuple[int, int], ...] = ()
    """Offsets [start, end) that were given up, and that this read has passed."""


class ReadHandle(Protocol):
    """The readable side of a partition: at its leader, or from a copy.

    Every method may raise, beside what it says, the definite `LeaderNotAvailable`: nobody could be asked in time.
    Deadlines are in the event loop's time.
    """

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def partition(self) -> int: ...

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Committed batches from the one that holds `offset`: at most `bytes_max`, but at least one if there is one.

        Raises `OffsetOutOfRange`, or `DamagedBatch` if the batch that holds `offset` is damaged on the disk that is
        read.
        """
        ...

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Returns when `bytes_min` committed bytes lie behind `offset`, or at the deadline.

        Raises `Overloaded` if too many reads wait already.
        """
        ...

    async def extent(self) -> Extent:
        """Returns where the partition begins and ends now."""
        ...

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first committed record of that timestamp or later. Raises
        `DamagedBatch`."""
        ...


class PartitionHandle(ReadHandle, Protocol):
    """A partition at its leader, on this broker or on another one."""

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""
        ...

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
        """Appends sound batches; see `LedPartition.append` for the promises and the errors."""
        ...

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Deletes the committed records below `offset`; see `LedPartition.delete_records`."""
        ...

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Returns the fingerprint of what came under an idempotency key, by the id made from it; None if nothing
        did."""
        ...
