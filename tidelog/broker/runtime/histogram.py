"""Durations counted in buckets: plain numbers, from which a listener makes a Prometheus histogram."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """A count for each bucket of `BUCKETS_S` and one for longer durations, and the sum of the durations."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds += seconds
