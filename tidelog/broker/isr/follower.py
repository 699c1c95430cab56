"""The follower of one partition: its log, and the state machine that keeps it equal to the leader's.

The fetcher for the leader's broker calls `ask` for the next fetch and passes the answers; the log writer reports
flushes. Only a truncation is awaited, and nothing is fetched during it. While the partition has no leader there is no
fetcher, and only repairs change the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from tidelog.broker.isr.replica_messages import FetchStatus, FollowerState, PartitionFetched
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import InvalidBatch, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Clock
from tidelog.model.producers import ProducerState
from tidelog.replication.isr import events as isr
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.log_events import Appended, AppendRefused, Flushed
from tidelog.storage.copies import Identity
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.received import parse_received
from tidelog.storage.segment import Damage

RETRY_S = {
    FetchStatus.FENCED_EPOCH: 0.05,
    FetchStatus.UNKNOWN_EPOCH: 0.05,
    FetchStatus.DAMAGED: 1.0,
}
"""Seconds to wait after an answer of each status before the next fetch; usually new metadata comes first."""

DAMAGED_MAX = 64
"""The most damaged ranges that the leader is asked for at a time, and so the most that are repaired at once."""

logger = structlog.get_logger("tidelog.replication")

Spawn = Callable[[object, Coroutine[Any, Any, None]], asyncio.Task[None]]


class Follower:
    """A follower replica of one partition. `on_change` is called when there is something to fetch or to report to the
    leader."""

    def __init__(
        self,
        topic: str,
        partition_id: PartitionId,
        leader_epoch: int,
        log: PartitionLog,
        core: IsrFollower,
        log_writer: LogWriter,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self.topic = topic
        self.partition_id = partition_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.on_change: Callable[[Follower], None] = lambda _: None
        self.report_flushed: Callable[[FollowerState], None] = lambda _: None
        self.is_fsynced = True
        """True if the leader waits for this replica's flushes (`ack.durability=fsynced`)."""
        self.not_before_s = 0.0
        """The time, in seconds of the monotonic clock, before which the leader is not asked again."""
        self.watchers = Watchers()
        """The consumers that wait for the high watermark of this replica to advance."""
        self._core = core
        self._log_writer = log_writer
        self._clock = clock
        self._spawn = spawn
        self._correlation = 0
        self._batches: list[RecordBatch] = []
        """The fetched batches that the state machine has not yet ordered to be appended."""
        self._producers: list[tuple[int, ProducerState]] = []
        """The states of idempotent producers before the leader's log start, to be stored if the state machine has the
        log start over."""
        self._damaged: tuple[int, ...] = ()
        """The start offsets of the damaged ranges that the last fetch or report named."""
        self._is_closed = False
        self._truncating: asyncio.Task[None] | None = None

    @property
    def is_readable(self) -> bool:
        """False while the log is being truncated, and after `close`: this broker has another role in the partition by
        then, or none."""
        return not self._is_closed and self._truncating is None

    @property
    def high_watermark(self) -> int:
        """The high watermark, as far as this log goes."""
        return self._core.high_watermark

    @property
    def aligned_epoch(self) -> int:
        """The leader epoch of this follower, once its log is known to be a prefix of the leader's; -1 before."""
        return self.leader_epoch if self._core.is_aligned else -1

    def second_copy(self, identity: Identity) -> None:
        """Returns None: a follower has no second copy of a batch beside its log."""

    def reconfigure(self, settings: LogSettings, *, is_fsynced: bool) -> None:
        """Applies new topic settings."""
        self.log.settings = settings
        # The leader waits for fsyncs from now on, also of what was appended before.
        if is_fsynced and not self.is_fsynced:
            self._log_writer.submit(self)
        self.is_fsynced = is_fsynced

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self) -> FollowerState | None:
        """Returns the next fetch of this partition; None if nothing is to be fetched now."""
        if self._is_closed or self.log.offline_reason is not None:
            return None
        # The low watermark waits for this log's start, so a deletion that failed is tried before the next report of it.
        if self._core.log_start_offset > self.log.log_start_offset:
            self._delete_records(self._core.log_start_offset)
        # Each question has its own number: an answer to an earlier one, come late or twice, could truncate what was
        # fetched since.
        self._correlation += 1
        effects = self._core.step(isr.FetchDue(self._correlation))
        for effect in effects:
            if isinstance(effect, isr.Fetch):
                return self._state(effect)
        return None

    def _state(self, effect: isr.Fetch | isr.ReportFlushed) -> FollowerState:
        last_epoch = -1 if effect.last_fetched_epoch is None else effect.last_fetched_epoch
        self._damaged = tuple(damage.start for damage in self.log.damaged_ranges()[:DAMAGED_MAX])
        return FollowerState(
            self.partition_id.topic_id,
            self.partition_id.partition,
            self.leader_epoch,
            effect.fetch_offset,
            last_epoch,
            effect.durable_offset,
            self.log.log_start_offset,
            self._damaged,
        )

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self, answer: PartitionFetched, data: memoryview) -> None:
        """Takes the leader's answer to the last fetch; `data` are its batches."""
        # What a leader of another epoch says of its log says nothing of this one's.
        if self._is_closed or answer.leader_epoch != self.leader_epoch:
            return
        correlation = self._correlation
        self._producers = []
        match answer.status:
            case FetchStatus.OK:
                self._take(correlation, answer, data)
            case FetchStatus.DIVERGING:
                self._execute(self._core.step(isr.DivergingAt(correlation, answer.epoch, answer.end_offset)))
            case FetchStatus.OUT_OF_RANGE:
                self._take_producers(correlation, answer, data)
            case FetchStatus.DAMAGED if answer.high_watermark >= 0:
                self._take(correlation, answer, memoryview(b""))
                self._wait_for_leader(answer.status)
            case _:
                self._wait_for_leader(answer.status)
        self.on_change(self)

    def _wait_for_leader(self, status: FetchStatus) -> None:
        self.not_before_s = self._clock.monotonic_s() + RETRY_S[status]

    def _take(self, correlation: int, answer: PartitionFetched, data: memoryview) -> None:
        try:
            # CRC, offsets and epochs have to continue this log: the leader sends what it has in memory without another
            # look.
            batches = parse_received(data, answer.fetch_offset, answer.last_epoch, may_skip=False)
        except InvalidBatch as error:
            logger.error(
                "a leader sent what does not continue this log", partition=str(self.partition_id), error=str(error)
            )
            self._wait_for_leader(FetchStatus.DAMAGED)
            return
        base = batches[0].header.base_offset if batches else answer.fetch_offset
        end = batches[-1].header.next_offset if batches else base
        self._batches = batches
        fetched = isr.Fetched(correlation, base, end, _epochs(batches), answer.high_watermark, answer.log_start_offset)
        self._execute(self._core.step(fetched))

    def _take_producers(self, correlation: int, answer: PartitionFetched, data: memoryview) -> None:
        try:
            self._producers = self.log.files.codec.parse_producers(data)
        except InvalidBatch as error:
            logger.error("a leader sent damaged rows", partition=str(self.partition_id), error=str(error))
            self._wait_for_leader(FetchStatus.DAMAGED)
            return
        event = isr.FetchOutOfRange(correlation, answer.log_start_offset, answer.end_offset)
        self._execute(self._core.step(event))

    def on_flushed(self) -> None:
        """Takes the log writer's report that the log was flushed further, was repaired, or has gone offline."""
        # A flush that was under way is of the log before the truncation, and may reach beyond its new end.
        if self._is_closed or self._truncating is not None:
            return
        if self.log.offline_reason is not None:
            logger.error("a replica is offline", partition=str(self.partition_id), reason=self.log.offline_reason)
            return
        self._execute(self._core.step(Flushed(acknowledged_end(self.log, self._core.high_watermark))))
        if self._damaged:  # it may be repaired, or the leader's copy be known to be damaged, too
            self.on_change(self)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _execute(self, effects: list[isr.FollowerEffect]) -> None:
        for effect in effects:
            match effect:
                case isr.AppendFetched():
                    self._append()
                case isr.Truncate() | isr.StartOver():
                    truncation = self._truncate(effect, self._producers)
                    self._truncating = self._spawn(f"truncation-{self.partition_id}", truncation)
                case isr.DeleteRecords(to):
                    self._delete_records(to)
                case isr.ReportFlushed():
                    self.report_flushed(self._state(effect))
                case isr.Distrust(reason):
                    logger.error("a leader contradicts itself", partition=str(self.partition_id), reason=reason)
                case isr.FollowHighWatermark():
                    self.watchers.wake_all()
                    # A batch below the new high watermark is committed, so it does not hold up what is acknowledged any
                    # more.
                    if self.log.damage:
                        self.on_flushed()
                case isr.Fetch():
                    pass

    def _append(self) -> None:
        base = self.log.log_end_offset
        try:
            self.log.append(self._batches, self._clock.wall_ms())
        except TidelogError as error:
            logger.warning("a replica cannot append", partition=str(self.partition_id), error=str(error))
            self._wait_for_leader(FetchStatus.DAMAGED)
            self._execute(self._core.step(AppendRefused(base)))
            return
        self._batches = []
        # Before the core hears of the append: so the fsync is under way when the next fetch asks.
        self._log_writer.submit(self, is_awaited=self.is_fsynced)
        self._execute(self._core.step(Appended(self.log.log_end_offset)))

    def _delete_records(self, to: int) -> None:
        try:
            self.log.delete_records(to)
        except TidelogError as error:
            logger.warning("old records could not be deleted", partition=str(self.partition_id), error=str(error))
            self._wait_for_leader(FetchStatus.DAMAGED)
            self.on_change(self)
            return
        self._log_writer.submit(self)

    async def _truncate(self, effect: isr.Truncate | isr.StartOver, producers: list[tuple[int, ProducerState]]) -> None:
        """Truncates the log while no flush of it is under way. A disk error takes the log offline; a truncation that is
        only impossible now is tried again."""
        while not self._is_closed and self.log.offline_reason is None:
            try:
                # No flush may be under way: it would report offsets that are gone.
                await self._log_writer.exclusively(self, lambda: self._truncate_now(effect, producers))
            except (OSError, TidelogError) as error:
                logger.error("a replica could not be truncated", partition=str(self.partition_id), error=str(error))
                # Nothing is asked meanwhile: an answer would be appended behind what has to go.
                await asyncio.sleep(RETRY_S[FetchStatus.DAMAGED])
            else:
                break
        self._truncating = None
        if self._is_closed or self.log.offline_reason is not None:
            return
        logger.info("truncated", partition=str(self.partition_id), to=self.log.log_end_offset)
        acknowledged = acknowledged_end(self.log, self._core.high_watermark)
        self._execute(self._core.step(isr.Truncated(self.log.log_end_offset, acknowledged)))
        self.on_change(self)

    def _truncate_now(self, effect: isr.Truncate | isr.StartOver, producers: list[tuple[int, ProducerState]]) -> None:
        now_ms = self._clock.wall_ms()
        match effect:
            case isr.Truncate(to):
                self.log.truncate_to(to, high_watermark=self._core.high_watermark, now_ms=now_ms)
            case isr.StartOver(at):
                self.log.start_over(at, now_ms=now_ms, producers=producers)

    def close(self) -> None:
        """Stops following. Batches that are appended are still flushed."""
        self._is_closed = True
        self.watchers.wake_all()

    async def at_rest(self) -> None:
        """Waits, after `close`, until no operation of this follower changes the log or its files any more."""
        assert self._is_closed
        if self._truncating is not None:
            await asyncio.gather(self._truncating, return_exceptions=True)
        await self._log_writer.at_rest(self.log)


