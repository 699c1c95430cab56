"""How long to wait before trying again: exponential, jittered, bounded (Kafka: `retry.backoff.ms`, `.max.ms`).

The jitter takes away up to half: clients that lost the same broker at the same moment come back spread out.
"""

from __future__ import annotations

from tidelog.model.ports import Entropy

DOUBLINGS_MAX = 32


class Backoff:
    """Waits for the retries of one request; `reset` when something went well."""

    def __init__(self, entropy: Entropy, *, initial_s: float = 0.1, max_s: float = 1.0) -> None:
        assert 0 < initial_s <= max_s
        self._entropy = entropy
        self._initial_s = initial_s
        self._max_s = max_s
        self._attempts = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Seconds to wait before the next try; at least what a broker asked for by `Retry-After`, within the bound."""
        ceiling = min(self._max_s, self._initial_s * 2.0 ** min(self._attempts, DOUBLINGS_MAX))
        self._attempts += 1
        wait_s = ceiling * self._entropy.uniform(0.5, 1.0)
        return max(wait_s, min(at_least_s, self._max_s))

    def reset(self) -> None:
        self._attempts = 0
