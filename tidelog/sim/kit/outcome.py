"""Outcomes of runs, and counts of events by the brokers' log lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


class Scenario(Protocol):
    """Part that all scenarios have in common; each is a `msgspec.Struct`."""

    @property
    def seed(self) -> int: ...

    @property
    def steps(self) -> tuple[Any, ...]: ...


S = TypeVar("S", bound=Scenario)


@dataclass(frozen=True)  # without slots, so that it can be made by its alias for one kind of scenario
class ScenarioOutcome(Generic[S]):
    """Outcome of a run that simulates the pure cores alone."""

    scenario: S
    amount: int
    """Amount of work in the run, in the simulator's own unit: events, or batches committed."""
    trace: int
    """Hash of the run, equal for equal scenarios in every process."""
    counters: Counter[str]
    failure: Exception | None = None

    @property
    def seed(self) -> int:
        return self.scenario.seed

    @property
    def verdict(self) -> str:
        """Failure in a few words, the same for runs that fail alike; empty if there was none."""
        if self.failure is None:
            return ""
        text = str(self.failure).partition("\n")[0]
        return text.partition(":")[0] if ":" in text else f"{type(self.failure).__name__} {text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run with whole brokers or with storage."""

    seed: int
    violations: tuple[str, ...]
    trace: str
    """Hash of the run, equal for equal seeds in every process."""
    counters: Counter[str]
    records_acknowledged: int
    events: tuple[str, ...] = ()
    """Noted events, line by line, if they were asked for."""


def count_logged(counters: Counter[str], logs: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> None:
    """Counts log entries by event; `names` maps a text in the entry to the name of the event."""
    for entry in logs:
        said = f"{entry.get('event')} {entry.get('finding', '')}"
        counters.update(name for fragment, name in names.items() if fragment in said)
