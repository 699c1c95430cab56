"""A partition at its leader, with any commit protocol: a queue of produce requests in front, a log behind.

Produce requests queue in the `Intake`; the partition's task takes all that wait as one `Group`, checks their producers'
sequence numbers, assigns offsets by patching the received buffers, and passes the batches to the commit protocol.
Deletions are in `deletion`, reads of committed records in `LocalCopy`. Nothing here awaits between a decision and its
effect, so effects happen in the order decided.

Everything is bounded: the queue by bytes and by requests (503, nothing appended), each wait by its deadline.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.broker.partitions.deletion import delete_below, kept_from
from tidelog.broker.partitions.intake import Group, Intake
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.mailbox import GROUP_BYTES_MAX
from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches, ReleasedBatches
from tidelog.broker.partitions.proposals import (
    ACKS_ALL,
    ACKS_NONE,
    Asker,
    ProduceReceipt,
    Proposal,
)
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import InvalidRequest, NotLeader, ShuttingDown, TidelogError
from tidelog.model.ids import PartitionId, ProducerId
from tidelog.model.names import AUDIT_TOPIC, is_internal
from tidelog.model.ports import Clock
from tidelog.model.producers import ProducerTable
from tidelog.storage.copies import Identity
from tidelog.storage.partition_log import PartitionLog


class LeaderContext(Protocol):
    """The parts of a broker that all partitions led by it share."""

    @property
    def clock(self) -> Clock: ...
    @property
    def stats(self) -> Stats: ...
    @property
    def log_writer(self) -> LogWriter: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def lease(self) -> Lease: ...


class LedPartition(ABC):
    """The leader's side of one partition, a `PartitionHandle`. `run` is its task; all methods are for the same event
    loop.

    Methods that are coroutines only because those of a handle are (`read`, `extent`, ...) return without suspending,
    except a read that waits for a repair, or for the end of the partition to be known.
    """

    group_bytes_max = GROUP_BYTES_MAX
    """Maximum bytes that are appended together, unless a single request has more."""

    def __init__(
        self,
        topic: str,
        partition_id: PartitionId,
        leader_epoch: int,
        log: PartitionLog,
        config: TopicConfig,
        node_id: int,
        context: LeaderContext,
    ) -> None:
        self.topic = topic
        self.partition_id = partition_id
        self.topic_id = partition_id.topic_id
        self.partition = partition_id.partition
        self.leader_epoch = leader_epoch
        self.log = log
        self.config = config
        self.watchers = Watchers()
        self._node_id = node_id
        self._clock = context.clock
        self._stats = context.stats
        self._log_writer = context.log_writer
        self._copy = LocalCopy(self, node_id, context.purgatory, context.stats, is_leading=True)
        self._lease = context.lease
        self._intake = Intake(topic, context.clock, context.stats)
        self._go_on = asyncio.Event()
        """Event that is cleared while appends are held back, because another broker is about to lead."""
        self._go_on.set()
        self._is_closing = False
        self._is_deposed = False
        """True if this broker's leadership ended because the metadata name another leader, not because the broker
        stops."""

    # -- what a commit protocol adds ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def high_watermark(self) -> int:
        """The offset behind the last committed record."""

    @property
    @abstractmethod
    def in_sync(self) -> Sequence[int]:
        """Node ids of the in-sync replicas (with Paxos, of the live voters), this broker included."""

    @property
    @abstractmethod
    def replica_lags(self) -> dict[int, int]:
        """Number of records that each other replica is behind this log's end, as last reported, by node id."""

    @property
    @abstractmethod
    def is_only_candidate(self) -> bool:
        """True while no other broker can be elected before this leader's lease is over, because it is the only in-sync
        replica (with Paxos, the only voter), and commits alone."""

    @property
    @abstractmethod
    def is_writable(self) -> bool:
        """False while produce requests with `acks=all` are refused."""

    @property
    @abstractmethod
    def producers(self) -> ProducerTable:
        """The producers' states against which sequence numbers of the next batches are checked."""

    @property
    @abstractmethod
    def appended_end(self) -> int:
        """The end offset of the last appended batch, committed or not; no batch that may yet be committed ends behind
        it."""

    def forget_producers(self, before_ms: int) -> None:
        """Forgets the states of producers that have sent nothing since `before_ms`."""
        self.log.producers.expire(before_ms)
        if self.producers is not self.log.producers:
            self.producers.expire(before_ms)

    @abstractmethod
    def _require_leading(self, acks: int) -> None:
        """Raises `LeaderNotAvailable`, or another definite error, if nothing can be appended with these `acks` now."""

    @abstractmethod
    def _append_group(self, group: Group) -> None:
        """Appends the batches of a group that are not duplicates, all or none, and later answers the requests."""

    @abstractmethod
    async def _wait_for_room(self) -> None:
        """Returns when the protocol has room for more appended batches."""

    @abstractmethod
    def on_flushed(self) -> None:
        """Called by the log writer when the log is durable further than before, was repaired, or has gone offline."""

    @abstractmethod
    def request_deletion(self, offset: int) -> None:
        """Begins to delete the committed records below `offset` on all replicas. Later `log_start_offset` rises when
        they are deleted here, `low_watermark` when all replicas that may lead have deleted them; watchers are woken
        then. May be repeated.

        Raises `LeaderNotAvailable`, `Overloaded`, `DiskFull` or `LogOffline`.
        """

    # -- handing over ---------------------------------------------------------------------------------------------

    def hold_back(self) -> None:
        """Stops appends until `go_on`: requests wait in the queue, each until its deadline at the latest. If the
        leadership ends meanwhile, surely nothing of them was appended."""
        self._go_on.clear()

    def go_on(self) -> None:
        """Resumes appends after `hold_back`."""
        self._go_on.set()

    @property
    def is_settled(self) -> bool:
        """True if everything appended here is committed, so that a change of the leader leaves no outcome unknown."""
        return self.high_watermark >= self.appended_end

    # -- extent ---------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """Returns the offset at or below which every next leader's log begins: records deleted below it stay
        deleted."""
        return self.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    async def extent(self) -> Extent:
        """Returns the offsets where the partition begins and ends now. Raises `NotLeader` or `LeaderNotAvailable` if
        another broker may lead by now."""
        self._require_role()
        return await self._copy.extent()

    def require_leading(self) -> None:
        """Raises `NotLeader` or `LeaderNotAvailable` unless this broker surely leads, and knows where the partition
        ends."""
        self._require_role()

    async def wait_for_end(self, deadline_s: float) -> None:
        """Returns when this leader knows where the partition ends, at the deadline (loop time), or if it will never
        know."""
        return  # who copies to others, and leads by the metadata, knows

    @property
    def is_readable(self) -> bool:
        """True until this broker's leadership ends."""
        return not self._is_closing

    @property
    def aligned_epoch(self) -> int:
        """Returns the leader epoch whose leader's log this log equals or is a prefix of (`Holder.aligned_epoch`): at
        the leader its own epoch."""
        return self.leader_epoch

    def second_copy(self, identity: Identity) -> bytes | None:
        """Returns None: a leader has no copy of a batch besides its log."""
        return None

    # -- produce --------------------------------------------------------------------------------------------------

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
        """Appends for a user; with `is_own` for a broker, to the audit topic, which all brokers write to. Raises
        `TimedOutAfterAppend` or `InternalError` if the outcome is unknown. After any other error nothing was appended:
        those that `append` names, and `InvalidRequest` if users may not write to this topic."""
        if not (is_own and self.topic == AUDIT_TOPIC):
            self._require_users("written to; nothing was appended")
        return await self.append(
            batches, acks=acks, deadline_s=deadline_s, idempotency=idempotency, expected_end=expected_end
        )

    def _require_users(self, refused: str) -> None:
        if is_internal(self.topic):
            raise InvalidRequest(f"topic {self.topic} is the brokers' own; it can be read, and not {refused}")

    async def append(
        self,
        batches: list[RecordBatch],
        *,
        acks: int,
        deadline_s: float,
        idempotency: tuple[ProducerId, int] | None = None,
        expected_end: int | None = None,
    ) -> ProduceReceipt:
        """Appends valid batches, contiguously and all or none, and waits as `acks` says (-1 all, 1 leader, 0 not).

        The batches' buffers are patched in place. `idempotency` is the producer id made from an idempotency key and the
        content's fingerprint. With `expected_end` they are appended directly behind the batch that ends there, or not
        at all; a duplicate is answered as always. `deadline_s` is in the event loop's time.

        Raises definite errors (`TooLarge`, `InvalidTimestamp`, `OutOfOrderSequence`, `ProducerFenced`,
        `IdempotencyKeyReused`, `EndOffsetMoved`, `LeaderNotAvailable`, `NotLeader`, `Overloaded`, `DiskFull`,
        `LogOffline`, `ShuttingDown`): nothing was appended; and indefinite ones (`TimedOutAfterAppend`,
        `InternalError`): the outcome is unknown.
        """
        if acks == ACKS_NONE:
            self._submit(batches, acks, deadline_s, None, idempotency, expected_end)
            return ProduceReceipt([], self.leader_epoch, [], "none")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[ProduceReceipt] = loop.create_future()
        proposal = self._submit(batches, acks, deadline_s, Awaiting(answered), idempotency, expected_end)
        timer = loop.call_at(deadline_s, proposal.expire)
        try:
            return await answered
        finally:
            timer.cancel()
            del proposal, answered  # it holds the error, whose traceback holds this frame and the batches

    def produce_nowait(
        self, batches: list[RecordBatch], *, acks: int, deadline_s: float, asker: Asker | None
    ) -> Proposal:
        """Queues a produce request without waiting for its result, which is later passed to `asker`. The caller has to
        call `Proposal.expire` at `deadline_s`. Requests are appended in the order of these calls.

        Raises, if nothing was queued: `InvalidRequest` if users may not write to this topic, `NotLeader` or
        `LeaderNotAvailable`, `TooLarge`, `InvalidTimestamp`, `UnprocessableBody`, `Overloaded`, `NotEnoughReplicas` or
        `ShuttingDown`.
        """
        self._require_users("written to; nothing was appended")
        return self._submit(batches, acks, deadline_s, asker)

    def has_room(self, size: int) -> bool:
        """Returns True if a produce request of `size` bytes would not be refused because the queue is full."""
        return self._intake.mailbox.has_room(size)

    def when_room(self, call: Callable[[], None]) -> None:
        """Calls `call` once, when the queue has more room than now, or when this broker's leadership ends."""
        self._intake.mailbox.when_room(call)

    def _submit(
        self,
        batches: list[RecordBatch],
        acks: int,
        deadline_s: float,
        asker: Asker | None,
        idempotency: tuple[ProducerId, int] | None = None,
        expected_end: int | None = None,
    ) -> Proposal:
        if self._is_closing:
            raise self._refusal()
        self._lease.require()
        self._require_leading(acks)
        return self._intake.put(batches, self.config, acks, deadline_s, idempotency, expected_end, asker)

    def _end_role(self, *, is_deposed: bool) -> None:
        """Ends this broker's leadership: refuses further requests, and fails the queued ones. Only the first call sets
        `is_deposed`."""
        if not self._is_closing:
            self._is_deposed = is_deposed
        self._is_closing = True
        self._intake.close(self._refusal())

    def _require_role(self) -> None:
        """Raises `NotLeader` if another broker leads now, and `LeaderNotAvailable` if another may lead."""
        if self._is_deposed:
            raise NotLeader(f"another broker leads partition {self.topic}-{self.partition} now; ask that one")
        self._lease.require()

    def _refusal(self) -> TidelogError:
        if self._is_deposed:
            return NotLeader("the leader of this partition is changing; nothing was appended, try again")
        return ShuttingDown("this broker is stopping; nothing was appended")

    async def fingerprint_of(self, producer_id: ProducerId) -> int | None:
        """Returns the fingerprint of the content of the request that was appended under an idempotency key; None if
        none was. `producer_id` is the one made from the key."""
        return self.producers.first_sequence(producer_id)

    async def run(self) -> None:
        """Appends the queued requests, group by group, until cancelled: the partition's task."""
        intake, mailbox = self._intake, self._intake.mailbox
        while True:
            await mailbox.wait_for_mail()
            while mailbox:
                await self._wait_for_turn()
                self._append_group(intake.take(self.producers, self.appended_end, self.group_bytes_max))
                await asyncio.sleep(0)

    async def _wait_for_turn(self) -> None:
        """Returns when more may be appended: the protocol has room, and appends are not held back. No other task runs
        before the caller continues."""
        await self._wait_for_room()
        while not self._go_on.is_set():
            await self._go_on.wait()
            await self._wait_for_room()

    def _answer(self, proposal: Proposal, acked_by: list[int], durability: str) -> None:
        if proposal.acks == ACKS_ALL:
            self._stats.stages.produce_replicate.observe(self._clock.monotonic_s() - proposal.since_s)
        append_time_ms = proposal.log_append_time_ms
        proposal.complete(ProduceReceipt(proposal.placements, self.leader_epoch, acked_by, durability, append_time_ms))

    # -- deletion -------------------------------------------------------------------------------------------------

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Deletes the committed records below `offset` for a user (Kafka's DeleteRecords). Raises `InvalidRequest` if
        users may not write to this topic, `OffsetOutOfRange` beyond the high watermark, `TimedOutAfterAppend` at the
        deadline (they may be deleted yet), `LeaderNotAvailable`, `Overloaded`, `DiskFull` or `LogOffline`."""
        self._require_users("deleted from; nothing was deleted")
        await self.delete_below(offset, deadline_s=deadline_s)

    async def delete_below(self, offset: int, *, deadline_s: float) -> None:
        """Deletes the committed records below `offset`; returns when the log of any broker that may lead next begins at
        `offset` or later. `deadline_s` is in the event loop's time.

        Raises `LeaderNotAvailable` if another broker may lead, `OffsetOutOfRange` beyond the high watermark,
        `TimedOutAfterAppend` at the deadline (they may be deleted yet), or `Overloaded`, `DiskFull` or `LogOffline`.
        """
        self._lease.require()
        await delete_below(self, offset, deadline_s)

    def apply_retention(self, now_ms: int) -> None:
        """Begins to delete the segments that the topic's retention no longer keeps. Raises `LeaderNotAvailable`,
        `Overloaded`, `DiskFull` or `LogOffline`."""
        keep_from = kept_from(self, now_ms)
        if keep_from > self.log_start_offset:
            self.request_deletion(keep_from)

    # -- read -----------------------------------------------------------------------------------------------------

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Reads committed batches, as `LocalCopy.read` does. Raises also `NotLeader` or `LeaderNotAvailable` if another
        broker may lead by now."""
        self._require_role()
        fetched = await self._copy.read(offset, bytes_max=bytes_max)
        self._lease.require()
        return fetched

    def read_nowait(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Reads committed batches without waiting, as `LocalCopy.read_nowait` does. Raises also `NotLeader` or
        `LeaderNotAvailable` if another broker may lead by now."""
        self._require_role()
        fetched = self._copy.read_nowait(offset, bytes_max=bytes_max)
        self._lease.require()
        return fetched

    def released(self) -> Sequence[ReleasedBatches]:
        """Returns the batches above the high watermark that are released, in the order of their offsets. Watchers are
        woken when there are more."""
        return ()  # a protocol that commits in total order has none

    def bytes_ready(self, offset: int, bytes_max: int) -> int:
        """Returns how many committed bytes a read at `offset` would find, up to `bytes_max`; `bytes_max` if it would
        raise an error."""
        return self._copy.bytes_ready(offset, bytes_max)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Returns the newest leader epoch up to `leader_epoch` in this log, and its end offset (Kafka's
        OffsetForLeaderEpoch); (-1, -1) if there is none. Raises `NotLeader` or `LeaderNotAvailable` if another broker
        may lead by now, or if this one does not know yet where the partition ends."""
        self._require_role()
        lineage = self.log.lineage
        if leader_epoch >= self.leader_epoch:
            return self.leader_epoch, self.log_end_offset
        epochs = [epoch for epoch, _ in lineage if epoch <= leader_epoch]
        if not epochs:
            return -1, -1
        ends = [start for epoch, start in lineage if epoch > leader_epoch]
        return epochs[-1], ends[0] if ends else self.log_end_offset

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Returns when `bytes_min` committed bytes lie behind `offset`, or at the deadline (event loop time). Raises
        `Overloaded` if too many reads wait already."""
        await self._copy.wait_for_data(offset, bytes_min=bytes_min, deadline_s=deadline_s)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the first committed record of that timestamp (ms) or later; None if there is
        none.

        Raises `DamagedBatch`, and `NotLeader` or `LeaderNotAvailable` if another broker may lead by now.
        """
        self._require_role()
        return await self._copy.offset_for_timestamp(timestamp_ms)

    async def newest_record(self) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the committed record with the highest timestamp, the first of several; None if
        there is none, or if the highest timestamp in the log is of a record that is not committed. Raises
        `DamagedBatch`, and `NotLeader` or `LeaderNotAvailable` if another broker may lead by now."""
        newest = max((segment.max_timestamp for segment in self.log.segments), default=-1)
        return await self.offset_for_timestamp(newest) if newest >= 0 else None


class Awaiting:
    """An `Asker` that resolves a future, for a coroutine that awaits the result of its produce request."""

    __slots__ = ("_done",)

    def __init__(self, done: asyncio.Future[ProduceReceipt]) -> None:
        self._done = done

    @property
    def is_gone(self) -> bool:
        """True once the future is resolved or cancelled."""
        return self._done.done()

    def hear(self, outcome: ProduceReceipt | TidelogError) -> None:
        """Resolves the future with the receipt or the error, if its coroutine still waits."""
        if self._done.done():
            return
        if isinstance(outcome, TidelogError):
            self._done.set_exception(outcome)
        else:
            self._done.set_result(outcome)
