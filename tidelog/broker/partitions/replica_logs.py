"""The logs of the replicas on this broker: opened when they get their first role, and kept open when roles change.

Opening takes time, and nobody waits for it here (`openings`): asking for a log that is not open returns None, and has
to be repeated when `release` names the partition. Until then the replica has no role: it acknowledges nothing and does
not vote.

A log that cannot be opened, or cannot be written to from its opening on, is *troubled*: on a full disk, often, or when
too many files are open. Only its partition is affected, and it is opened again later. Nothing was written to it since
it was opened, so that is as good as a restart; a log that fails later stays as it is until the broker is started again.

The disk stores up to which position of the metadata log (`held_position`) all logs assigned to this broker were made. A
log from before that position that is not there is *lost*: the empty one in its place says so, durably, from its making
on (`Metainfo.stands_in_since`). So a new log is released only when the disk has stored this, or cannot: otherwise its
later loss would not be noticed. A replica that has lost its log does not lead, and its lack of a batch proves nothing,
until the metadata has it begin again and its leader has filled it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar, cast

import structlog
from msgspec import UNSET

from tidelog.broker.partitions.openings import OpenedFiles, Opening, Openings, Outcome
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import TidelogError
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.losses import AcceptedLoss, LostRanges
from tidelog.model.ports import Clock
from tidelog.storage.load_report import LoadReport
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_opener import LogOpener
from tidelog.storage.new_logs import NewLog
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.scan import BadEnd

F = TypeVar("F", bound=OpenedFiles)

logger = structlog.get_logger("tidelog.broker")


class ReplicaLogs:
    """The logs of one broker's replicas. `damaged` is called when a part of a log is found damaged."""

    def __init__(
        self,
        manager: LogManager,
        clock: Clock,
        stats: Stats,
        log_writer: LogWriter,
        damaged: Callable[[PartitionId], None],
    ) -> None:
        self.troubled: dict[PartitionId, None] = {}
        self.high_watermarks: dict[PartitionId, int] = {}
        """The high watermark of each log as known at its last opening or change of role."""
        self.openings = Openings(manager, clock, log_writer, self._take_in)
        self.on_opened: Callable[[], None] = lambda: None
        """Listener that is called when `release` may have something to return."""
        self._unreleased: dict[PartitionId, int] = {}
        """The partitions whose opening has ended, but which may not be given a role yet (`release`), with the metadata
        log position since which this broker holds them."""
        self._ended: dict[int, list[PartitionId]] = {}
        """Partitions whose opening has ended, by the metadata log position since which this broker holds them; by -1 if
        it failed. Some may not be wanted any more."""
        self._fresh: dict[PartitionId, int] = {}
        """The partitions whose log is not covered by the stored `held_position`, with the position since which this
        broker holds them."""
        self._opened: dict[PartitionId, OpenedFiles] = {}
        """The opened files that no role has taken yet."""
        self._lost: dict[PartitionId, LostRanges] = {}
        self._replacements: dict[PartitionId, PartitionLog] = {}
        self._offline: dict[PartitionId, PartitionLog] = {}
        """Logs that have gone offline, some of which may be closed: a separate table, since each heartbeat asks for
        them."""
        self._manager = manager
        self._log_writer = log_writer
        self._stats = stats
        self._damaged = damaged

    @property
    def pending(self) -> list[PartitionId]:
        """The partitions whose logs are being opened, or are open but may not be given a role yet (`release`)."""
        return [*self.openings.pending, *self._unreleased]

    def is_opening(self, partition_id: PartitionId) -> bool:
        """Returns True if the log is being opened, or is open but may not be given a role yet (`release`)."""
        return partition_id in self.openings or partition_id in self._unreleased

    def is_open(self, partition_id: PartitionId) -> bool:
        return partition_id in self._manager.logs

    def find(self, partition_id: PartitionId) -> PartitionLog | None:
        """Returns the log if it is open and takes writes; None otherwise."""
        log = self._manager.logs.get(partition_id)
        return None if log is None or log.offline_reason is not None else log

    def give_up(self, partition_id: PartitionId, losses: Sequence[AcceptedLoss]) -> bool:
        """Sets the offsets that an operator has given up (`losses`, from the metadata) in the open log, and in one that
        is opened later. Returns False if they have not changed."""
        if not losses and partition_id not in self._lost:
            return False
        lost = LostRanges(losses)
        if list(lost) == list(self._lost.get(partition_id, ())):
            return False
        self._lost[partition_id] = lost
        log = self._manager.logs.get(partition_id)
        if log is not None:
            log.give_up(lost)
        return True

    def replacements(self) -> dict[PartitionId, int]:
        """Returns the open logs that replace lost ones, with the metadata log position since which this broker held the
        lost log."""
        for partition_id, log in list(self._replacements.items()):
            if log.stands_in_since is UNSET or self._manager.logs.get(partition_id) is not log:
                del self._replacements[partition_id]
        return {
            partition_id: since
            for partition_id, log in self._replacements.items()
            if (since := log.stands_in_since) is not UNSET
        }

    def offline(self) -> list[PartitionId]:
        """Returns the partitions whose open logs are offline."""
        for partition_id, log in list(self._offline.items()):
            if self._manager.logs.get(partition_id) is not log:
                del self._offline[partition_id]
        return list(self._offline)

    @property
    def held_position(self) -> int:
        """The metadata log position up to which all logs assigned to this broker were made on this disk, durably."""
        return self._manager.held_position

    @property
    def renewals(self) -> int:
        """The number of times that the broker has begun again on this directory, because it was an old copy."""
        return self._manager.renewals

    async def release(self, position: int) -> list[PartitionId]:
        """Returns the partitions whose opening has ended, in success or failure, and which may get a role now. The
        caller has asked for all logs that are assigned to this broker by the metadata up to `position`."""
        ended = {since: len(partition_ids) for since, partition_ids in self._ended.items()}
        if not ended:
            return []
        awaited = self.openings.first_since(self.held_position)
        await self._note_held(position)
        held_position = self.held_position
        released: list[PartitionId] = []
        for since, count in ended.items():
            if since < held_position or awaited is None or since < awaited:
                partition_ids = self._ended.pop(since)
                released += partition_ids[:count]
                if partition_ids[count:]:
                    self._ended[since] = partition_ids[count:]
        return [partition_id for partition_id in released if self._unreleased.pop(partition_id, None) is not None]

    async def _note_held(self, position: int) -> None:
        """Stores durably that all logs assigned to this broker by the metadata up to `position` are made, or up to the
        first that could not be opened."""
        held_position = self.held_position
        if not self._fresh or self.openings.first_since(held_position) == held_position:
            return
        not_made = [
            began
            for partition_id, began in self._fresh.items()
            if partition_id in self.troubled or not self.is_open(partition_id)
        ]
        position = min(not_made, default=position)
        if position <= held_position or min(self._fresh.values()) >= position:  # of what comes next none is made
            return
        try:
            await self._log_writer.perform(partial(self._manager.note_held, position))
        except (OSError, TidelogError) as error:
            logger.error("the disk takes no note of the logs that it holds", position=position, error=str(error))
            return
        self._fresh = {partition_id: began for partition_id, began in self._fresh.items() if began >= position}

    async def withdraw(self, partition_ids: Collection[PartitionId]) -> None:
        """Stops the openings of these partitions. When this returns, none of their logs is being opened."""
        await self.openings.withdraw(partition_ids)
        withdrawn = self._unreleased.keys() & set(partition_ids)
        if withdrawn:
            self._ended = {
                since: [name for name in ended if name not in withdrawn] for since, ended in self._ended.items()
            }
        for partition_id in partition_ids:
            self._unreleased.pop(partition_id, None)
            self._opened.pop(partition_id, None)
            self._fresh.pop(partition_id, None)

    def get(
        self, partition_id: PartitionId, topic: str, config: TopicConfig, since: int, *, is_alone: bool
    ) -> PartitionLog | None:
        """Returns the partition's log if it is open; else begins to open it, and returns None. `since` is the metadata
        log position at which this broker got the replica; `is_alone` says that no other broker has one, so that a
        damaged end is truncated."""
        log = self._manager.logs.get(partition_id)
        if log is None:
            bad_end = BadEnd.TRUNCATE if is_alone else BadEnd.KEEP
            settings = log_settings(config)
            opener = partial(_open, partition_id, settings, since, bad_end)
            self._ask(Opening(partition_id, topic, since, opener, NewLog(partition_id)))
            return None
        self._opened.pop(partition_id, None)
        log.settings = log_settings(config)
        return None if partition_id in self._unreleased else log

    def get_opened_by(self, opener: Callable[[LogOpener, int], F], topic: str, since: int, new: NewLog) -> F | None:
        """Returns a Paxos replica's log and journal if they were opened by `opener` and are writable; else begins to
        open them, or to make them as `new`, and returns None."""
        partition_id = new.partition_id
        if partition_id in self._unreleased:
            return None
        files = self._opened.pop(partition_id, None)
        if files is not None:
            return cast("F", files)
        if self.is_open(partition_id) and partition_id not in self.troubled:
            self._close(partition_id)
        self._ask(Opening(partition_id, topic, since, opener, new))
        return None

    def _ask(self, opening: Opening) -> None:
        if opening.partition_id in self.troubled:
            return
        if opening.since >= self.held_position:
            self._fresh[opening.partition_id] = opening.since
        else:
            opening = replace(opening, new=None)
        self.openings.ask(opening)

    def _take_in(self, opening: Opening, opener: LogOpener, outcome: Outcome) -> None:
        partition_id, topic = opening.partition_id, opening.topic
        if isinstance(outcome, Exception):
            number = partition_id.partition
            logger.error("partition cannot be opened", topic=topic, partition=number, error=str(outcome))
            self.troubled[partition_id] = None
        else:
            self._manager.adopt(opener)
            self._adopt(partition_id, topic, outcome.log, outcome.report)
            if outcome.is_offline:
                self.troubled[partition_id] = None  # a full disk, perhaps: the replica never began to take part
            else:
                self._opened[partition_id] = outcome
        self._unreleased[partition_id] = opening.since
        since = -1 if partition_id in self.troubled else opening.since
        self._ended.setdefault(since, []).append(partition_id)
        self.on_opened()

    def _adopt(self, partition_id: PartitionId, topic: str, log: PartitionLog, report: LoadReport) -> None:
        if log.offline_reason is not None:
            self.troubled[partition_id] = None
        log.name = f"{topic}-{partition_id.partition}"
        self._report(log.name, report)
        self.high_watermarks[partition_id] = report.high_watermark
        log.give_up(self._lost.get(partition_id, LostRanges()))
        log.damage.on_change = partial(self._on_damage, partition_id)
        log.on_offline = partial(self._offline.__setitem__, partition_id, log)
        if log.offline_reason is not None:
            log.on_offline()
        if log.stands_in_since is not UNSET:
            self._replacements[partition_id] = log

    def check(self, partition_id: PartitionId, log: PartitionLog) -> None:
        """Calls `damaged` if a log that has got a role has known damage."""
        if log.damage:
            self._damaged(partition_id)

    def high_watermark(self, partition_id: PartitionId, log: PartitionLog) -> int:
        """Returns the offset below which a replica that begins a new role may treat the log as committed."""
        checkpointed = self.high_watermarks.get(partition_id, log.log_start_offset)
        return min(max(checkpointed, log.log_start_offset), log.log_end_offset)

    def close_troubled(self) -> None:
        """Closes the logs that could not be written to, whose replicas have no role; they are opened again on the next
        request."""
        for partition_id in self.troubled:
            if self.is_open(partition_id):
                self._close(partition_id)
        self.troubled.clear()

    def _close(self, partition_id: PartitionId) -> None:
        with suppress(OSError, TidelogError):  # it is closed in any case
            self._manager.close_log(partition_id, self.high_watermarks[partition_id])

    def forget(self, partition_id: PartitionId) -> None:
        """Forgets what is known of a replica whose log was removed."""
        self.high_watermarks.pop(partition_id, None)
        self.troubled.pop(partition_id, None)
        self._lost.pop(partition_id, None)
        self._opened.pop(partition_id, None)
        self._fresh.pop(partition_id, None)

    def _on_damage(self, partition_id: PartitionId) -> None:
        self._stats.damaged_batches += 1
        self._damaged(partition_id)

    def _report(self, name: str, report: LoadReport) -> None:
        self._stats.load_findings += len(report.findings)
        for finding in report.findings:
            logger.warning("loading", log=name, finding=finding)


