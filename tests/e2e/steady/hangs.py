"""A disk that hangs under a broker whose process lives: each write and flush waits until it is over.

It is the workload of `tidelog bench pause`, and its figures, with a disk that sleeps instead of a process.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.e2e.steady.disks import hanging, mounted
from tidelog.bench.pause import BROKERS, PauseOptions, measure_hits
from tidelog.bench.result import Progress
from tidelog.bench.secured import connection_of
from tidelog.testing import LocalCluster

SPARE_S = 10.0


async def measure_hangs(directory: Path, options: PauseOptions, progress: Progress) -> dict[str, float]:
    """Has a disk hang `options.pauses` times. Returns the figures. Raises `DisksUnavailable`."""
    with mounted(directory, BROKERS) as disks:
        async with LocalCluster(len(BROKERS), data_dir=directory) as cluster:
            hit = partial(hanging, disks, options.paused_s + SPARE_S)
            return await measure_hits(connection_of(cluster), hit, options, progress)
