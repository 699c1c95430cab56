"""The interface through which listeners use a partition, whichever broker leads it. It has two implementations.

`broker.partitions.led_partition.LedPartition` is the leader's own side; its methods return without suspending
unless they have to wait. `broker.routing.remote_partition.RemotePartition` sends requests to the leader over the peer
connection. A handle is for one request: the leader may change, and for the next request a new handle is obtained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.ids import ProducerId, TopicId
from tidelog.model.ports import Buffer


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets where a partition begins and ends at one moment, with the leader epoch and the broker that
    gave them."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    leader: int
    """Node id of the broker that gave these offsets: the leader, or the broker whose own replica was read instead."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """An extent, and (offset, timestamp in ms) of the record that was searched for, if there is one."""

    extent: Extent
    record: tuple[int, int] | None = None


class FetchedBatches(msgspec.Struct, frozen=True):
    """Complete committed batches; the first may begin before the requested offset."""

    data: Buffer
    next_offset: int
    """Offset at which the next read has to begin."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    replica: int
    """Node id of the broker whose copy was read."""
    lost: tuple[tuple[int, int], ...] = ()
    """Offsets [start, end) that an operator has given up, and that this read has skipped."""


class ReleasedBatches(NamedTuple):
    """Complete batches above the high watermark that are committed nevertheless, in a topic whose order is not total:
    they are acknowledged, and conflict with nothing that is still open below them."""

    base_offset: int
    next_offset: int
    read: Callable[[], Buffer | None]
    """Returns the batches; None if no copy on this disk can be read now."""


class ReadHandle(Protocol):
    """Reads of a partition, at its leader or from a copy.

    Every method may also raise `LeaderNotAvailable`: no broker could be asked in time, and nothing was done. Deadlines
    are in the event loop's time.
    """

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def partition(self) -> int: ...

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns committed batches from the one that holds `offset`: at most `bytes_max`, but at least one if there is
        one.

        Raises `OffsetOutOfRange`, or `DamagedBatch` if the batch that holds `offset` is damaged on the disk that is
        read.
        """

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Returns when `bytes_min` committed bytes lie behind `offset`, or at the deadline.

        Raises `Overloaded` if too many reads wait already.
        """

    async def extent(self) -> Extent:
        """Returns the offsets where the partition begins and ends now."""

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first committed record of that timestamp (ms) or later; None if there is
        none. Raises `DamagedBatch`."""


class PartitionHandle(ReadHandle, Protocol):
    """Reads, produce and deletion at a partition's leader, on this broker or on another one."""

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""

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
        """Appends valid batches, contiguously and all or none. The parameters are those of `LedPartition.append`;
        `is_own` marks a record that a broker itself writes to the audit topic.
        Raises `TimedOutAfterAppend` or `InternalError` if the outcome is unknown; after any other error nothing was
        appended."""

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Deletes the committed records below `offset`; returns when any broker that may lead next has deleted them,
        too. Raises `InvalidRequest` if users may not write to this topic, `OffsetOutOfRange` beyond the high watermark,
        `TimedOutAfterAppend` at the deadline (they may be deleted yet), `LeaderNotAvailable`, `Overloaded`, `DiskFull`
        or `LogOffline`."""

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Returns the fingerprint of the content of the request that was appended under an idempotency key; None if
        none was. `producer_id` is the one made from the key."""
