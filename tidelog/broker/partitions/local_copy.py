"""A broker's own copy of a partition for readers (KIP-392): committed records, as far as this broker knows them.

A follower's high watermark is a little behind the leader's, so a copy may return less than the leader, but never more.
An offset past the copy's end is out of range here, even if the leader has it already; where a log is offline, nobody
knows what should follow its end, so a read there is refused. A broker that leads, or led until it was isolated, can be
read in the same way, without a guarantee that the data is up to date. A copy that was lost and is being filled again
lacks records that other replicas have: a read at its end is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.partitions.committed import bytes_from, first_since, has_bytes, read_when_repaired
from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches
from tidelog.broker.repair.copies import Replica
from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.broker.runtime.stats import Stats
from tidelog.model.errors import DamagedBatch, LeaderNotAvailable, OffsetOutOfRange, TidelogError
from tidelog.model.ids import TopicId
from tidelog.storage.log_reader import PassingRead
from tidelog.storage.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A `ReadHandle` for a partition of which this broker has a replica."""

    replica: Replica
    node_id: int
    purgatory: Purgatory
    stats: Stats
    is_leading: bool = False
    """True at the leader: nothing is committed behind the end of this log, so a read there is answered even if it is
    offline."""
    is_filling: bool = False
    """True while a lost copy is being filled again: a read at its end is refused."""

    @property
    def topic(self) -> str:
        return self.replica.topic

    @property
    def topic_id(self) -> TopicId:
        return self.replica.partition_id.topic_id

    @property
    def partition(self) -> int:
        return self.replica.partition_id.partition

    @property
    def watchers(self) -> Watchers:
        """The reads that wait for a change of the replica."""
        return self.replica.watchers

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns committed batches from the one that holds `offset`: at most `bytes_max`, but at least one if there is
        one.

        Waits up to `REPAIR_S_MAX` if that batch is damaged on this disk, for a repair from another replica's copy.
        Raises `OffsetOutOfRange`; `LeaderNotAvailable` if the replica is not readable now, or at the end of a copy that
        is being filled; `LogOffline` at the end of a follower's log that is offline; or `DamagedBatch` if the batch is
        still damaged.
        """
        try:
            return self.read_nowait(offset, bytes_max=bytes_max)
        except DamagedBatch:
            log, watchers, high_watermark = self.replica.log, self.replica.watchers, self.replica.high_watermark
            read = await read_when_repaired(log, watchers, self.purgatory, offset, bytes_max, high_watermark)
            return self._fetched(offset, read, high_watermark)

    def read_nowait(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns committed batches as `read` does, without waiting for a repair. Raises `OffsetOutOfRange`,
        `DamagedBatch`, `LeaderNotAvailable` or `LogOffline`."""
        log, high_watermark = self._log(), self.replica.high_watermark
        if offset >= high_watermark and not self.is_leading:
            log.require_online()
            self._require_filled()
        try:
            read = log.read_passing(offset, bytes_max, high_watermark)
        except DamagedBatch:
            self.stats.damaged_reads += 1
            raise
        except OffsetOutOfRange as error:
            error.high_watermark, error.leader_epoch = high_watermark, self.replica.leader_epoch
            raise
        return self._fetched(offset, read, high_watermark)

    def _fetched(self, offset: int, passing: PassingRead, high_watermark: int) -> FetchedBatches:
        """Returns the batches that were read with the copy's offsets, and counts them."""
        (read, lost), log = passing, self.replica.log
        if read.data:
            self._count(read.next_offset - offset, len(read.data), lost)
        return FetchedBatches(
            read.data,
            read.next_offset,
            log.log_start_offset,
            high_watermark,
            log.log_end_offset,
            self.replica.leader_epoch,
            self.node_id,
            () if lost is None else (lost,),
        )

    def _count(self, offsets: int, size: int, lost: tuple[int, int] | None) -> None:
        """Counts a read that has advanced by `offsets`. Each offset is a record, but for those that were given up
        (`lost`)."""
        if lost is not None:
            offsets -= lost[1] - lost[0]
        self.stats.read_bytes += size
        traffic = self.stats.traffic.of(self.topic)
        traffic.out_records += offsets
        traffic.out_bytes += size

    def bytes_ready(self, offset: int, bytes_max: int) -> int:
        """Returns how many committed bytes a read at `offset` would find, up to `bytes_max`; `bytes_max` if it would
        raise an error."""
        replica = self.replica
        try:
            if not replica.is_readable or has_bytes(replica.log, offset, bytes_max, replica.high_watermark):
                return bytes_max
        except TidelogError:
            return bytes_max
        return bytes_from(replica.log, offset, replica.high_watermark)

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Returns when `bytes_min` committed bytes lie behind `offset`, or a read would raise an error, or at the
        deadline (event loop time).

        Raises `Overloaded` if too many reads wait already.
        """
        await self.purgatory.wait([self.replica.watchers], lambda: self._has_bytes(offset, bytes_min), deadline_s)

    def _has_bytes(self, offset: int, bytes_min: int) -> bool:
        replica = self.replica
        return not replica.is_readable or has_bytes(replica.log, offset, bytes_min, replica.high_watermark)

    async def extent(self) -> Extent:
        """Returns the offsets where the copy begins and ends now. Raises `LeaderNotAvailable` if it is not readable
        now."""
        log = self._log()
        replica = self.replica
        return Extent(
            log.log_start_offset, replica.high_watermark, log.log_end_offset, replica.leader_epoch, self.node_id
        )

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first committed record of that timestamp (ms) or later; None if there is
        none. Raises `DamagedBatch`, or `LeaderNotAvailable` if the copy is not readable now."""
        return first_since(self._log(), timestamp_ms, self.replica.high_watermark)

    def _require_filled(self) -> None:
        if self.is_filling:
            raise LeaderNotAvailable(
                f"nobody leads {self.topic}-{self.partition}, and broker {self.node_id}'s copy was lost: it ends at "
                f"offset {self.replica.high_watermark}; ask another replica, or try again"
            )

    def _log(self) -> PartitionLog:
        if not self.replica.is_readable:
            raise LeaderNotAvailable(
                f"broker {self.node_id}'s copy of {self.topic}-{self.partition} is being brought in line; try again"
            )
        return self.replica.log
