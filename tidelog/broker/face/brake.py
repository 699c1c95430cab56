"""The brake: decides what a listener refuses while the event loop runs late. Pure: callers pass each measurement.

A broker runs on one event loop, so the delay of a timer is the delay of everything, also of heartbeats and replication,
which may not be refused. The delay gate of each request class sees only the waits of its own requests; the brake sees
the load of all work together.

It has levels, which refuse the least harmful first: long polls, then all reads and administration, then produces. What
counts is the median of the last measurements, since a single pause (garbage collector, disk, hypervisor) is no
overload. A level is left at half the lag at which it is reached, because the refusals themselves reduce the lag. While
the lag is low it is measured seldom, since each measurement wakes an idle broker; a high one is followed by others
soon.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

MEASUREMENTS: Final = 9
MEASURE_S: Final = 0.05
CALM_MEASURE_S: Final = 0.25
FACTORS: Final = (1, 2, 4)
"""Lag at which each level is reached, as a multiple of the first level's."""


class Brake:
    """The brake of one listener. Its level is 0 without overload and at most `len(FACTORS)`."""

    def __init__(self, lag_s_max: float) -> None:
        assert lag_s_max > 0
        self._bounds_s = [lag_s_max * factor for factor in FACTORS]
        self._lags_s: deque[float] = deque([0.0] * MEASUREMENTS, MEASUREMENTS)
        self.lag_s = 0.0
        """Median lag of the event loop in the last measurements, in seconds."""
        self.level = 0

    @property
    def next_s(self) -> float:
        """Seconds until the next measurement."""
        return CALM_MEASURE_S if max(self._lags_s) < self._bounds_s[0] / 2 else MEASURE_S

    def measured(self, lag_s: float) -> None:
        """Records a measurement, the seconds by which a timer fired late, and updates the level."""
        self._lags_s.append(lag_s)
        self.lag_s = median(self._lags_s)
        reached = sum(self.lag_s >= bound_s for bound_s in self._bounds_s)
        held_level = sum(self.lag_s >= bound_s / 2 for bound_s in self._bounds_s)
        self.level = max(reached, min(self.level, held_level))
