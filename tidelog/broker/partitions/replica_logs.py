"""The logs of the replicas on this broker: opened when they get their first role, open whatever their role is then.

Opening takes time, and nobody waits for it here (`openings`): who asks for a log that is not open is told so, and asks
again when `release` names the partition. Until then the replica has no role: it acknowledges nothing and does not vote.

A log that cannot be opened, or cannot be written to from its opening on, is *troubled*: on a full disk, often, or when
too many files are open. It costs its partition, not the broker, and is tried again. Nothing was written to it since it
was opened, so that is as good as a restart; a log that fails later stays as it is until the broker is started again.

The disk remembers up to which position of the metadata it has made the logs that it was to hold. A log from before that
position that is not there is *lost*: the empty one in its place says so, durably, from its making on
(`Metainfo.stands_in_since`). So a log that was made just now is released when the disk has taken note of it, or cannot:
what a replica is to answer for is missed if it gets lost. One that is lost is no replica in good standing: it does not
lead, and its lack of a batch proves nothing, until the metadata have the replica begin anew and its leader has filled
it.
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
    """The logs of one broker's replicas. `damaged` is called when something of a log is found damaged."""

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
        """The high watermarks of the open logs, when they last changed roles."""
        self.openings = Openings(manager, clock, log_writer, self._take_in)
        self.on_opened: Callable[[], None] = lambda: None
        """Is called when there may be something to `release`."""
        self._unreleased: dict[PartitionId, int] = {}
        """The partitions whose opening has ended, and since when they are held."""
        self._ended: dict[int, list[PartitionId]] = {}
        """The same by that position, -1 for those that failed, and some that are not asked for any more."""
        self._fresh: dict[PartitionId, int] = {}
        """The partitions whose log the disk has taken no note of, and since when they are held."""
        self._opened: dict[PartitionId, OpenedFiles] = {}
        """The opened files that nobody has taken yet."""
        self._lost: dict[PartitionId, LostRanges] = {}
        self._standing_in: dict[PartitionId, PartitionLog] = {}
        self._offline: dict[PartitionId, PartitionLog] = {}
        """Logs that are offline, and may be open: each heartbeat asks, and there are many logs."""
        self._manager = manager
        self._log_writer = log_writer
        self._stats = stats
        self._damaged = damaged

    @property
    def asked(self) -> list[PartitionId]:
        """The partitions whose logs are being opened, or were and are not released."""
        return [*self.openings.asked, *self._unreleased]

    def is_opening(self, partition_id: PartitionId) -> bool:
        """Returns True if the log is asked for, and not released yet."""
        return partition_id in self.openings or partition_id in self._unreleased

    def is_open(self, partition_id: PartitionId) -> bool:
        return partition_id in self._manager.logs

    def find(self, partition_id: PartitionId) -> PartitionLog | None:
        """Returns the log if it is open and takes writes, whatever its role."""
        log = self._manager.logs.get(partition_id)
        return None if log is None or log.offline_reason is not None else log

    def give_up(self, partition_id: PartitionId, losses: Sequence[AcceptedLoss]) -> bool:
        """Takes for given up what the metadata says of a partition, in the open log, and in one that is opened; False
        if that is nothing new."""
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

    def standing_in(self) -> dict[PartitionId, int]:
        """Returns the open logs that are there in place of lost ones, and since when those were held."""
        for partition_id, log in list(self._standing_in.items()):
            if log.stands_in_since is UNSET or self._manager.logs.get(partition_id) is not log:
                del self._standing_in[partition_id]
        return {
            partition_id: since
            for partition_id, log in self._standing_in.items()
            if (since := log.stands_in_since) is not UNSET
        }

    def offline(self) -> list[PartitionId]:
        """Returns the partitions whose open logs are offline."""
        for partition_id in [
            partition_id
            for partition_id, log in self._offline.items()
            if self._manager.logs.get(partition_id) is not log
        ]:
            del self._offline[partition_id]
        return list(self._offline)

    @property
    def held_position(self) -> int:
        """Returns `LogManager.held_position`."""
        return self._manager.held_position

    @property
    def renewals(self) -> int:
        """Returns `LogManager.renewals`."""
        return self._manager.renewals

    async def release(self, position: int) -> list[PartitionId]:
        """Returns the partitions whose opening has ended since, well or not, and that may have a role now. All logs
        that this broker is to hold by the metadata up to `position` have been asked for."""
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
        """Notes durably that the logs which this broker is to hold by the metadata up to `position` are made; one that
        could not be opened may not be made."""
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
        """Takes back what was asked of these partitions. When this returns, none of their logs is being opened."""
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
        """Returns the log, open; None if it is not open now: it is opened then. `since` is when this broker began the
        replica; `is_alone`: no other broker holds one, which could say what lay at the log's end."""
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
        """Returns the log and the files beside it, opened anew by `opener(opener, now_ms)`; None if they are not open
        for writing now: they are opened then, and made as `new` if they should not be there yet."""
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
        log.damage.on_news = partial(self._found_damage, partition_id)
        log.on_offline = partial(self._offline.__setitem__, partition_id, log)
        if log.offline_reason is not None:
            log.on_offline()
        if log.stands_in_since is not UNSET:
            self._standing_in[partition_id] = log

    def check(self, partition_id: PartitionId, log: PartitionLog) -> None:
        """Reports a log that has got a role, if it is damaged."""
        if log.damage:
            self._damaged(partition_id)

    def high_watermark(self, partition_id: PartitionId, log: PartitionLog) -> int:
        """Returns the offset below which a new role may take the log for committed."""
        checkpointed = self.high_watermarks.get(partition_id, log.log_start_offset)
        return min(max(checkpointed, log.log_start_offset), log.log_end_offset)

    def close_troubled(self) -> None:
        """Closes the troubled ones, which have no role: they are opened anew when they are asked for."""
        for partition_id in self.troubled:
            if self.is_open(partition_id):
                self._close(partition_id)
        self.troubled.clear()

    def _close(self, partition_id: PartitionId) -> None:
        with suppress(OSError, TidelogError):  # it is closed in any case
            self._manager.close_log(partition_id, self.high_watermarks[partition_id])

    def forget(self, partition_id: PartitionId) -> None:
        """Forgets a replica that is removed."""
        self.high_watermarks.pop(partition_id, None)
        self.troubled.pop(partition_id, None)
        self._lost.pop(partition_id, None)
        self._opened.pop(partition_id, None)
        self._fresh.pop(partition_id, None)

    def _found_damage(self, partition_id: PartitionId) -> None:
        self._stats.damaged_batches += 1
        self._damaged(partition_id)

    def _report(self, name: str, report: LoadReport) -> None:
        self._stats.load_findings += len(report.findings)
        for finding in report.findings:
            logger.warning("loading", log=name, finding=finding)


