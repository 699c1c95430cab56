"""A client's retry budget, which bounds the load of retries on a cluster that is down or overloaded.

When a cluster returns or is at its limit, the retries of all clients may be many times its normal load; then nothing
succeeds, everything is retried, and the overload persists. A budget as in Finagle's `RetryBudget` and gRPC's retry
throttling bounds retries by successes: each success adds `RATIO` of a token, each second `RESERVE_PER_S`, up to
`TOKENS_MAX`, and each retry takes one.

Without a token a retry still happens, since a producer has to try until a record's deadline, but much later (see
`Backoff`). Pure: the time is an argument.
"""

from __future__ import annotations

from typing import Final

RATIO: Final = 0.1
RESERVE_PER_S: Final = 20.0
TOKENS_MAX: Final = 300.0


class RetryBudget:
    """The retry tokens of one client, shared by all its requests."""

    def __init__(self) -> None:
        self._tokens = TOKENS_MAX
        self._at_s = 0.0

    def succeeded(self) -> None:
        """Adds `RATIO` of a token, after a successful response."""
        self._tokens = min(TOKENS_MAX, self._tokens + RATIO)

    def take(self, now_s: float) -> bool:
        """Takes a token for a retry; returns False if there is none."""
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s += passed_s
        self._tokens = min(TOKENS_MAX, self._tokens + passed_s * RESERVE_PER_S)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
