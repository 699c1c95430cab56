"""The background scrubber: reads every log of this broker through, in rounds, so that what rots unread is found while
another replica can still repair it (as ZFS, Ceph and TigerBeetle do).

A round is half of `log.scrub.period.ms` long, whatever there is to read: so no byte stays unread for longer than the
period, and the load is the same all the time. Pieces are small, are read on the disk thread in turn with the flushes,
and give way to these: while producers wait for the disk the scrubber waits too, until it is late by a good part of a
round. It never reads faster than `log.scrub.io.max.bytes.per.second`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from tidelog.broker.repair.copies import Holder
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId

PIECE_BYTES = 256 << 10
IDLE_S_MAX = 5.0
"""How soon something to read is looked for where there was nothing: no logs, or none with anything durable."""
LATE_MAX = 0.1
"""Of a round: who is later than this does not give way any more."""

logger = structlog.get_logger("tidelog.repair")


class BackgroundScrubber:
    """One broker's. `run` is its task; `holders` are the replicas here, in whatever role."""

    def __init__(
        self,
        holders: Callable[[], dict[PartitionId, Holder]],
        log_writer: LogWriter,
        config: BrokerConfig,
        stats: Stats,
    ) -> None:
        self._holders = holders
        self._log_writer = log_writer
        self._round_s = config.log_scrub_period_ms / 2000
        self._bytes_per_s = config.log_scrub_io_max_bytes_per_second
        self._stats = stats
        self._verified_s: dict[PartitionId, float] = {}
        """When each log was last read through, or first seen (loop time)."""
        self._begun_s = 0.0
        self._bytes_total = self._bytes_done = 0
        """Of this round."""

    def oldest_s(self) -> float:
        """For how long the log that was not read through for longest has not been, in seconds; 0 without logs."""
        now_s = asyncio.get_running_loop().time()
        return max((now_s - verified_s for verified_s in self._verified_s.values()), default=0.0)

    async def run(self) -> None:
        """Scrubs until cancelled."""
        while True:
            await self._round()

    async def _round(self) -> None:
        """The logs that are here now, that of the longest standing first."""
        self._begun_s = asyncio.get_running_loop().time()
        holders = self._holders()
        self._verified_s = {known: self._verified_s.get(known, self._begun_s) for known in holders}
        self._bytes_total = sum(holder.log.log_bytes for holder in holders.values())
        self._bytes_done = 0
        for partition_id in sorted(holders, key=lambda known: self._verified_s[known]):
            await self._scrub(partition_id)
        if not self._bytes_done:
            await asyncio.sleep(min(self._round_s, IDLE_S_MAX))

    async def _scrub(self, partition_id: PartitionId) -> None:
        """One log, to its end."""
        has_finished = False
        while not has_finished:
            await self._give_way()
            holder = self._holders().get(partition_id)
            if holder is None:
                return
            begun_s = asyncio.get_running_loop().time()
            try:
                size = await self._step(holder)
            except (OSError, TidelogError) as error:
                logger.warning("scrubbing failed", partition=str(partition_id), error=str(error))
                return
            has_finished = size is None
            await self._pace(begun_s, size or 0)
        self._verified_s[partition_id] = asyncio.get_running_loop().time()
        self._stats.scrubbed_logs += 1

    async def _step(self, holder: Holder) -> int | None:
        """One piece: the bytes that were read, None at the end."""
        log = holder.log
        piece = log.scrubber.begin(PIECE_BYTES)
        if piece is None:
            return None
        try:
            await self._log_writer.perform(piece.run)
        finally:
            step = log.scrubber.end(piece)
        if step.mend_at is not None:
            await self._log_writer.exclusively(holder, partial(log.mend, step.mend_at))
        self._stats.scrubbed_bytes += step.bytes_read
        self._bytes_done += step.bytes_read
        return step.bytes_read

    # -- pace --------------------------------------------------------------------------------------------------------

    @property
    def _due_s(self) -> float:
        """When the next piece is due."""
        share = min(self._bytes_done / self._bytes_total, 1.0) if self._bytes_total else 0.0
        return self._begun_s + share * self._round_s

    async def _give_way(self) -> None:
        """While others wait for the disk."""
        try:
            async with asyncio.timeout_at(self._due_s + LATE_MAX * self._round_s):
                await self._log_writer.idle()
        except TimeoutError:
            pass

    async def _pace(self, begun_s: float, size: int) -> None:
        wake_s = max(self._due_s, begun_s + size / self._bytes_per_s)
        await asyncio.sleep(max(0.0, wake_s - asyncio.get_running_loop().time()))
