"""The leader of a Paxos partition.

The produce requests that `LedPartition` has gathered become one value of the log: their batches get consecutive offsets
from the coordinator's next offset on, and are proposed (`proposing`). Several values may be in flight, each chosen by
itself; while the window is full, further requests are gathered.

    acks=all    answered when the value is applied: a majority holds it, and all values before it, on disk or, with
                ack.durability=replicated, in memory
    acks=1      answered when it is in this broker's journal, which may not be flushed yet

In a topic whose order is not total, acks=all is answered when the value is *released*: a majority holds it, and the
values before it with which it conflicts. Its batches can then be read by readers that ask for them, above the high
watermark.

**Repeated batches** are found on arrival: `producers` knows the applied batches and those in flight. They are not
checked again when applied, since the log's contents would then depend on tables with an expiry.

**Errors** are definite if nothing was proposed, and if another value is applied at the position. A leader that has lost
its term answers waiting requests as the log decides, or with an unknown outcome at their deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals
from tidelog.broker.partitions.intake import Group
from tidelog.broker.partitions.led_partition import LeaderContext, LedPartition
from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches, ReleasedBatches
from tidelog.broker.partitions.proposals import ACKS_ALL, Proposal
from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.proposing import Proposer, is_full
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import LeaderNotAvailable, TidelogError, TimedOutAfterAppend
from tidelog.model.ids import PartitionId
from tidelog.model.producers import ProducerTable
from tidelog.replication.paxos.events import Applied
from tidelog.storage.partition_log import LogSettings

VALUE_BYTES_MAX = 1 << 20
"""Bytes of batches up to which several produce requests are put into one value."""
END_S_MAX = 2.0
"""Seconds that a read beyond the known end waits for the election of this leader."""


class PaxosPartition(LedPartition):
    """The leader of a partition for one leader epoch. It is created when the metadata name this broker, and serves once
    a majority has elected it."""

    group_bytes_max = VALUE_BYTES_MAX

    def __init__(
        self,
        topic: str,
        partition_id: PartitionId,
        leader_epoch: int,
        applied: AppliedLog,
        proposer: Proposer,
        config: TopicConfig,
        node_id: int,
        shared: LeaderContext,
    ) -> None:
        super().__init__(topic, partition_id, leader_epoch, applied.log, config, node_id, shared)
        self.watchers = applied.watchers
        self._applied = applied
        self._proposer = proposer
        self._in_flight = InFlightProposals[Proposal]()
        self._producers = applied.log.producers
        self._next_offset = self._appended_end = 0
        self._deletion: int | None = None
        """Position of a proposed DELETE that is not applied yet; None if there is none."""
        self._is_serving = False
        self._is_held = True
        self._room = asyncio.Event()

    @property
    def high_watermark(self) -> int:
        """End offset of the applied batches on this broker."""
        return self._applied.high_watermark

    async def extent(self) -> Extent:
        """Returns the start and end offset of the partition. Raises `LeaderNotAvailable` before the election, when more
        may be acknowledged than is known here (KIP-207), and `NotLeader` or `LeaderNotAvailable` if another broker may
        lead by now."""
        self._require_end()
        return await super().extent()

    def require_leading(self) -> None:
        """Raises `LeaderNotAvailable` unless this leader is elected, and `NotLeader` if another broker leads now."""
        self._require_end()

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns batches from `offset` on, none yet for an offset that is in flight. Offsets below the high watermark
        are read even before the election; for others it waits up to `END_S_MAX` seconds to be elected."""
        if offset > self.high_watermark:
            await self.wait_for_end(asyncio.get_running_loop().time() + END_S_MAX)
        if self._is_in_flight(offset):
            return self._nothing_yet(offset)
        return await super().read(offset, bytes_max=bytes_max)

    def read_nowait(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Returns batches from `offset` on without waiting, none yet for an offset that is in flight. Offsets below the
        high watermark are read even before the election; for others it raises `LeaderNotAvailable` then."""
        if self._is_in_flight(offset):
            return self._nothing_yet(offset)
        return super().read_nowait(offset, bytes_max=bytes_max)

    def _is_in_flight(self, offset: int) -> bool:
        """Returns True for an offset above the high watermark that is given out: acknowledged perhaps, by a release or
        with acks=1, but not yet to be read. Raises `NotLeader` or `LeaderNotAvailable` as `require_leading`."""
        if offset <= self.high_watermark:
            return False
        self._require_end()
        return offset <= self._appended_end

    def _nothing_yet(self, offset: int) -> FetchedBatches:
        self._lease.require()
        log, end = self.log, self.high_watermark
        return FetchedBatches(
            b"", offset, log.log_start_offset, end, log.log_end_offset, self.leader_epoch, self._node_id
        )

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Returns the newest leader epoch up to `leader_epoch` in this log, and its end offset; (-1, -1) if there is
        none. Raises `LeaderNotAvailable` before the election, and `NotLeader` or `LeaderNotAvailable` if another broker
        may lead by now."""
        self._require_end()
        return super().end_of_epoch(leader_epoch)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns offset and timestamp of the first record at this time or later; None if there is none. Raises
        `LeaderNotAvailable` where the answer would be None before the election."""
        offset_and_time = await super().offset_for_timestamp(timestamp_ms)
        if offset_and_time is None:
            self._require_end()
        return offset_and_time

    async def wait_for_end(self, deadline_s: float) -> None:
        """Waits until this leader is elected, or stopped, at most until `deadline_s` of the event loop's clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                while self._is_held:
                    self._room.clear()
                    await self._room.wait()

    def _require_end(self) -> None:
        self._require_role()
        if not self._is_serving:
            raise LeaderNotAvailable(
                f"this broker does not know yet where partition {self.topic}-{self.partition} ends: it is not elected"
            )

    @property
    def producers(self) -> ProducerTable:
        """The sequence numbers of producers, including batches in flight while this leader may append."""
        # The leader's own table has the batches in flight, too, so that a repeat of one is known before it is applied.
        return self._producers if self.is_writable else self.log.producers

    @property
    def in_sync(self) -> Sequence[int]:
        """Node ids of the live voters. A commit waits for a majority of all voters only."""
        return self._proposer.live_voters

    @property
    def replica_lags(self) -> dict[int, int]:
        """Number of records that each replica's log lacks, by node id."""
        return self._proposer.lags()

    @property
    def is_only_candidate(self) -> bool:
        """True of an elected leader that is the only voter."""
        return self._is_serving and self._proposer.is_only_voter

    @property
    def is_writable(self) -> bool:
        """True of a leader that is elected, or may be at any moment."""
        return self._is_serving or self._is_held

    @property
    def appended_end(self) -> int:
        """End offset of the batches that are applied or in flight. A void value (chosen, but without effect) may leave
        a gap in the offsets before the next batch."""
        return self._appended_end if self._is_serving or self._is_held else self.log.log_end_offset

    @property
    def is_serving(self) -> bool:
        """True from the election on until the term ends."""
        return self._is_serving

    @property
    def is_settled(self) -> bool:
        """True if no value is in flight. The offsets need not be contiguous: a void value (chosen, but without effect)
        leaves a gap."""
        return not self._in_flight

    @property
    def is_awaited(self) -> bool:
        """True while a produce request waits for a value that this leader proposed."""
        return self._in_flight.is_awaited

    # -- what the replica beside it says ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins to serve: this broker is elected, and all values before its barrier (the first value of its term) are
        applied here."""
        # The barrier of this leader is applied, so the log's table knows all that counts of what came before; whatever
        # an earlier leader still has on its way is void. A copy, for batches in flight are remembered here before they
        # are in the log, and the log's table must not know of one that is never chosen.
        self._producers = ProducerTable(self.log.settings.producers_max)
        self._producers.restore((producer_id, replace(state)) for producer_id, state in self.log.producers.items())
        self._appended_end = self.log.log_end_offset
        self._is_serving, self._is_held = True, False
        self._deletion = None
        self._room.set()
        self.watchers.wake_all()

    def hold(self) -> None:
        """Makes new produce requests wait in the queue, as this broker will be elected again in a moment."""
        # A leader that has stopped stays so: it has refused its requests already.
        self._is_held = self._is_held or self._is_serving
        self._is_serving = False

    def stop(self) -> None:
        """Stops serving, as the term is over. Values in flight may still be chosen."""
        self._is_serving = self._is_held = False
        self._room.set()

    def chosen(self, position: int, accepted_by: tuple[int, ...]) -> None:
        """Notes the voters that have accepted a chosen value, on disk or, if the value is lazy, in memory."""
        self._in_flight.chosen(position, accepted_by)
        self._room.set()

    def release(self, position: int) -> None:
        """Answers the requests for a chosen value that conflicts with nothing that is still open below it
        (`replication.paxos.releases`), and shows its batches to readers that need no total order."""
        in_flight = self._in_flight.get(position)
        if in_flight is not None:
            in_flight.is_released = True
            self._complete_all(in_flight)
            self.watchers.wake_all()

    def applied(self, applied: Applied) -> None:
        """Answers the requests for the value at the next position, which is applied and in the log here."""
        # Chosen or void, it is on its way no more.
        if applied.position == self._deletion:
            self._deletion = None
            self.watchers.wake_all()
        in_flight = self._in_flight.take(applied.position)
        if in_flight is None:
            return
        self._room.set()
        # The position is decided. Another value there, or a void one, is a certain no: ours was proposed nowhere else.
        if in_flight.is_in_log(applied):
            self._complete_all(in_flight)
        else:
            # Memory alone is no disk: what was chosen there can be lost, released or not.
            is_lost = in_flight.is_released and in_flight.durability == "fsynced"
            assert not is_lost, "a released value is never void"
            in_flight.fail(LeaderNotAvailable("another leader came first; nothing was appended"))

    def _complete_all(self, in_flight: InFlightProposal[Proposal]) -> None:
        for proposal in in_flight.take_waiters():
            self._complete(proposal, in_flight)

    def _complete(self, proposal: Proposal, in_flight: InFlightProposal[Proposal] | None) -> None:
        """Answers a produce request with the brokers that hold its batch: the quorum, or only this broker for a repeat
        whose quorum is not known any more."""
        if in_flight is not None and in_flight.accepted_by:
            acked_by = self._proposer.nodes_of(in_flight.accepted_by)
            self._answer(proposal, acked_by, in_flight.durability)
            return
        # Who accepted it is not known any more, so no more is claimed than this disk shows.
        is_durable = proposal.committed_at <= self.log.durable_offset
        self._answer(proposal, [self._node_id], "fsynced" if is_durable else "replicated")

    # -- what a commit protocol adds ----------------------------------------------------------------------------------

    def _require_leading(self, acks: int) -> None:
        if not self.is_writable:
            raise LeaderNotAvailable(
                f"this broker is not elected the leader of partition {self.topic}-{self.partition} by a majority of "
                "its replicas; nothing was appended"
            )

    async def _wait_for_room(self) -> None:
        # Requests wait here for a window, or for the election, in their order.
        while self._is_held or (self._is_serving and is_full(self._in_flight, self.config)):
            self._room.clear()
            await self._room.wait()

    def _append_group(self, group: Group) -> None:
        if not group.proposals:
            return
        try:
            self._require_leading(ACKS_ALL)
            # Read in the same turn of the event loop as the proposal: the digest covers the offsets, so they cannot
            # change later.
            base_offset = self._proposer.next_offset()
            self._next_offset = base_offset + group.offsets
            fresh = group.assign(base_offset, self.leader_epoch)
            if fresh:
                self._in_flight.add(*self._proposer.propose(fresh, self.config))
                self._appended_end = self._next_offset
                group.count(fresh)
                # Before it is applied: a repeat that comes meanwhile has to wait with the original. A batch counts only
                # behind all that this leader proposed before it (`replication.paxos.apply`), so what it was judged by
                # is there when it is applied.
                self._remember(fresh)
        except TidelogError as error:
            group.refuse(error)
            return
        for proposal in group.proposals:
            self._register(proposal)

    def _remember(self, fresh: list[RecordBatch]) -> None:
        now_ms = self._clock.wall_ms()
        for batch in fresh:
            header = batch.header
            if header.producer_id >= 0:
                self._producers.remember(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.record_count,
                    header.base_offset,
                    now_ms,
                )

    def _register(self, proposal: Proposal) -> None:
        proposal.appended(self._next_offset)
        if proposal.acks != ACKS_ALL:
            self._answer(proposal, [self._node_id], "leader")
        # A repeat of a batch that is applied already.
        elif proposal.committed_at <= self.high_watermark:
            self._complete(proposal, None)
        else:
            # A repeat of a batch in flight has the original's end offset, and is answered with it.
            in_flight = self._in_flight.reaching(proposal.committed_at)
            assert in_flight is not None, "what is not applied is on its way"
            in_flight.waiters.append(proposal)
            if in_flight.is_released:
                self._complete_all(in_flight)

    # -- reading past holes --------------------------------------------------------------------------------------------

    def released(self) -> Sequence[ReleasedBatches]:
        """Returns the released batches above the high watermark, in order of their offsets."""
        return [
            ReleasedBatches(
                proposal.value.base_offset,
                proposal.end_offset,
                partial(self._proposer.payload_of, position, proposal.value),
            )
            for position, proposal in self._in_flight.released()
        ]

    # -- deletion ------------------------------------------------------------------------------------------------------

    def request_deletion(self, offset: int) -> None:
        """Proposes to delete the records below `offset`, one proposal at a time; does nothing if an applied DELETE
        already covers them. Raises `LeaderNotAvailable`."""
        self._require_leading(ACKS_ALL)
        # One DELETE at a time: it goes besides the producers' window, and the next one covers what was asked meanwhile.
        if self._is_held or self._deletion is not None or offset <= self._applied.start_offset:
            return
        self._deletion = self._proposer.propose_deletion(offset)

    # -- housekeeping --------------------------------------------------------------------------------------------------

    def on_flushed(self) -> None:
        """Handles the log writer's report that the log is durable further."""
        self._applied.on_flushed()

    def reconfigure(self, config: TopicConfig, settings: LogSettings) -> None:
        """Sets new topic settings, which apply from the next request on."""
        self.config = config
        self.log.settings = settings

    def close(self, *, is_deposed: bool = False) -> None:
        """Takes no more requests and fails those in the queue. Values in flight may still be chosen: if `is_deposed`,
        the log still answers their requests; else those fail at once with an unknown outcome."""
        self.stop()
        # A deposed leader's values may still be chosen, and its log will tell; a broker that stops hears no more of
        # them.
        if not is_deposed:
            self._in_flight.fail(TimedOutAfterAppend("proposed, but this broker is stopping: the outcome is unknown"))
        self._end_role(is_deposed=is_deposed)
        self.watchers.wake_all()