class OpenedLog(NamedTuple):
    """The opened log of a replica without a journal. It can be used for reads even if it cannot be written to."""

    log: PartitionLog
    report: LoadReport
    is_offline: bool = False


def _open(
    partition_id: PartitionId, settings: LogSettings, since: int, bad_end: BadEnd, opener: LogOpener, now_ms: int
) -> OpenedLog:
    held_by_disk = opener.held(since)
    return OpenedLog(*opener.open_log(partition_id, settings, now_ms, held=held_by_disk, bad_end=bad_end))


def log_settings(config: TopicConfig) -> LogSettings:
    """Returns the settings of a topic that its logs need."""
    return LogSettings(segment_bytes=config.segment_bytes, segment_ms=config.segment_ms)


def is_lost(log: PartitionLog, info: PartitionInfo, node_id: int) -> bool:
    """Returns True if the broker's log replaces a lost one, and the metadata still counts on the lost one."""
    return log.stands_in_since == info.since_of(node_id)


def may_deny(log: PartitionLog, info: PartitionInfo, node_id: NodeId) -> bool:
    """Returns True if a batch that is missing in this log was never in it. Not so for a log that replaces a lost one,
    until the metadata has it in the ISR or ELR."""
    is_filled = not is_lost(log, info, node_id) and node_id in (*info.isr, *info.elr)
    return log.stands_in_since is UNSET or is_filled


def note_filled(log: PartitionLog, info: PartitionInfo, node_id: NodeId) -> None:
    """Notes that a log which replaced a lost one is in sync, and is a copy like any other from now on. The next
    metainfo checkpoint stores this; without it the log counts as replacing a lost one until it is in sync again."""
    if log.stands_in_since is not UNSET and may_deny(log, info, node_id):
        log.stands_in_since = UNSET
