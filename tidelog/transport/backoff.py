"""Retry backoff: exponential, jittered, bounded (Kafka: `retry.backoff.ms`, `retry.backoff.max.ms`).

The jitter takes away up to half of a wait, so that clients that lost the same broker at the same moment do not return
at the same moment. Once the client's retry budget (`retry_budget.py`) is used up, a wait is `EXHAUSTED_S`. A
`Retry-After` of an overloaded broker is respected up to that bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from tidelog.model.ports import Entropy

DOUBLINGS_MAX: Final = 32
EXHAUSTED_S: Final = 5.0


@dataclass(eq=False)
class Backoff:
    """The waits between the retries of one request. The caller calls `reset` after a success.

    `may_retry` is called once per retry; it returns False when the client's retry budget is used up, which makes the
    wait longer.
    """

    _entropy: Entropy
    _: KW_ONLY
    initial_s: float = 0.1
    max_s: float = 1.0
    may_retry: Callable[[], bool] = lambda: True
    _attempts: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 0 < self.initial_s <= self.max_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Returns the seconds to wait before the next retry: at least `at_least_s`, the `Retry-After` of a broker,
        within the bound."""
        ceiling = min(self.max_s, self.initial_s * 2.0 ** min(self._attempts, DOUBLINGS_MAX))
        self._attempts += 1
        if not self.may_retry():
            ceiling = max(ceiling, EXHAUSTED_S)
        wait_s = ceiling * self._entropy.uniform(0.5, 1.0)
        return max(wait_s, min(at_least_s, max(self.max_s, EXHAUSTED_S)))

    def reset(self) -> None:
        self._attempts = 0
