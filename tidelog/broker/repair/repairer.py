"""Repairs what is damaged on this broker's disk, as soon as a reader, a follower or the scrubber finds it.

Each damaged batch is taken from this broker's second copy, if the replica keeps one, else fetched from any other
replica that has it undamaged, and written back in its place (CTRL's recovery of a leader-based log, FAST '18). A batch
that no other replica can give now is requested again and again; until then reads of its offsets get an error, and
nothing else is affected. No checksum error ever leads to truncation or to skipped records.

Batches are repaired one after the other, on the disk thread, between the flushes of the log: repairs are rare, and may
take their time. A batch whose catalog row is lost too is requested by its offset alone. Then only a committed batch is
given, since below the high watermark all replicas have the same; or one that two logs of one leader epoch have in
common, since both are prefixes of that leader's log. Otherwise no follower could rejoin an in-sync set that is too
small without it: the high watermark would wait for the follower, and the follower for the high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import structlog

from tidelog.broker.repair.copies import Copies, Holder
from tidelog.broker.repair.repair_messages import REQUESTED_MAX
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import TidelogError
from tidelog.model.holdings import Holding
from tidelog.model.ids import NodeId, PartitionId
from tidelog.storage.copies import Identity, identity_at
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.repair import Repair
from tidelog.storage.segment import Segment

PAUSE_S = 0.5
PAUSE_S_MAX = 5.0
"""Maximum seconds between two attempts, while no replica has a good copy."""

logger = structlog.get_logger("tidelog.repair")


@dataclass(eq=False)
class Repairer:
    """Repairs the damaged logs of one broker. `run` is its task."""

    node_id: NodeId
    holder: Callable[[PartitionId], Holder | None]
    image: Callable[[], ClusterImage]
    copies: Copies
    log_writer: LogWriter
    stats: Stats
    _damaged: dict[PartitionId, None] = field(init=False, default_factory=dict)
    _reported: dict[PartitionId, None] = field(init=False, default_factory=dict)
    """The damaged partitions that were reported since the last attempt."""
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _first_seen_s: dict[PartitionId, dict[int, float]] = field(init=False, default_factory=dict)
    """Time at which each damaged range was first seen (loop time), by the range's start, for each partition."""
    without_copy: dict[PartitionId, int] = field(init=False, default_factory=dict)
    """The number of damaged batches, by partition, of which none of the brokers that answered at the last attempt
    had a good copy."""
    unasked: dict[PartitionId, frozenset[int]] = field(init=False, default_factory=dict)
    """The brokers that may have good copies, by partition, but could not be asked at the last attempt."""

    def noticed(self, partition_id: PartitionId) -> None:
        """Reports that a partition has damage on this disk, and wakes `run`."""
        self._damaged[partition_id] = self._reported[partition_id] = None
        self._wake.set()

    def damaged_for_s(self) -> dict[PartitionId, float]:
        """Returns the partitions that wait for a repair, each with the seconds since its oldest damage was found."""
        now_s = asyncio.get_running_loop().time()
        return {
            partition_id: now_s - min(seen_s.values()) for partition_id, seen_s in self._first_seen_s.items() if seen_s
        }

    async def run(self) -> None:
        """Repairs damaged partitions until cancelled. A partition of which damage was just noticed is tried at once;
        all that are still damaged are tried again after each pause, which doubles up to `PAUSE_S_MAX` while nothing can
        be repaired."""
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_S
        again_s = loop.time() + pause_s
        while True:
            await self._wait(max(0.0, again_s - loop.time()) if self._damaged else None)
            is_everything = loop.time() >= again_s
            repaired = self.stats.repaired_batches
            due = list(self._damaged if is_everything else self._reported)
            self._reported.clear()
            for partition_id in due:
                if not await self._attend_to(partition_id):
                    self._damaged.pop(partition_id, None)
                self._keep_times(partition_id)
            if self.stats.repaired_batches > repaired or not self._damaged:
                pause_s = PAUSE_S
            elif is_everything:
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            if is_everything or not self._damaged:
                again_s = loop.time() + pause_s

    async def _wait(self, seconds_max: float | None) -> None:
        """Waits until damage is reported, or until `seconds_max` have passed, if that is not None."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _keep_times(self, partition_id: PartitionId) -> None:
        """Stores the time at which each damaged range of a partition was first seen, and drops the repaired ranges."""
        holder, now_s = self.holder(partition_id), asyncio.get_running_loop().time()
        starts = [] if holder is None else [damage.start for damage in holder.log.damaged_ranges()]
        seen_s = self._first_seen_s.pop(partition_id, {})
        if starts:
            self._first_seen_s[partition_id] = {start: seen_s.get(start, now_s) for start in starts}
        else:
            self.without_copy.pop(partition_id, None)
            self.unasked.pop(partition_id, None)

    async def _attend_to(self, partition_id: PartitionId) -> bool:
        """Makes one attempt to repair a partition; returns True if damage is left. A replica without a role is not
        repaired: when it gets a role, its damage is reported again."""
        holder = self.holder(partition_id)
        if holder is None or not holder.log.damage or holder.log.offline_reason is not None:
            return False
        self._keep_times(partition_id)
        _look_again(holder)
        missing = await self._put_back_own(holder, partition_id, _identities(holder.log))
        reached = [node_id for node_id in self.others(partition_id) if await self._ask(holder, node_id, missing)]
        if self.holder(partition_id) is not holder:
            return True
        self.without_copy[partition_id] = len(missing)
        self.unasked[partition_id] = (
            frozenset(self._all_others(partition_id)).difference(reached) if missing else frozenset()
        )
        if missing:
            holder.on_flushed()  # a follower's leader may just have found that it has lost the same
        return bool(holder.log.damage)

    async def _ask(self, holder: Holder, node_id: NodeId, missing: dict[Identity, None]) -> bool:
        """Asks a broker for copies of the `missing` batches, repairs the batches that it has, and removes these from
        `missing`. Returns False if the broker could not be asked."""
        partition_id = holder.partition_id
        if not missing or self.holder(partition_id) is not holder:
            return True
        epoch = holder.aligned_epoch
        try:
            reply, batches = await self.copies.ask(node_id, partition_id, list(missing), aligned_epoch=epoch)
        except (TidelogError, TimeoutError) as error:
            logger.info("no copies to be had now", partition=str(partition_id), broker=node_id, reason=str(error))
            return False
        for identity, holding, data in batches:
            if self.holder(partition_id) is not holder:
                break
            is_aligned = reply.is_aligned and holder.aligned_epoch == epoch
            if holding is Holding.HAVE and await self.put_back(
                holder, partition_id, identity, data, node_id, is_aligned=is_aligned
            ):
                del missing[identity]
        return True

    async def _put_back_own(
        self, holder: Holder, partition_id: PartitionId, identities: dict[Identity, None]
    ) -> dict[Identity, None]:
        """Repairs the batches of which this disk has a second copy; returns the other batches of `identities`."""
        left: dict[Identity, None] = {}
        for identity in identities:
            try:
                data = holder.second_copy(identity)
            except TidelogError:
                data = None
            if data is None or not await self.put_back(holder, partition_id, identity, memoryview(data), self.node_id):
                left[identity] = None
        return left

    def others(self, partition_id: PartitionId) -> list[NodeId]:
        """Returns the other live brokers that have a replica of the partition, the leader first."""
        image = self.image()
        return [node for node in self._all_others(partition_id) if image.is_live(node)]

    def _all_others(self, partition_id: PartitionId) -> list[NodeId]:
        for topic in self.image().topics.values():
            if topic.topic_id == partition_id.topic_id and partition_id.partition < len(topic.partitions):
                info = topic.partitions[partition_id.partition]
                nodes = sorted(info.replicas, key=lambda node: node != info.leader)
                return [node for node in nodes if node != self.node_id]
        return []

    async def put_back(
        self,
        holder: Holder,
        partition_id: PartitionId,
        identity: Identity,
        data: memoryview,
        giver: int,
        *,
        is_aligned: bool = False,
    ) -> bool:
        """Repairs one batch with a copy from the broker `giver`; returns True if it can be read now. `is_aligned` says
        that both logs are prefixes of one leader's log, so that the copy belongs there even if it is not committed."""
        log = holder.log
        verdicts: list[Repair] = []
        belongs_there = not identity.is_known and (is_aligned or identity.offset < holder.high_watermark)
        try:
            with ExitStack() as held:
                if holder.is_readable:  # else it is being truncated, and rolls when it is appended to
                    log.leave_lost_end()
                part = next(log.parts(identity.offset), None)
                if isinstance(part, Segment):
                    held.callback(log.hold(part))
                await self.log_writer.exclusively(
                    holder, lambda: verdicts.append(log.repair(data, belongs_there=belongs_there))
                )
        except (OSError, TidelogError) as error:
            logger.error("a batch could not be repaired", partition=str(partition_id), error=str(error))
            return False
        if verdicts[0] is Repair.DONE:
            self.stats.repaired_batches += 1
            self._count(partition_id, identity.offset, len(data), is_own=giver == self.node_id)
            logger.info("repaired", partition=str(partition_id), offset=identity.offset, copy_of=giver)
            holder.on_flushed()
        holder.watchers.wake_all()
        return verdicts[0] in (Repair.DONE, Repair.NOT_NEEDED)

    def _count(self, partition_id: PartitionId, offset: int, size: int, *, is_own: bool) -> None:
        """Counts a repair by the source of the copy, and the time since the damage was found."""
        stats, now_s = self.stats, asyncio.get_running_loop().time()
        stats.repaired_from_own_copy += is_own
        stats.repaired_own_bytes += size if is_own else 0
        stats.repaired_peer_bytes += 0 if is_own else size
        seen_s = self._first_seen_s.get(partition_id, {})
        stats.repair_seconds += now_s - seen_s.pop(offset, now_s)


def _look_again(holder: Holder) -> None:
    """Reads damaged ranges again, and removes what can be read now from the list of damage. The leader is informed,
    since it may wait for these batches."""
    log = holder.log
    ranges = log.damaged_ranges()
    for damage in ranges[:REQUESTED_MAX]:
        log.look_again(damage)
    if log.damaged_ranges() != ranges:
        holder.on_flushed()
        holder.watchers.wake_all()


def _identities(log: PartitionLog) -> dict[Identity, None]:
    """Returns the identities of damaged batches, as far as the log knows them, at most as many as one request
    can name."""
    ranges = log.damaged_ranges()[:REQUESTED_MAX]
    return {identity_at(log, max(damage.start, log.log_start_offset)): None for damage in ranges}
