"""The background scrubber: reads everything that this broker stores, in rounds, so that rot is found while another
replica can still repair it (as ZFS, Ceph and TigerBeetle do): logs, journals, the metadata log with its snapshots, and
facts in two copies (`scrub_targets`).

A round takes half of `log.scrub.period.ms`, however much there is to read: so no byte stays unread for longer than the
period, and the load is even. Pieces are small, are read on the disk thread in turn with the flushes,
and give way to them: while producers wait for the disk the scrubber waits too, until it is late by a good part of a
round. It never reads faster than `log.scrub.io.max.bytes.per.second`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from tidelog.broker.repair.scrub_targets import Target
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import TidelogError

IDLE_S_MAX = 5.0
"""Maximum seconds until the next look for something to read, when there was no log, or none with durable data."""
LATE_MAX = 0.1
"""The part of a round's time by which the scrubber may be late before it stops giving way to flushes."""

logger = structlog.get_logger("tidelog.repair")


class BackgroundScrubber:
    """The scrubber of one broker. `run` is its task; `targets` returns what is stored now, by name."""

    def __init__(
        self,
        targets: Callable[[], Mapping[str, Target]],
        log_writer: LogWriter,
        config: BrokerConfig,
        stats: Stats,
    ) -> None:
        self._targets = targets
        self._log_writer = log_writer
        self._round_s = config.log_scrub_period_ms / 2000
        self._bytes_per_s = config.log_scrub_io_max_bytes_per_second
        self._stats = stats
        self._verified_s: dict[str, float] = {}
        """Time at which each target was last read completely, or first seen (loop time), by name."""
        self._begun_s = 0.0
        self._bytes_total = self._bytes_done = 0
        """Bytes of this round: of all targets, and of what was read so far."""

    def oldest_s(self) -> float:
        """Returns the seconds since the target that has waited longest was last read completely; 0 without targets."""
        now_s = asyncio.get_running_loop().time()
        return max((now_s - verified_s for verified_s in self._verified_s.values()), default=0.0)

    async def run(self) -> None:
        """Scrubs round after round, until cancelled."""
        while True:
            await self._round()

    async def _round(self) -> None:
        """Reads all present targets once, those first that have waited longest."""
        self._begun_s = asyncio.get_running_loop().time()
        targets = self._targets()
        self._verified_s = {name: self._verified_s.get(name, self._begun_s) for name in targets}
        self._bytes_total = sum(target.size for target in targets.values())
        self._bytes_done = 0
        for name in sorted(targets, key=lambda target: self._verified_s[target]):
            await self._scrub(name, targets[name])
        if not self._bytes_done:
            await asyncio.sleep(min(self._round_s, IDLE_S_MAX))

    async def _scrub(self, name: str, target: Target) -> None:
        """Reads one target to its end, piece by piece."""
        has_finished = False
        while not has_finished:
            await self._give_way()
            if not target.is_here:
                return
            begun_s = asyncio.get_running_loop().time()
            try:
                size, has_finished, *_ = await target.step()
            except (OSError, TidelogError) as error:
                logger.warning("scrubbing failed", of=name, error=str(error))
                return
            self._stats.scrubbed_bytes += size
            self._bytes_done += size
            await self._pace(begun_s, size)
        self._verified_s[name] = asyncio.get_running_loop().time()
        self._stats.scrubbed_logs += 1

    # -- pace --------------------------------------------------------------------------------------------------------

    @property
    def _due_s(self) -> float:
        """Loop time at which the next piece is due."""
        share = min(self._bytes_done / self._bytes_total, 1.0) if self._bytes_total else 0.0
        return self._begun_s + share * self._round_s

    async def _give_way(self) -> None:
        """Waits while flushes are under way, unless the scrubber is too late."""
        try:
            async with asyncio.timeout_at(self._due_s + LATE_MAX * self._round_s):
                await self._log_writer.idle()
        except TimeoutError:
            pass

    async def _pace(self, begun_s: float, size: int) -> None:
        wake_s = max(self._due_s, begun_s + size / self._bytes_per_s)
        await asyncio.sleep(max(0.0, wake_s - asyncio.get_running_loop().time()))
