"""The leader of a partition with in-sync replicas (`commit.protocol=isr`), with its log.

The batches of the requests that `LedPartition` has collected are appended with one write per file, at offsets from the
state machine. The log writer flushes them and calls `on_flushed`; the state machine turns flushes and followers'
reports into a new high watermark, which completes waiting produce requests and wakes waiting consumers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.broker.isr.recent_batches import RecentBatches, RecentBytes
from tidelog.broker.isr.uncommitted import Uncommitted
from tidelog.broker.partitions.intake import Group
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.proposals import (
    ACKS_ALL,
    Proposal,
)
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import TopicConfig
from tidelog.model.errors import (
    NotEnoughReplicas,
    TidelogError,
)
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer, Clock
from tidelog.model.producers import ProducerTable
from tidelog.replication.isr import events as isr
from tidelog.replication.isr import log_events
from tidelog.replication.isr.leader import IsrLeader
from tidelog.storage.partition_log import LogSettings, PartitionLog


class Replication(Protocol):
    """The services of the broker through which a leader reaches the other replicas and the controller."""

    def progressed(self, partition: Partition) -> None:
        """Called when the log has grown or its high watermark has advanced, so that waiting fetches of followers can be
        answered."""

    def ask_anew(self, partition: Partition, nodes: Sequence[int]) -> None:
        """Has these followers' waiting fetches answered now, because their last reports do not count any more, or
        because the high watermark or log start has changed."""

    def alter(self, partition: Partition, effect: isr.AlterPartition) -> None:
        """Requests another in-sync set from the controller; `Partition.tell` gets the answer, once."""


@dataclass(frozen=True, slots=True)
class IsrContext:
    """The parts that all ISR partitions of a broker share, such as its clock, log writer and statistics."""

    clock: Clock
    stats: Stats
    log_writer: LogWriter
    purgatory: Purgatory
    replication: Replication
    lease: Lease
    recent: RecentBytes = field(default_factory=RecentBytes)
    awaiting: dict[PartitionId, Partition] = field(default_factory=dict)
    """Leaders with batches that are not committed, or were not at the last tick. They are reported the time often, so
    that a stalled follower is noticed."""
    begins_to_await: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a leader gets uncommitted batches, and is added to `awaiting`."""