def acknowledged_end(log: PartitionLog, high_watermark: int) -> int:
    """Returns the offset up to which a follower may report its log as durable: the durable offset, or the first damaged
    batch above the high watermark if that is less. Such a batch may have been torn before it was acknowledged, and must
    not count as a copy. A range whose index entries are lost as well does not count: the leader's log shows what was
    there."""
    # Up to the high watermark the batch is committed, whatever became of this copy; it is repaired, and holds nobody
    # up.
    damaged = [
        max(damage.start, high_watermark) for damage in log.damaged_ranges() if _is_doubtful(damage, high_watermark)
    ]
    return min([log.durable_offset, *damaged])


def _is_doubtful(damage: Damage, high_watermark: int) -> bool:
    # Torn before it was acknowledged, or rotten after: nobody can tell, so it counts as not here. Without its row there
    # is nothing that could have been acknowledged as this batch.
    return damage.end > high_watermark and damage.epoch is not None


def _epochs(batches: list[RecordBatch]) -> tuple[tuple[int, int], ...]:
    """Returns the leader epochs of the batches, each with the base offset of its first batch."""
    epochs: list[tuple[int, int]] = []
    for batch in batches:
        if not epochs or epochs[-1][0] != batch.header.leader_epoch:
            epochs.append((batch.header.leader_epoch, batch.header.base_offset))
    return tuple(epochs)
