"""A rate in bytes per second, kept by a token bucket. Pure: time comes in with each question.

Bytes flow into the bucket at the rate, and it holds `BURST_S` worth of them. Whoever wants to move data asks how much
(`allowance`), moves at most that, or one batch if that is larger, and says how much it was (`spend`). A batch that was
larger leaves a debt, so that the rate is kept over any time, whatever the batches' sizes:

    taken within any t seconds  <=  rate x (t + BURST_S) + one batch

Allowances are not given out in crumbs: below `QUANTUM_S` worth of bytes there is none, and `ready_in_s` tells when.
"""

from __future__ import annotations

UNLIMITED = 1 << 62
BURST_S = 0.25
QUANTUM_S = 0.05


class TokenBucket:
    """One rate. Without one (None) everything is allowed."""

    def __init__(self) -> None:
        self.rate: int | None = None
        self._bytes = 0.0
        """Negative: a debt."""
        self._at_s = 0.0

    def set_rate(self, rate: int | None, now_s: float) -> None:
        """Another rate from now on. It begins with an empty bucket; a debt stays."""
        assert rate is None or rate > 0, rate
        if rate != self.rate:
            self._refill(now_s)
            self.rate = rate
            self._bytes = min(self._bytes, 0.0) if rate is not None else 0.0

    def allowance(self, now_s: float) -> int:
        """How many bytes may be taken now."""
        if self.rate is None:
            return UNLIMITED
        self._refill(now_s)
        return int(self._bytes) if self._bytes >= self._quantum else 0

    def spend(self, count: int, now_s: float) -> None:
        """So many bytes are taken."""
        assert count >= 0, count
        if self.rate is not None:
            self._refill(now_s)
            self._bytes -= count

    def ready_in_s(self, now_s: float) -> float:
        """After this time there is an allowance, if nobody takes it before; 0 if there is one now."""
        if self.rate is None:
            return 0.0
        self._refill(now_s)
        return max(0.0, (self._quantum - self._bytes) / self.rate)

    @property
    def _quantum(self) -> float:
        assert self.rate is not None
        return max(1.0, self.rate * QUANTUM_S)

    def _refill(self, now_s: float) -> None:
        """Time that runs backwards brings nothing."""
        if self.rate is not None and now_s > self._at_s:
            full = max(1.0, self.rate * BURST_S)
            self._bytes = min(full, self._bytes + (now_s - self._at_s) * self.rate)
        self._at_s = max(self._at_s, now_s)
