"""A broker's periodic work: it writes durable marks to idle logs, checkpoints metainfo, applies retention, and forgets
silent producers.

Without a mark or a checkpoint the next start has more to read. Marks do more: an entry at the log's end that no mark
covers would look torn if it rotted, and be truncated. So followers' logs are marked as leaders' are; their
checkpoints matter only to a broker that is started again and leads at once, and are written less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.repair.copies import Holder
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import Overloaded, TidelogError
from tidelog.model.ids import PartitionId

MARK_INTERVAL_S = 0.5
MARKS_AT_A_TIME = 64
CHECKED_AT_A_TIME = 64
CHECKPOINT_INTERVAL_S = 5.0
"""Seconds between checkpoints (Kafka's `replica.high.watermark.checkpoint.interval.ms`)."""
FOLLOWER_CHECKPOINTS = 12
"""Checkpoint rounds after which followers' logs are included once."""

logger = structlog.get_logger("tidelog.housekeeping")


@dataclass
class Housekeeper:
    """The periodic work on one broker's replicas. `partitions` are the led ones of the `holders`; `mark_journals`
    writes durable marks to the metadata log and to the journals of Paxos partitions."""

    partitions: Mapping[PartitionId, LedPartition]
    holders: Mapping[PartitionId, Holder]
    log_writer: LogWriter
    config: BrokerConfig
    clock: ClusterTime
    mark_journals: Callable[[], None]
    _checkpoints: int = field(init=False, default=0)

    async def run(self) -> None:
        """Runs the periodic work until cancelled."""
        time_s = asyncio.get_running_loop().time
        retention_interval_s = self.config.log_retention_check_interval_ms / 1000
        next_checkpoint_s = time_s() + CHECKPOINT_INTERVAL_S
        next_retention_s = time_s() + retention_interval_s
        while True:
            await asyncio.sleep(MARK_INTERVAL_S)
            await self._mark_logs()
            self.mark_journals()
            if time_s() >= next_checkpoint_s:
                await self._checkpoint()
                next_checkpoint_s = time_s() + CHECKPOINT_INTERVAL_S
            if time_s() >= next_retention_s:
                self._apply_retention()
                next_retention_s = time_s() + retention_interval_s

    async def _mark_logs(self) -> None:
        """Records in the logs how far they are durable (a MARK row), where that is not recorded up to the end. A mark
        may have to open its file, so other tasks get to run after every few logs."""
        for number, holder in enumerate(list(self.holders.values()), start=1):
            log = holder.log
            if log.marked != log.tail.durable and holder.is_readable:
                log.mark()
            if number % MARKS_AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def _checkpoint(self) -> None:
        is_for_all = self._checkpoints % FOLLOWER_CHECKPOINTS == 0
        self._checkpoints += 1
        replicas: Mapping[PartitionId, Holder] = self.holders if is_for_all else self.partitions
        for number, (key, replica) in enumerate(list(replicas.items()), start=1):
            if number % CHECKED_AT_A_TIME == 0:
                await asyncio.sleep(0)
            if not replica.is_readable or replica.log.offline_reason is not None:
                continue
            info = replica.log.metainfo(replica.high_watermark)
            if replica.log.noted == info:
                continue
            try:
                await self.log_writer.perform(partial(replica.log.store_metainfo, info))
            except (OSError, Overloaded) as error:
                logger.warning("metainfo checkpoint failed", partition=str(key), error=str(error))

    def _apply_retention(self) -> None:
        """Deletes segments that retention does not keep any more, and forgets silent producers; does nothing while the
        clock cannot be trusted."""
        if not self.clock.may_delete:
            return
        now_ms = self.clock.wall_ms()
        for key, partition in list(self.partitions.items()):
            partition.forget_producers(now_ms - self.config.producer_id_expiration_ms)
            try:
                partition.apply_retention(now_ms)
            except TidelogError as error:
                logger.warning("retention failed", partition=str(key), error=error.message)
