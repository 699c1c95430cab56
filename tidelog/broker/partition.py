"""One partition on its leader: a mailbox, a commit protocol, a log.

Produce requests queue in the mailbox; the partition's task takes all that wait, asks the protocol for their offsets,
patches these into the received buffers, and appends the lot with one write per file. The log writer makes it durable
and calls `committed`; the protocol turns that into a new high watermark, which completes waiting producers and wakes
waiting consumers. Nothing here awaits between a decision and its effect, so effects happen in the order decided.

Everything is bounded: the mailbox by bytes and by requests (503, nothing appended), each wait by its deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.broker.lease import Lease
from tidelog.broker.local_copy import LocalCopy
from tidelog.broker.log_writer import LogWriter
from tidelog.broker.mailbox import Mailbox
from tidelog.broker.partition_handle import Extent, FetchedBatches
from tidelog.broker.proposals import (
    ACKS_ALL,
    ACKS_NONE,
    Placement,
    ProduceReceipt,
    Proposal,
    admit_batches,
    stamp_keyed,
)
from tidelog.broker.purgatory import Purgatory, Watchers
from tidelog.broker.recent_batches import RecentBatches, RecentBytes
from tidelog.broker.stats import Stats
from tidelog.broker.uncommitted import Uncommitted
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch, assign_offsets
from tidelog.model.errors import (
    LeaderNotAvailable,
    Overloaded,
    ShuttingDown,
    TidelogError,
)
from tidelog.model.ids import PartitionId, ProducerId
from tidelog.model.ports import Buffer, Clock
from tidelog.replication.isr.events import (
    AlterPartition,
    AlterPartitionAnswered,
    FetchVerdict,
    FollowerFetched,
    FollowerSynced,
    IsrChanged,
    LeaderEffect,
    PrefixDeleted,
    Tick,
)
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.protocol import (
    AdvanceHighWatermark,
    Append,
    Appended,
    AppendRefused,
    DurabilityChanged,
    Propose,
    Synced,
)
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.retention import retained_from


class Replication(Protocol):
    """What a leader has its broker do about the other replicas."""

    def progressed(self, partition: Partition) -> None:
        """The log has grown, or its high watermark has moved: followers that wait may be served."""
        ...

    def ask_anew(self, partition: Partition, nodes: Sequence[int]) -> None:
        """What these followers have said of their logs counts no more: they have to say it again."""
        ...

    def alter(self, partition: Partition, effect: AlterPartition) -> None:
        """Asks the controller; `Partition.altered` is told once what became of it."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of a broker share."""

    clock: Clock
    stats: Stats
    log_writer: LogWriter
    purgatory: Purgatory
    replication: Replication
    lease: Lease
    recent: RecentBytes = field(default_factory=RecentBytes)


