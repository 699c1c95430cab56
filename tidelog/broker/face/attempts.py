"""Failed logins, counted by user and client address, so that a password cannot be guessed by trying.

An attempt counts from its beginning, so that many concurrent attempts do not pass the bound. Pure: callers pass the
time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidelog.model.errors import TooManyAttempts

FAILURES_MAX: Final = 5
WINDOW_S: Final = 60.0
KEPT_MAX: Final = 10_000

Attempter = tuple[str, str]
"""A user name and a client address."""


class Attempts:
    """The logins of the last minute that have not succeeded, by user and client address."""

    def __init__(self) -> None:
        self._begun: dict[Attempter, deque[float]] = {}

    def begin(self, who: Attempter, now_s: float) -> None:
        """Counts a login attempt. Raises `TooManyAttempts` if too many have failed in the last minute."""
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
        """Removes the attempts of a user and address after a login with the right password."""
        self._begun.pop(who, None)
