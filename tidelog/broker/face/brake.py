"""The brake: what a listener refuses while the event loop runs late. Pure: it is told of each measurement.

All that a broker does runs on one event loop, so how late a timer fires is how long everything waits: heartbeats and
the replication, too, which nobody may refuse. The gates of the classes see only the waits of their own requests; the
brake sees what all work together makes of the loop, whoever gave it.

It works by levels, least harm first: reads that would wait for data, then all reads and administration, then produces.
What counts is the median of the last measurements, since one pause (the garbage collector, a disk, the hypervisor) is
no load. A level is left at half the lag that it is reached at, or the refusals themselves would end it at once. While
all is well it is measured seldom, as each measurement wakes an idle broker; a late one is followed up at once.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

MEASUREMENTS: Final = 9
MEASURE_S: Final = 0.05
CALM_MEASURE_S: Final = 0.25
FACTORS: Final = (1, 2, 4)
"""The lag of each level, as a multiple of the first."""


class Brake:
    """The brake of one listener, with its level: 0 while all is well, at most `len(FACTORS)`."""

    def __init__(self, lag_s_max: float) -> None:
        assert lag_s_max > 0
        self._bounds_s = [lag_s_max * factor for factor in FACTORS]
        self._lags_s: deque[float] = deque([0.0] * MEASUREMENTS, MEASUREMENTS)
        self.lag_s = 0.0
        """The median of the last measurements."""
        self.level = 0

    @property
    def next_s(self) -> float:
        """The seconds to wait before the next measurement."""
        return CALM_MEASURE_S if max(self._lags_s) < self._bounds_s[0] / 2 else MEASURE_S

    def measured(self, lag_s: float) -> None:
        """Takes a measurement, the seconds that a timer fired too late, and sets the level by the last ones."""
        self._lags_s.append(lag_s)
        self.lag_s = median(self._lags_s)
        reached = sum(self.lag_s >= bound_s for bound_s in self._bounds_s)
        held_level = sum(self.lag_s >= bound_s / 2 for bound_s in self._bounds_s)
        self.level = max(reached, min(self.level, held_level))
