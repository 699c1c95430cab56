"""Roles of in-sync replicas on this broker: leader (`Partition`), follower (`Follower`), or future leader (`Settling`).

A new leader epoch gets a new object over the same log, so that no operation of the old leadership continues in the new
one. Followers of one leader share a `Fetcher`. While a partition has no leader, its replicas are followers without a
fetcher: the log stays as it is, and is still read, scrubbed, repaired and used to repair others. A broker that is to
lead, and finds the end of its log damaged, first settles which of the damaged batches were committed (`Settling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from tidelog.broker.isr.fetching import Fetcher
from tidelog.broker.isr.follower import Follower, acknowledged_end
from tidelog.broker.isr.isr_inputs import isr_changed, isr_settings, log_state
from tidelog.broker.isr.partition import IsrContext, Partition
from tidelog.broker.isr.settling import LogIdentity, Settling, begin_settling, verify_end
from tidelog.broker.partitions.committed import fill_lost_end
from tidelog.broker.partitions.replica_logs import is_lost, log_settings, note_filled
from tidelog.broker.partitions.roles import Assignment, ProtocolContext
from tidelog.broker.runtime.mapping_union import MappingUnion
from tidelog.controller.partition_commands import UnfitReason
from tidelog.model.cluster import END_UNKNOWN, NO_LEADER, ClusterImage, PartitionInfo
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.replication.isr.events import Tick
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.storage.partition_log import PartitionLog

TICKS_PER_LAG = 10
TICKED_AT_A_TIME = 64
SETTLING_S_MAX = 3.0
"""Seconds after which another replica should be elected if the damaged end of a future leader's log is not settled, and
another may know more."""

logger = structlog.get_logger("tidelog.broker")


class IsrRoles:
    """The roles of this broker in its ISR partitions (implements `Roles`). `tick` is one of its tasks."""

    def __init__(
        self,
        context: ProtocolContext,
        shared: IsrContext,
        new_fetcher: Callable[[int], Fetcher],
        retired: Callable[[PartitionId], None],
        settle: Callable[[Settling], Coroutine[Any, Any, None]],
    ) -> None:
        """`retired` is called when a leadership has ended. `settle` returns when the leader epoch of a log with a
        damaged end may begin."""
        self.partitions: dict[PartitionId, Partition] = {}
        self.followers: dict[PartitionId, Follower] = {}
        self.settling: dict[PartitionId, Settling] = {}
        """The partitions that this broker will lead once it is settled which damaged batches of their logs were
        committed."""
        self.holders: Mapping[PartitionId, Partition | Follower | Settling] = MappingUnion[
            PartitionId, Partition | Follower | Settling
        ](self.partitions, self.followers, self.settling)
        self.readable = self.holders
        self._node_id = context.node_id
        self._config = context.config
        self._logs = context.logs
        self._tasks = context.tasks
        self._shared = shared
        self._log_writer = context.log_writer
        self._clock = context.clock
        self._new_fetcher = new_fetcher
        self._retired = retired
        self._settle = settle
        self._newest = context.newest
        self._on_metadata_applied = context.on_metadata_applied
        self._fetchers: dict[int, Fetcher] = {}

    async def tick(self) -> None:
        """Reports the time to the leaders' state machines, until cancelled: every tick to leaders with uncommitted
        batches, some ten times per `replica.lag.time.max.ms` to all others, and never to those at rest."""
        interval_s = min(self._config.replica_lag_time_max_ms / 1000 / TICKS_PER_LAG, 1.0)
        tick_s = min(isr_settings(self._config).tick_ms / 1000, interval_s)
        all_at_s = self._clock.monotonic_s() + interval_s
        while True:
            await asyncio.sleep(tick_s)
            # Nobody waits for a follower, so nobody can stall: the loop sleeps until something is appended.
            if not self._shared.awaiting:
                await self._wait_for_uncommitted(all_at_s - self._clock.monotonic_s())
            if self._clock.monotonic_s() < all_at_s:
                await self._tell_the_time(list(self._shared.awaiting.values()))
            else:
                await self._tell_the_time(
                    [partition for partition in self.partitions.values() if not partition.is_at_rest]
                )
                all_at_s = self._clock.monotonic_s() + interval_s

    async def _tell_the_time(self, partitions: Sequence[Partition]) -> None:
        """Reports the time to these leaders, a few at a time, so that other tasks can run in between."""
        for number, partition in enumerate(partitions, start=1):
            if self.partitions.get(partition.partition_id) is partition:
                partition.tell(Tick(self._now_ms()))
                if partition.high_watermark == partition.log_end_offset:
                    self._shared.awaiting.pop(partition.partition_id, None)
            if number % TICKED_AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def _wait_for_uncommitted(self, seconds_max: float) -> None:
        """Returns when a leader has an uncommitted batch, or after `seconds_max`."""
        self._shared.begins_to_await.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._shared.begins_to_await.wait()

    def unfit(self) -> dict[PartitionId, UnfitReason]:
        """Returns the replicas that are unfit to lead or to be in sync, with the reason. It is called for every
        heartbeat, so only leaders with uncommitted batches are checked for a stall."""
        settled_s = self._clock.monotonic_s() - SETTLING_S_MAX
        stalled = [partition.partition_id for partition in self._shared.awaiting.values() if partition.has_stalled]
        reasons = dict.fromkeys(stalled, UnfitReason.STALLED)
        for partition_id, settling in self.settling.items():
            if settling.begun_s < settled_s and self._may_others_lead(settling):
                reasons[partition_id] = UnfitReason.DAMAGED
        return reasons | {
            partition_id: UnfitReason.OFFLINE for partition_id in self._logs.offline() if partition_id in self.holders
        }

    def _may_others_lead(self, settling: Settling) -> bool:
        """Returns True if another broker might lead sooner: one of the replicas whose answers this settlement waits
        for is live. If all of them are down, any other leader would wait for them as well."""
        newest = self._newest(settling.partition_id)
        return newest is not None and any(newest[1].is_live(node) for node in settling.core.awaited)

    # -- beginning ---------------------------------------------------------------------------------------------------

    async def serve(self, assigned: Assignment, image: ClusterImage) -> bool:
        """Gives a replica the role that the image has for it: leader, follower, or future leader. Returns True if that
        took time."""
        partition_id, topic, info, config = assigned
        running = self.holders.get(partition_id)
        # Within one epoch the role stays; a new one gets a new core, so that nothing of the old leadership goes on.
        if running is not None and running.leader_epoch == info.leader_epoch:
            note_filled(running.log, info, self._node_id)
            if isinstance(running, Partition):
                self._refresh(running, assigned, image)
            elif isinstance(running, Follower):
                running.reconfigure(log_settings(config), is_fsynced=config.ack_durability == "fsynced")
            else:
                running.look(_identities(info, image))
            return False
        if running is not None:
            await self.stop(partition_id)
        is_alone = len(info.replicas) == 1
        log = self._logs.get(partition_id, topic.name, config, info.since_of(self._node_id), is_alone=is_alone)
        # A log that was lost is begun anew by the metadata first: as leader it would have the others truncate to
        # nothing.
        if log is None or (info.leader == self._node_id and is_lost(log, info, self._node_id)):
            return True
        note_filled(log, info, self._node_id)
        if info.leader == self._node_id:
            await self._take_over(assigned, log, image)
        else:
            self._follow(assigned, log)
        self._logs.check(partition_id, log)
        return True

    def _refresh(self, partition: Partition, assigned: Assignment, image: ClusterImage) -> None:
        if partition.config != assigned.config:
            partition.reconfigure(assigned.config, log_settings(assigned.config))
        partition.tell(isr_changed(assigned.config, assigned.info, image))

    async def _take_over(self, assigned: Assignment, log: PartitionLog, image: ClusterImage) -> None:
        """Leads at once if the end of the log is intact; else first settles which damaged batches were committed."""
        partition_id, topic, info, _ = assigned
        lives = {int(node_id): broker.epoch for node_id, broker in image.brokers.items()}
        # By the metadata of this epoch, and each in its present life: a denial of anybody else proves nothing.
        members = {int(node): lives.get(node, -1) for node in (*info.isr, *info.elr) if node != self._node_id}
        high_watermark = self._logs.high_watermark(partition_id, log)
        # What is above the high watermark may be torn on all disks after a power cut, and the next append would commit
        # it.
        if len(info.replicas) > 1 and high_watermark < log.log_end_offset:
            try:
                await verify_end(log, high_watermark, self._log_writer)
            except (OSError, TidelogError) as error:
                logger.error("a log cannot be read now", partition=str(partition_id), error=str(error))
                self._logs.troubled[partition_id] = None
                return
        identities = {node: identity for node, identity in _identities(info, image).items() if node in members}
        now_s = self._clock.monotonic_s()
        settling = begin_settling(
            topic.name, partition_id, info.leader_epoch, log, high_watermark, members, identities, now_s
        )
        if settling.core.is_settled:
            self._note_committed(settling)
            self._lead(assigned, log, image)
            return
        self.settling[partition_id] = settling
        self._tasks.spawn(_settlement_of(partition_id), self._lead_when_settled(settling))

    async def _lead_when_settled(self, settling: Settling) -> None:
        partition_id = settling.partition_id
        try:
            await self._settle(settling)
        except (OSError, TidelogError) as error:
            logger.error("a log could not be settled", partition=str(partition_id), error=str(error))
            return
        del self.settling[partition_id]
        self._note_committed(settling)
        newest = self._newest(partition_id)
        if newest is None or newest[0].info.leader_epoch != settling.leader_epoch:
            return  # another role is on its way
        assigned, image = newest
        self._lead(assigned, settling.log, image)
        self._on_metadata_applied()

    def _note_committed(self, settling: Settling) -> None:
        high_watermark = self._logs.high_watermark(settling.partition_id, settling.log)
        self._logs.high_watermarks[settling.partition_id] = max(high_watermark, settling.core.committed_end)

    def _lead(self, assigned: Assignment, log: PartitionLog, image: ClusterImage) -> None:
        partition_id, topic, info, config = assigned
        try:
            fill_lost_end(log, info.leader_epoch, self._clock.wall_ms())
        except TidelogError as error:
            logger.error("a log cannot be filled up", partition=str(partition_id), error=str(error))
            self._logs.troubled[partition_id] = None
            return
        # Made from the log as it is now: the end of the log is where this leader epoch starts (LESO).
        core = IsrLeader(
            self._node_id,
            info.leader_epoch,
            log_state(log),
            self._logs.high_watermark(partition_id, log),
            isr_changed(config, info, image),
            isr_settings(self._config),
            self._now_ms(),
        )
        partition = Partition(
            topic.name, partition_id, info.leader_epoch, log, core, config, self._node_id, self._shared
        )
        self.partitions[partition_id] = partition
        # Batches of an earlier role count for the high watermark only when they are durable.
        if log.is_dirty:
            self._log_writer.submit(partition)
        self._tasks.spawn(partition_id, partition.run())

    def _follow(self, assigned: Assignment, log: PartitionLog) -> None:
        """Makes the replica a follower of the leader; without a fetcher if the partition has no leader."""
        partition_id, topic, info, config = assigned
        high_watermark = min([self._logs.high_watermark(partition_id, log), *_given_up_from(info, log)])
        # A damaged batch above the high watermark may never have been acknowledged, so it is not now either.
        state = log_state(log)._replace(durable_offset=acknowledged_end(log, high_watermark))
        core = IsrFollower(info.leader_epoch, state, high_watermark)
        follower = Follower(
            topic.name, partition_id, info.leader_epoch, log, core, self._log_writer, self._clock, self._tasks.spawn
        )
        follower.is_fsynced = config.ack_durability == "fsynced"
        self.followers[partition_id] = follower
        if info.leader != NO_LEADER:
            self._fetcher(info.leader).add(follower)

    def _fetcher(self, leader: int) -> Fetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._new_fetcher(leader)
            self._tasks.spawn(f"fetcher-{leader}", fetcher.run())
        return fetcher

    # -- ending ------------------------------------------------------------------------------------------------------

    async def stop(self, partition_id: PartitionId) -> None:
        """Ends the replica's role. Appended batches are flushed and a truncation is completed before this returns, so
        that no operation of the old role changes the log under a new one."""
        follower = self.followers.pop(partition_id, None)
        if follower is not None:
            follower.close()
            for fetcher in self._fetchers.values():
                fetcher.remove(partition_id)
            await follower.at_rest()
            self._logs.high_watermarks[partition_id] = follower.high_watermark
            return
        settling = self.settling.pop(partition_id, None)
        if settling is not None:
            await self._tasks.cancel(_settlement_of(partition_id))
            await self._log_writer.at_rest(settling.log)
            return
        partition = self.partitions.pop(partition_id)
        partition.close(is_deposed=True)
        self._retired(partition_id)
        self._logs.high_watermarks[partition_id] = partition.high_watermark
        await self._tasks.cancel(partition_id)
        # A flush of the old role that ended under the new one would report what was truncated meanwhile.
        await self._log_writer.at_rest(partition.log)

    async def close(self) -> None:
        """Ends all roles, because this broker stops."""
        for leader in self._fetchers:
            # Fetchers first: nothing may be appended to a log whose role has ended.
            await self._tasks.cancel(f"fetcher-{leader}")
        for partition_id, partition in self.partitions.items():
            partition.close()
            self._logs.high_watermarks[partition_id] = partition.high_watermark
            await self._tasks.cancel(partition_id)
        for partition_id in list(self.settling):
            await self.stop(partition_id)
        for partition_id, follower in self.followers.items():
            follower.close()
            await follower.at_rest()
            self._logs.high_watermarks[partition_id] = follower.high_watermark
        self.partitions.clear()
        self.followers.clear()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _identities(info: PartitionInfo, image: ClusterImage) -> dict[int, LogIdentity]:
    brokers = {int(node): image.brokers[node] for node in info.replicas if node in image.brokers}
    return {node: LogIdentity(broker.storage, info.since_of(node)) for node, broker in brokers.items()}


def _given_up_from(info: PartitionInfo, log: PartitionLog) -> list[int]:
    """Returns the end offsets of the regroupings since the last batch of this log: records behind such an end are not
    committed any more, even if they were known to be before."""
    # A regrouping in an epoch that this log has batches of was taken into account when these were fetched.
    later = [regrouping for regrouping in info.regroupings if regrouping.leader_epoch > log.tail.epoch]
    return [regrouping.end for regrouping in later if regrouping.end != END_UNKNOWN]


def _settlement_of(partition_id: PartitionId) -> str:
    """Returns the name of the task that settles a partition's damaged end."""
    return f"settlement-{partition_id}"
