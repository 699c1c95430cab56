"""The outcome of a run that is made up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Ran:
    seed: int
    failure: Exception | None = None
    counters: Counter[str] = field(default_factory=Counter)

    @property
    def amount(self) -> int:
        return self.seed
