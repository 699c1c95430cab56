"""The load of the event loop's thread. Pure: callers pass the time and the seconds that the thread was busy.

A thread is busy while it runs or waits for a processor. Processor time alone would hide the worst case, a machine that
gives the broker too little of it: there an overloaded event loop looks idle.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LOOK_S: Final = 1.0
LOOKS: Final = 10


class Busy:
    """The load of the event loop's thread over the last `LOOKS` measurements, which are at least `LOOK_S` apart."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float]] = deque(maxlen=LOOKS + 1)

    def is_due(self, now_s: float) -> bool:
        """Returns True if the next measurement is due."""
        return not self._looks or now_s - self._looks[-1][0] >= LOOK_S

    def measured(self, now_s: float, busy_s: float) -> None:
        """Records at `now_s` the total seconds that the thread has been busy since any fixed moment."""
        self._looks.append((now_s, busy_s))

    @property
    def share(self) -> float:
        """Fraction of the time for which the thread was busy, from 0 to 1."""
        if len(self._looks) <= 1:
            return 0.0
        (first_s, first_busy_s), (last_s, last_busy_s) = self._looks[0], self._looks[-1]
        return min(1.0, max(0.0, (last_busy_s - first_busy_s) / (last_s - first_s)))
