"""What one seed came to, and how what brokers log is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed came to."""

    seed: int
    violations: tuple[str, ...]
    trace: str
    """Equal for equal seeds, in every process."""
    counters: Counter[str]
    records_acknowledged: int
    events: tuple[str, ...] = ()
    """What happened, line by line, if it was asked for."""


def count_logged(counters: Counter[str], logs: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> None:
    """Counts entries of a log; `names` has parts of what is logged, and what each counts as."""
    for entry in logs:
        said = f"{entry.get('event')} {entry.get('finding', '')}"
        counters.update(name for fragment, name in names.items() if fragment in said)