class OpenedLog(NamedTuple):
    """`OpenedFiles` of a replica that has nothing but its log. What cannot be written to can be read."""

    log: PartitionLog
    report: LoadReport
    is_offline: bool = False


def _open(
    partition_id: PartitionId, settings: LogSettings, since: int, bad_end: BadEnd, opener: LogOpener, now_ms: int
) -> OpenedLog:
    held_by_disk = opener.held(since)
    return OpenedLog(*opener.open_log(partition_id, settings, now_ms, held=held_by_disk, bad_end=bad_end))


def log_settings(config: TopicConfig) -> LogSettings:
    """Returns a topic's settings, as far as its logs are concerned."""
    return LogSettings(segment_bytes=config.segment_bytes, segment_ms=config.segment_ms)


def is_lost(log: PartitionLog, info: PartitionInfo, node_id: int) -> bool:
    """Returns True if a broker's log stands in for one that is lost, and the metadata still count on that one."""
    return log.stands_in_since == info.since_of(node_id)


def may_deny(log: PartitionLog, info: PartitionInfo, node_id: NodeId) -> bool:
    """Returns True if what this log lacks was never here. One that stands in for a lost log may say so only when its
    leader has found that it has everything."""
    is_filled = not is_lost(log, info, node_id) and node_id in (*info.isr, *info.elr)
    return log.stands_in_since is UNSET or is_filled


def note_filled(log: PartitionLog, info: PartitionInfo, node_id: NodeId) -> None:
    """Notes that a log which stood in for a lost one is in sync, and so a copy like any other from now on. Its next
    checkpoint remembers it; without that it stands in until it is in sync again."""
    if log.stands_in_since is not UNSET and may_deny(log, info, node_id):
        log.stands_in_since = UNSET
