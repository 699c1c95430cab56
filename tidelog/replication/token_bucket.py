"""A token bucket: keeps a rate per second, of bytes or of requests. Pure: each method is given the time.

Bytes flow into the bucket at the rate, and it holds `burst_s` seconds of the rate. A caller that moves data asks how
much it may move (`allowance`), moves at most that, or one batch if that is larger, and reports the amount (`spend`). A
larger batch leaves a debt, so that the rate is kept over any time, whatever the batches' sizes:

    taken within any t seconds  <=  rate x (t + burst_s) + one batch

A caller that cannot take a part (a request is served or not) asks instead how long the debt lasts (`owed_s`).
"""

from __future__ import annotations

UNLIMITED = 1 << 62
"""The allowance, in bytes, of a bucket without a rate."""
BURST_S = 0.25
"""The content of a full bucket, in seconds of the rate."""
# A bucket that gave out every byte would make callers move data in crumbs.
QUANTUM_S = 0.05
"""The smallest allowance that is given out, in seconds of the rate."""


class TokenBucket:
    """A token bucket for one rate per second. Without a rate (None) everything is allowed."""

    __slots__ = ("_at_s", "_burst_s", "_bytes", "rate")

    def __init__(self, burst_s: float = BURST_S) -> None:
        self.rate: float | None = None
        self._burst_s = burst_s
        self._bytes = 0.0
        """The content of the bucket, in bytes or requests; negative if more was taken than it held."""
        self._at_s = 0.0

    def set_rate(self, rate: float | None, now_s: float) -> None:
        """Sets another rate from `now_s` on. The bucket begins empty; a debt stays."""
        assert rate is None or rate > 0, rate
        if rate != self.rate:
            self._refill(now_s)
            self.rate = rate
            # What was saved at the old rate would be a burst at the new one; what is owed stays owed.
            self._bytes = min(self._bytes, 0.0) if rate is not None else 0.0

    def fill(self, now_s: float) -> None:
        """Fills the bucket to its limit."""
        self._at_s = max(self._at_s, now_s)
        self._bytes = self._full

    def owed_s(self, now_s: float) -> float:
        """Returns the seconds until the debt is paid, in which nothing should be taken; 0 without a debt."""
        if self.rate is None:
            return 0.0
        self._refill(now_s)
        return max(0.0, -self._bytes / self.rate)

    def allowance(self, now_s: float) -> int:
        """Returns the number of bytes that may be taken now."""
        if self.rate is None:
            return UNLIMITED
        self._refill(now_s)
        return int(self._bytes) if self._bytes >= self._quantum else 0

    def spend(self, count: float, now_s: float) -> None:
        """Takes `count` bytes or requests, even if that is more than the bucket holds."""
        assert count >= 0, count
        if self.rate is not None:
            self._refill(now_s)
            # Below zero it is the debt of a batch that was larger than the allowance.
            self._bytes -= count

    def ready_in_s(self, now_s: float) -> float:
        """Returns the seconds until there is an allowance, if nothing is taken before; 0 if there is one now."""
        if self.rate is None:
            return 0.0
        self._refill(now_s)
        return max(0.0, (self._quantum - self._bytes) / self.rate)

    @property
    def _quantum(self) -> float:
        assert self.rate is not None
        # At least one byte, or a bucket with a very small rate would never have an allowance.
        return max(1.0, self.rate * QUANTUM_S)

    @property
    def _full(self) -> float:
        return 0.0 if self.rate is None else max(1.0, self.rate * self._burst_s)

    def _refill(self, now_s: float) -> None:
        """Adds the inflow since the last call."""
        # Calls may come with times out of order: an earlier one must not be paid for twice.
        if self.rate is not None and now_s > self._at_s:
            self._bytes = min(self._full, self._bytes + (now_s - self._at_s) * self.rate)
        self._at_s = max(self._at_s, now_s)
