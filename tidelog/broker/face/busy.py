"""How busy the event loop's thread is. Pure: it is told the time and what the thread took, again and again.

Busy is a thread that runs, or would if it had a processor. The processor time alone would hide the worst case, a
machine that gives the broker too little of it: there a loop that waits for nothing but its turn looks idle.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LOOK_S: Final = 1.0
LOOKS: Final = 10


class Busy:
    """The share of the last `LOOKS` looks, which are `LOOK_S` apart or more."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float]] = deque(maxlen=LOOKS + 1)

    def is_due(self, now_s: float) -> bool:
        """Returns True if it should be told again what the thread took."""
        return not self._looks or now_s - self._looks[-1][0] >= LOOK_S

    def measured(self, now_s: float, busy_s: float) -> None:
        """Records at `now_s` the seconds that the thread has been busy in all, counted from any fixed moment."""
        self._looks.append((now_s, busy_s))

    @property
    def share(self) -> float:
        """The part of the time that the thread was busy, from 0 to 1."""
        if len(self._looks) <= 1:
            return 0.0
        (first_s, first_busy_s), (last_s, last_busy_s) = self._looks[0], self._looks[-1]
        return min(1.0, max(0.0, (last_busy_s - first_busy_s) / (last_s - first_s)))
