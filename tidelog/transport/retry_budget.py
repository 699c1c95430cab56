"""A client's budget for trying again: what keeps clients from holding down a cluster that is already down.

When a cluster comes back, or is at its limit, it is met by the requests of all clients and by their repetitions, which
may be many times as many; then nothing succeeds, everything is repeated, and it stays so. A budget in the manner of
Finagle's `RetryBudget` and gRPC's retry throttling bounds the repetitions by what succeeds: each success brings `RATIO`
of a token, a second `RESERVE_PER_S` of them, up to `TOKENS_MAX`, and each repetition takes one.

Who finds none does try again, since a producer owes its records every attempt until their deadline; but much later
(`Backoff` says when). So a cluster that is down is asked little, however much waits. Pure: time comes in.
"""

from __future__ import annotations

from typing import Final

RATIO: Final = 0.1
RESERVE_PER_S: Final = 20.0
TOKENS_MAX: Final = 300.0


class RetryBudget:
    """The tokens of one client; all its requests share them."""

    def __init__(self) -> None:
        self._tokens = TOKENS_MAX
        self._at_s = 0.0

    def succeeded(self) -> None:
        """Adds to the tokens, since a request was answered with a success."""
        self._tokens = min(TOKENS_MAX, self._tokens + RATIO)

    def take(self, now_s: float) -> bool:
        """Takes a token for a repetition; False if there is none."""
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s += passed_s
        self._tokens = min(TOKENS_MAX, self._tokens + passed_s * RESERVE_PER_S)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
