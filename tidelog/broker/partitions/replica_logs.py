"""The logs of the replicas on this broker: opened when they get their first role, open whatever their role is then.

A log that cannot be opened, or cannot be written to from its opening on, is *troubled*: on a full disk, often, or when
too many files are open. It costs its partition, not the broker, and is tried again. Nothing was written to it since it
was opened, so that is as good as a restart; a log that fails later stays as it is until the broker is started again.

The disk remembers up to which position of the metadata it has made the logs that it was to hold. A log from before that
position that is not there is *lost*: the empty one in its place says so, durably, from its making on
(`Metainfo.stands_in_since`). It is no replica in good standing: it does not lead, and its lack of a batch proves
nothing, until the metadata have the replica begin anew and its leader has filled it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import structlog
from msgspec import UNSET

from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import Overloaded, TidelogError
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.losses import AcceptedLoss, LostRanges
from tidelog.model.ports import Clock
from tidelog.storage.load_report import LoadReport
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.scan import BadEnd


class OpenedFiles(Protocol):
    """A log that was opened together with other files of its replica."""

    @property
    def log(self) -> PartitionLog:
        """The replica's log."""

    @property
    def report(self) -> LoadReport:
        """The findings of the log's opening."""

    @property
    def is_offline(self) -> bool:
        """True if one of the files cannot be written to."""


T = TypeVar("T")
F = TypeVar("F", bound=OpenedFiles)

logger = structlog.get_logger("tidelog.broker")


class ReplicaLogs:
    """One broker's. `damaged` is called when something of a log is found damaged."""

    def __init__(self, manager: LogManager, clock: Clock, stats: Stats, damaged: Callable[[PartitionId], None]) -> None:
        self.troubled: dict[PartitionId, None] = {}
        self.high_watermarks: dict[PartitionId, int] = {}
        """Of the open logs, when they last changed roles."""
        self._lost: dict[PartitionId, LostRanges] = {}
        self._manager = manager
        self._clock = clock
        self._stats = stats
        self._damaged = damaged

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

    def stands_in(self, partition_id: PartitionId, since: int) -> bool:
        """True if the open log is there in place of one that was begun at this position, and is lost."""
        log = self._manager.logs.get(partition_id)
        return log is not None and log.stands_in_since == since

    @property
    def held_position(self) -> int:
        """Returns `LogManager.held_position`."""
        return self._manager.held_position

    async def note_held(self, position: int, since: Mapping[PartitionId, int], log_writer: LogWriter) -> None:
        """Notes durably that the logs which this broker is to hold by the metadata up to `position` are made. `since`
        has those of them that were not noted yet; one that could not be opened may not be made."""
        missing = [began for known, began in since.items() if known in self.troubled or not self.is_open(known)]
        position = min(missing, default=position)
        if position <= self.held_position:
            return
        try:
            await log_writer.perform(partial(self._manager.note_held, position))
        except (OSError, TidelogError) as error:
            logger.error("the disk takes no note of the logs that it holds", position=position, error=str(error))

    def get(
        self, partition_id: PartitionId, topic: str, config: TopicConfig, since: int, *, is_alone: bool
    ) -> PartitionLog | None:
        """The log, open; None if it cannot be opened now. `since` is when this broker began the replica; `is_alone`: no
        other broker holds one, which could say what lay at the log's end."""
        log = self._manager.logs.get(partition_id)
        if log is not None:
            log.settings = log_settings(config)
            return log
        opened = self._try_to(
            partition_id,
            topic,
            lambda now_ms: self._manager.open_log(
                partition_id,
                log_settings(config),
                now_ms,
                held=self._manager.held(since),
                bad_end=BadEnd.TRUNCATE if is_alone else BadEnd.KEEP,
            ),
        )
        if opened is None:
            return None
        log, report = opened
        self._adopt(partition_id, topic, log, report)
        return log

    def get_opened_by(self, opener: Callable[[LogManager, int], F], partition_id: PartitionId, topic: str) -> F | None:
        """The log and the files beside it, opened anew by `opener(manager, now_ms)`; None if one of them cannot be
        opened for writing now."""
        if self.is_open(partition_id):
            self._close(partition_id)
        files = self._try_to(partition_id, topic, lambda now_ms: opener(self._manager, now_ms))
        if files is None:
            return None
        self._adopt(partition_id, topic, files.log, files.report)
        if files.is_offline:
            self.troubled[partition_id] = None  # a full disk, perhaps: the replica never began to take part
            return None
        return files

    def _try_to(self, partition_id: PartitionId, topic: str, open_at: Callable[[int], T]) -> T | None:
        if partition_id in self.troubled:
            return None
        try:
            return open_at(self._clock.wall_ms())
        except (OSError, Overloaded) as error:
            logger.error("partition cannot be opened", topic=topic, partition=partition_id.partition, error=str(error))
            self.troubled[partition_id] = None
            return None

    def _adopt(self, partition_id: PartitionId, topic: str, log: PartitionLog, report: LoadReport) -> None:
        if log.offline_reason is not None:
            self.troubled[partition_id] = None
        log.name = f"{topic}-{partition_id.partition}"
        self._report(log.name, report)
        self.high_watermarks[partition_id] = report.high_watermark
        log.give_up(self._lost.get(partition_id, LostRanges()))
        log.damage.on_news = partial(self._found_damage, partition_id)

    def check(self, partition_id: PartitionId, log: PartitionLog) -> None:
        """A log has got a role: if it is damaged, somebody is told."""
        if log.damage:
            self._damaged(partition_id)

    def high_watermark(self, partition_id: PartitionId, log: PartitionLog) -> int:
        """What a new role may take for committed."""
        known = self.high_watermarks.get(partition_id, log.log_start_offset)
        return min(max(known, log.log_start_offset), log.log_end_offset)

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
        """It is removed."""
        self.high_watermarks.pop(partition_id, None)
        self.troubled.pop(partition_id, None)
        self._lost.pop(partition_id, None)

    def _found_damage(self, partition_id: PartitionId) -> None:
        self._stats.damaged_batches += 1
        self._damaged(partition_id)

    def _report(self, name: str, report: LoadReport) -> None:
        self._stats.load_findings += len(report.findings)
        for finding in report.findings:
            logger.warning("loading", log=name, finding=finding)


def log_settings(config: TopicConfig) -> LogSettings:
    """A topic's settings, as far as its logs are concerned."""
    return LogSettings(segment_bytes=config.segment_bytes, segment_ms=config.segment_ms)


def is_lost(log: PartitionLog, info: PartitionInfo, node_id: int) -> bool:
    """True if a broker's log stands in for one that is lost, and the metadata still count on that one."""
    return log.stands_in_since == info.since_of(node_id)


def may_deny(log: PartitionLog, info: PartitionInfo, node_id: NodeId) -> bool:
    """True if what this log lacks was never here. One that stands in for a lost log may say so only when its leader has
    found that it has everything."""
    is_filled = not is_lost(log, info, node_id) and node_id in (*info.isr, *info.elr)
    return log.stands_in_since is UNSET or is_filled


def note_filled(log: PartitionLog, info: PartitionInfo, node_id: NodeId) -> None:
    """A log that stood in for a lost one, and is in sync, is a copy like any other from then on. Its next checkpoint
    remembers it; without that it stands in until it is in sync again."""
    if log.stands_in_since is not UNSET and may_deny(log, info, node_id):
        log.stands_in_since = UNSET
