"""Failed attempts to log in, counted by user and address, so that a password cannot be found by trying.

An attempt counts from when it begins: many at once are no way round. Pure: it is told the time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidelog.model.errors import TooManyAttempts

FAILURES_MAX: Final = 5
WINDOW_S: Final = 60.0
KEPT_MAX: Final = 10_000

Attempter = tuple[str, str]
"""A user's name, and an address."""


class Attempts:
    """The attempts of the last minute that have not succeeded."""

    def __init__(self) -> None:
        self._begun: dict[Attempter, deque[float]] = {}

    def begin(self, who: Attempter, now_s: float) -> None:
        """Counts an attempt. Raises `TooManyAttempts`."""
        begun = self._begun.setdefault(who, deque())
        while begun and begun[0] <= now_s - WINDOW_S:
            begun.popleft()
        if len(begun) >= FAILURES_MAX:
            wait_s = max(1, round(begun[0] + WINDOW_S - now_s + 0.5))
            raise TooManyAttempts("too many attempts to log in have failed; wait, and check the password", wait_s)
        begun.append(now_s)
        if len(self._begun) > KEPT_MAX:
            del self._begun[next(iter(self._begun))]

    def succeeded(self, who: Attempter) -> None:
        """Forgets the failures of a user and address, since the password was right."""
        self._begun.pop(who, None)