class Partition(LedPartition):
    """The leader of one partition with in-sync replicas (`commit.protocol=isr`): appends produced batches, and commits
    them by the high watermark."""

    def __init__(
        self,
        topic: str,
        partition_id: PartitionId,
        leader_epoch: int,
        log: PartitionLog,
        protocol: IsrLeader,
        config: TopicConfig,
        node_id: int,
        shared: IsrContext,
    ) -> None:
        super().__init__(topic, partition_id, leader_epoch, log, config, node_id, shared)
        self._protocol = protocol
        self._replication = shared.replication
        self._awaiting = shared.awaiting
        self._begins_to_await = shared.begins_to_await
        self._recent = RecentBatches(shared.recent)
        self._uncommitted = Uncommitted()
        self._start_requested = 0
        self._low_watermark = protocol.low_watermark

    @property
    def high_watermark(self) -> int:
        """The end offset of the records that all in-sync replicas have, as far as this leader knows."""
        return self._protocol.high_watermark

    @property
    def low_watermark(self) -> int:
        """Returns the offset below which all in-sync replicas have deleted their records, as far as this leader
        knows."""
        return self._protocol.low_watermark

    @property
    def producers(self) -> ProducerTable:
        """The producers of all batches in the log, committed or not."""
        return self.log.producers

    @property
    def appended_end(self) -> int:
        """The log end offset, uncommitted batches included."""
        return self.log.log_end_offset

    # -- produce --------------------------------------------------------------------------------------------------

    def _require_leading(self, acks: int) -> None:
        if acks == ACKS_ALL:
            self._check_in_sync()

    def _check_in_sync(self) -> None:
        # Refused before anything is appended: the producer knows for certain, and may send it elsewhere or later.
        if self._protocol.is_below_min_isr:
            raise NotEnoughReplicas(
                f"partition {self.topic}-{self.partition} has {len(self._protocol.in_sync)} replicas in sync, and "
                "acks=all needs more, or in more racks (min.insync.replicas, min.insync.racks); nothing was appended"
            )

    def _append_group(self, group: Group) -> None:
        (place,) = self._protocol.step(log_events.Propose(group.offsets))
        assert isinstance(place, log_events.Append)
        fresh = group.assign(place.base_offset, place.leader_epoch)
        if fresh:
            try:
                self.log.append(fresh, self._clock.wall_ms())
            except TidelogError as error:
                # The core has given these offsets out already, and takes them back.
                self._protocol.step(log_events.AppendRefused(place.base_offset))
                group.refuse(error)
                return
            group.count(fresh)
            # Alone, it has no follower that would ask for them.
            if len(self._protocol.in_sync) > 1:
                self._recent.add(fresh)
        for proposal in group.proposals:
            self._register(proposal)
        if fresh:
            self._awaiting[self.partition_id] = self
            self._begins_to_await.set()
            self._replication.progressed(self)  # first, as the followers' way to the disk is the longer one
            self._log_writer.submit(self, is_awaited=self.config.ack_durability == "fsynced")
        # In memory only: with `replicated` that counts at once, with `fsynced` when `Flushed` says so.
        self._execute(self._protocol.step(log_events.Appended(self.log.log_end_offset)))
        self._complete_committed()

    async def _wait_for_room(self) -> None:
        """Returns at once: uncommitted batches are in the log, and their number is not limited."""

    def _register(self, proposal: Proposal) -> None:
        proposal.appended(self.log.log_end_offset)
        if proposal.acks == ACKS_ALL:
            self._uncommitted.add(proposal)
        else:
            # With acks=1 the answer says that this leader has it, in memory: the next one may not.
            self._answer(proposal, [self._node_id], "leader")

    # -- commit ---------------------------------------------------------------------------------------------------

    def on_flushed(self) -> None:
        """Takes the log writer's report that the log was flushed further, was repaired, or has gone offline."""
        self._execute(self._protocol.step(log_events.Flushed(self.log.durable_offset)))
        self._complete_committed()
        if self.log.offline_reason is not None:
            self._uncommitted.fail(self.log.offline_reason)
        # The deletion waited for this: what is deleted has to be durable first.
        elif self._start_requested > self.log_start_offset:
            with suppress(TidelogError):  # whoever asked for it asks again
                self._delete()

    def _execute(self, effects: Sequence[isr.LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, isr.AlterPartition):
                self._replication.alter(self, effect)
                continue
            assert isinstance(effect, log_events.AdvanceHighWatermark)
            assert effect.to <= self.log.log_end_offset
            self.watchers.wake_all()
            self._replication.progressed(self)
        if self.low_watermark > self._low_watermark:
            self._low_watermark = self.low_watermark
            self.watchers.wake_all()

    def _complete_committed(self) -> None:
        for proposal in self._uncommitted.take_below(self._protocol.high_watermark):
            # A repeat may be of a batch committed before the topic asked for fsyncs: claim no more than is true.
            is_fsynced = self.config.ack_durability == "fsynced" and proposal.committed_at <= self.log.durable_offset
            durability = "fsynced" if is_fsynced else "replicated"
            self._answer(proposal, list(self._protocol.in_sync), durability)

    # -- the other replicas -----------------------------------------------------------------------------------------

    def fetched(self, report: isr.FollowerFetched) -> isr.FetchVerdict:
        """Takes a follower's fetch; returns how it is to be answered."""
        # The effects come before the verdict is carried out: the answer shows the high watermark that this fetch has
        # moved.
        verdict, effects = self._protocol.fetched(report)
        self._execute(effects)
        self._complete_committed()
        self._drop_recent()
        return verdict

    def read_for_follower(self, offset: int, bytes_max: int) -> Sequence[Buffer]:
        """Returns whole batches from `offset`, committed or not: at most `bytes_max`, but at least one; none at the
        end.

        Batches that were appended lately come from memory. Raises `OffsetOutOfRange`, `Overloaded`, or `DamagedBatch`
        if the batch that holds `offset` is damaged.
        """
        if offset >= self.log.log_end_offset or bytes_max <= 0:
            return ()
        if recent := self._recent.since(offset, bytes_max):
            return recent  # if it was given up, it is whole in memory: followers may have it, and show it no more
        self._stats.replica_log_reads += 1
        return self.log.read_filling(offset, bytes_max, self.log.log_end_offset)

    def may_repair(self, offsets: Sequence[int]) -> bool:
        """Returns True if this log has a batch at one of these offsets, and does not know its copy to be damaged."""
        start, end, damaged = self.log.log_start_offset, self.log.log_end_offset, self.log.damaged_ranges()
        held = [offset for offset in offsets if start <= offset < end]
        return any(not any(damage.start <= offset < damage.end for damage in damaged) for offset in held)

    def producers_for_follower(self) -> bytes:
        """Returns the states of idempotent producers at this log's start, as PRODUCER rows (docs/data-files.md): for a
        follower that starts over there. Raises `Overloaded`."""
        producers = self.log.producers_before(self.log.log_start_offset, self._clock.wall_ms())
        return self.log.files.codec.pack_producers(producers)

    def _drop_recent(self) -> None:
        """Drops batches from memory that all in-sync followers have."""
        ends = self._protocol.follower_ends
        self._recent.drop_below(
            # Those out of sync are served from the disk: they may be hours behind.
            min((ends[node] for node in self._protocol.in_sync if node in ends), default=self.log.log_end_offset)
        )

    def tell(self, event: isr.FollowerFlushed | isr.IsrChanged | isr.AlterPartitionAnswered | isr.Tick) -> None:
        """Takes an event of followers, the metadata, the controller or the clock. The controller's answer may come when
        another broker leads and this log is gone; then it is ignored."""
        if self._is_deposed:
            return
        before = self._protocol.in_sync
        self._execute(self._protocol.step(event))
        after = self._protocol.in_sync
        if after != before:
            dropped = [node for node in before if node not in after]
            # A follower that was put out must ask again to be heard: where nothing is written, its open question would
            # say nothing any more, and it would never join.
            self._replication.ask_anew(self, dropped)
            self._stats.isr_shrinks += len(dropped)
            self._stats.isr_expands += len([node for node in after if node not in before])
            self._drop_recent()
        self._complete_committed()

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The in-sync set of the controller, as last known here."""
        return self._protocol.in_sync

    @property
    def is_only_candidate(self) -> bool:
        """True if this leader is the only in-sync replica, no other one may have joined without its knowledge, and it
        commits alone."""
        # A replica that is asked for may be in the controller's set already, and be elected at any moment. Below
        # `min.insync.replicas` those that left the set may be elected, too (KIP-966's ELR).
        return self._protocol.maximal_isr == (self._node_id,) and not self._protocol.is_below_min_isr

    @property
    def is_at_rest(self) -> bool:
        """True while a tick would change nothing: all replicas are in sync, and everything is committed."""
        return self._protocol.is_at_rest

    @property
    def has_stalled(self) -> bool:
        """True if this leader's disk hangs while its followers keep up, so that another replica should lead."""
        return self._protocol.has_stalled

    @property
    def is_writable(self) -> bool:
        """False while fewer replicas are in sync than `min.insync.replicas` requires, so that nothing is committed."""
        return not self._protocol.is_below_min_isr

    @property
    def replica_lags(self) -> dict[int, int]:
        """Returns the number of records by which each follower is behind this log's end, as last reported."""
        end = self.log.log_end_offset
        return {node: max(0, end - reached) for node, reached in self._protocol.follower_ends.items()}

    # -- housekeeping ---------------------------------------------------------------------------------------------

    def request_deletion(self, offset: int) -> None:
        """Deletes the committed records below `offset` on this replica as soon as they are flushed; followers get the
        new log start from this leader."""
        if self._is_closing:
            raise self._refusal()
        # Records that are not committed may still be truncated, and others come to their offsets: these would be gone
        # unseen.
        assert offset <= self.high_watermark
        self._start_requested = max(self._start_requested, offset)
        self._delete()

    def _delete(self) -> None:
        """Deletes the records that are requested to be deleted, as far as they are flushed: after a power cut, the end
        of a log that begins behind its flushed part could not be found."""
        offset = min(self._start_requested, self.log.durable_offset)
        if offset > self.log_start_offset:
            # Whole segments go, so the active one is closed first if nothing in it stays.
            if offset == self.log.log_end_offset:
                self.log.roll(self._clock.wall_ms())
            before = len(self.log.segments)
            self.log.delete_records(offset)
            self._stats.deleted_segments += before - len(self.log.segments)
            self._execute(self._protocol.step(isr.RecordsDeleted(offset)))
            self.watchers.wake_all()
            # The deletion is acknowledged when the low watermark has passed, so followers have to hear of it now.
            self._replication.ask_anew(self, [*self._protocol.follower_ends])
        if self.log_start_offset < self._start_requested or self.log.is_dirty:
            self._log_writer.submit(self)

    def reconfigure(self, config: TopicConfig, settings: LogSettings) -> None:
        """Applies new topic settings, from the next request on; `ack.durability` is applied with `IsrChanged`."""
        self.config = config
        self.log.settings = settings
        self._log_writer.submit(self)  # of which somebody may wait now for the first time

    def close(self, *, is_deposed: bool = False) -> None:
        """Ends the leadership: accepts no more requests and fails those that are waiting. Appended batches may still be
        committed, by this broker, or by the next leader if it is deposed; then their producers are told that the
        outcome is unknown."""
        self._recent.clear()
        self._awaiting.pop(self.partition_id, None)
        if is_deposed:
            self._uncommitted.fail("another broker leads this partition now")
        self._end_role(is_deposed=is_deposed)
        self.watchers.wake_all()