class Partition:
    """The leader's side of one partition, a `PartitionHandle`. `run` is its task; all else is for the same event loop.

    Methods that are coroutines only because a handle's are (`read`, `extent`, ...) never give the loop away, but for a
    read of what is damaged.
    """

    def __init__(
        self,
        topic: str,
        partition_id: PartitionId,
        leader_epoch: int,
        log: PartitionLog,
        protocol: IsrLeader,
        config: TopicConfig,
        node_id: int,
        surroundings: Surroundings,
    ) -> None:
        self.topic = topic
        self.partition_id = partition_id
        self.topic_id = partition_id.topic_id
        self.partition = partition_id.partition
        self.leader_epoch = leader_epoch
        self.log = log
        self.config = config
        self.watchers = Watchers()
        self._protocol = protocol
        self._node_id = node_id
        self._clock = surroundings.clock
        self._stats = surroundings.stats
        self._log_writer = surroundings.log_writer
        self._copy = LocalCopy(self, node_id, surroundings.purgatory, surroundings.stats)
        self._replication = surroundings.replication
        self._lease = surroundings.lease
        self._recent = RecentBatches(surroundings.recent)
        self._mailbox = Mailbox()
        self._uncommitted = Uncommitted()
        self._is_closing = False
        self._is_deposed = False

    # -- extent ---------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._protocol.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    async def extent(self) -> Extent:
        """Where the partition begins and ends now. Raises `LeaderNotAvailable` if this broker may lead no more."""
        self._lease.require()
        return await self._copy.extent()

    # -- produce --------------------------------------------------------------------------------------------------

    async def produce(
        self,
        batches: list[RecordBatch],
        *,
        acks: int,
        deadline_s: float,
        idempotency: tuple[ProducerId, int] | None = None,
    ) -> ProduceReceipt:
        """Appends sound batches, contiguously and all or none, and waits as `acks` says (-1 all, 1 leader, 0 not).

        The batches' buffers are patched in place. `idempotency` is the producer id made from an idempotency key and the
        content's fingerprint. `deadline_s` is in the event loop's time.

        Raises definite errors (`TooLarge`, `InvalidTimestamp`, `OutOfOrderSequence`, `ProducerFenced`,
        `IdempotencyKeyReused`, `LeaderNotAvailable`, `Overloaded`, `DiskFull`, `LogOffline`, `ShuttingDown`): nothing
        was appended; and indefinite ones (`TimedOutAfterAppend`, `InternalError`): the outcome is unknown.
        """
        proposal = self._prepare(batches, acks, deadline_s, idempotency)
        self._enqueue(proposal)
        if proposal.done is None:
            return ProduceReceipt([], self.leader_epoch, [], "none")
        timer = asyncio.get_running_loop().call_at(deadline_s, proposal.expire)
        try:
            return await proposal.done
        finally:
            timer.cancel()

    def _prepare(
        self, batches: list[RecordBatch], acks: int, deadline_s: float, idempotency: tuple[ProducerId, int] | None
    ) -> Proposal:
        if self._is_closing:
            raise ShuttingDown("this broker is stopping; nothing was appended")
        self._lease.require()
        if acks == ACKS_ALL:
            self._check_in_sync()
        batches, append_time_ms = admit_batches(batches, self.config, self._clock.wall_ms())
        if idempotency is not None:
            batches = stamp_keyed(batches, *idempotency)
        done = asyncio.get_running_loop().create_future() if acks != ACKS_NONE else None
        return Proposal(batches, acks, deadline_s, done, append_time_ms)

    def _check_in_sync(self) -> None:
        if self._protocol.is_below_min_isr:
            raise LeaderNotAvailable(
                f"partition {self.topic}-{self.partition} has {len(self._protocol.in_sync)} replicas in sync, and "
                "acks=all needs more (min.insync.replicas); nothing was appended"
            )

    def _enqueue(self, proposal: Proposal) -> None:
        try:
            self._mailbox.put(proposal)
        except Overloaded:
            self._stats.refused_appends += 1
            raise

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """The fingerprint of what came under an idempotency key, by the id made from it; None if nothing did."""
        return self.log.producers.first_sequence(producer_id)

    async def run(self) -> None:
        """The partition's task: appends whatever is in the mailbox, until cancelled."""
        while True:
            await self._mailbox.wait_for_mail()
            while self._mailbox:
                group = [proposal for proposal in self._mailbox.take_group() if self._is_admitted(proposal)]
                self._append_group(group)
                await asyncio.sleep(0)

    def _is_admitted(self, proposal: Proposal) -> bool:
        if proposal.is_abandoned:
            return False
        try:
            if asyncio.get_running_loop().time() >= proposal.deadline_s:
                raise proposal.late()
            proposal.judge(self.log.producers)
        except TidelogError as error:
            self._stats.refused_appends += 1
            proposal.fail(error)
            return False
        return True

    def _append_group(self, group: list[Proposal]) -> None:
        base_offset = self.log.log_end_offset
        fresh: list[RecordBatch] = []
        for proposal in group:
            for batch, verdict in zip(proposal.batches, proposal.verdicts, strict=True):
                if verdict is None:
                    placed = self._place(batch)
                    fresh.append(placed)
                    proposal.placements.append((placed.header.base_offset, placed.header.last_offset))
                else:
                    self._stats.duplicate_batches += 1
                    proposal.placements.append(verdict)
        if fresh:
            try:
                self.log.append(fresh, self._clock.wall_ms())
            except TidelogError as error:
                self._protocol.step(AppendRefused(base_offset))
                self._refuse(group, error)
                return
            self._count(fresh)
            if len(self._protocol.in_sync) > 1:
                self._recent.add(fresh)
        for proposal in group:
            self._register(proposal)
        if fresh:
            self._replication.progressed(self)  # first, as the followers' way to the disk is the longer one
            self._log_writer.submit(self, is_awaited=self.config.ack_durability == "fsynced")
        self._execute(self._protocol.step(Appended(self.log.log_end_offset)))
        self._complete_committed()

    def _place(self, batch: RecordBatch) -> RecordBatch:
        (effect,) = self._protocol.step(Propose(batch.header.last_offset_delta + 1))
        assert isinstance(effect, Append)
        return assign_offsets(batch, effect.base_offset, effect.leader_epoch)

    def _refuse(self, group: list[Proposal], error: TidelogError) -> None:
        self._stats.refused_appends += len(group)
        for proposal in group:
            proposal.fail(error)

    def _count(self, fresh: list[RecordBatch]) -> None:
        self._stats.append_writes += 1
        self._stats.appended_batches += len(fresh)
        self._stats.appended_records += sum(batch.header.record_count for batch in fresh)
        self._stats.appended_bytes += sum(batch.header.size for batch in fresh)

    def _register(self, proposal: Proposal) -> None:
        proposal.appended(self.log.log_end_offset)
        if proposal.acks == ACKS_ALL:
            self._uncommitted.add(proposal)
        else:
            proposal.complete(self._receipt(proposal, [self._node_id], "leader"))

    def _receipt(self, proposal: Proposal, acked_by: list[int], durability: str) -> ProduceReceipt:
        placements: list[Placement] = [(base, last) for base, last in proposal.placements]
        return ProduceReceipt(placements, self.leader_epoch, acked_by, durability, proposal.log_append_time_ms)

    # -- commit ---------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """The log writer's report: the log is durable further than before, or has gone offline."""
        self._execute(self._protocol.step(Synced(self.log.durable_offset)))
        self._complete_committed()
        if self.log.offline_reason is not None:
            self._uncommitted.fail(self.log.offline_reason)

    def _execute(self, effects: Sequence[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, AlterPartition):
                self._replication.alter(self, effect)
                continue
            assert isinstance(effect, AdvanceHighWatermark)
            assert effect.to <= self.log.log_end_offset
            self.watchers.wake_all()
            self._replication.progressed(self)

    def _complete_committed(self) -> None:
        for proposal in self._uncommitted.take_below(self._protocol.high_watermark):
            # A repeat may be of a batch committed before the topic asked for fsyncs: claim no more than is true.
            is_fsynced = self.config.ack_durability == "fsynced" and proposal.committed_at <= self.log.durable_offset
            durability = "fsynced" if is_fsynced else "replicated"
            proposal.complete(self._receipt(proposal, list(self._protocol.in_sync), durability))

    # -- the other replicas -----------------------------------------------------------------------------------------

    def fetched(self, report: FollowerFetched) -> FetchVerdict:
        """A follower asks for what follows; what it is to be answered."""
        verdict, effects = self._protocol.fetched(report)
        self._execute(effects)
        self._complete_committed()
        self._drop_recent()
        return verdict

    def read_for_follower(self, offset: int, bytes_max: int) -> Sequence[Buffer]:
        """Whole batches from `offset`, committed or not: at most `bytes_max`, but at least one; none at the end.

        From memory, if they were appended lately. Raises as `PartitionLog.read`.
        """
        if offset >= self.log.log_end_offset or bytes_max <= 0:
            return ()
        if recent := self._recent.since(offset, bytes_max):
            return recent
        self._stats.replica_log_reads += 1
        return (self.log.read(offset, bytes_max, self.log.log_end_offset).data,)

    def _drop_recent(self) -> None:
        """Of what is in memory, what all followers in sync have."""
        ends = self._protocol.follower_ends
        self._recent.drop_below(
            min((ends[node] for node in self._protocol.in_sync if node in ends), default=self.log.log_end_offset)
        )

    def tell(self, event: FollowerSynced | IsrChanged | AlterPartitionAnswered | Tick) -> None:
        """What followers, the metadata, the controller and the clock have to say. An answer of the controller may come
        when somebody else leads, and this log may be gone: then it means nothing any more."""
        if self._is_deposed:
            return
        before = self._protocol.in_sync
        self._execute(self._protocol.step(event))
        after = self._protocol.in_sync
        if after != before:
            dropped = [node for node in before if node not in after]
            self._replication.ask_anew(self, dropped)
            self._stats.isr_shrinks += len(dropped)
            self._stats.isr_expands += len([node for node in after if node not in before])
            self._drop_recent()
        self._complete_committed()

    @property
    def is_readable(self) -> bool:
        """Until the role ends."""
        return not self._is_closing

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The in-sync set, as the controller was last heard to have it."""
        return self._protocol.in_sync

    @property
    def is_below_min_isr(self) -> bool:
        """Nothing is committed now, and `acks=all` is refused."""
        return self._protocol.is_below_min_isr

    @property
    def replica_lags(self) -> dict[int, int]:
        """How many records each other replica is behind this log's end, as far as it was heard."""
        end = self.log.log_end_offset
        return {node: max(0, end - reached) for node, reached in self._protocol.follower_ends.items()}

    # -- read -----------------------------------------------------------------------------------------------------

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """As `LocalCopy.read`. Raises `LeaderNotAvailable` if another may lead by now."""
        self._lease.require()
        fetched = await self._copy.read(offset, bytes_max=bytes_max)
        self._lease.require()
        return fetched

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """As `LocalCopy.wait_for_data`."""
        await self._copy.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """As `LocalCopy.offset_for_timestamp`. Raises `LeaderNotAvailable` if another may lead by now."""
        self._lease.require()
        return await self._copy.offset_for_timestamp(timestamp_ms)

    # -- housekeeping ---------------------------------------------------------------------------------------------

    def delete_prefix(self, offset: int) -> None:
        """Lets go of committed records below `offset` (DeleteRecords). Raises as `PartitionLog.delete_prefix`."""
        assert offset <= self.high_watermark
        before = len(self.log.segments)
        self.log.delete_prefix(offset)
        self._stats.deleted_segments += before - len(self.log.segments)
        self._execute(self._protocol.step(PrefixDeleted(offset)))
        self._log_writer.submit(self)

    def apply_retention(self, now_ms: int) -> None:
        """Deletes the segments that the topic's retention no longer keeps. Raises as `delete_prefix`."""
        if self.config.cleanup_policy != "delete":
            return
        keep_from = retained_from(
            [segment.summary() for segment in self.log.segments],
            now_ms=now_ms,
            retention_ms=self.config.retention_ms,
            retention_bytes=self.config.retention_bytes,
            high_watermark=min(self.high_watermark, self.log.durable_offset),
        )
        if keep_from <= self.log_start_offset:
            return
        if keep_from == self.log.log_end_offset:
            self.log.roll(now_ms)
        self.delete_prefix(keep_from)

    def reconfigure(self, config: TopicConfig, settings: LogSettings) -> None:
        """Takes new topic settings into force, from the next request on."""
        self.config = config
        self.log.settings = settings
        self._execute(self._protocol.step(DurabilityChanged(config.ack_durability == "fsynced")))
        self._log_writer.submit(self)  # of which somebody may wait now for the first time

    def close(self, *, is_deposed: bool = False) -> None:
        """Takes no more requests and fails those in the mailbox. What is appended may still be committed: by this
        broker, or, if it is deposed, by whoever leads now; then it cannot say, and says so."""
        self._is_closing = True
        self._is_deposed = is_deposed
        self._recent.clear()
        if is_deposed:
            self._uncommitted.fail("another broker leads this partition now")
        while group := self._mailbox.take_group():
            for proposal in group:
                proposal.fail(ShuttingDown("this broker is stopping; nothing was appended"))
        self.watchers.wake_all()
