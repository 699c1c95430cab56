"""The outcome of a run, and the counts of the brokers' log lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


class Scenario(Protocol):
    """The input that determines a run, as far as all scenarios are alike: each is a `msgspec.Struct`."""

    @property
    def seed(self) -> int: ...

    @property
    def steps(self) -> tuple[Any, ...]: ...


S = TypeVar("S", bound=Scenario)


@dataclass(frozen=True)  # without slots, so that it can be made by its alias for one kind of scenario
class ScenarioOutcome(Generic[S]):
    """The outcome of a scenario of pure cores."""

    scenario: S
    amount: int
    """The amount of work, in whatever tells most about such a run: events, batches committed."""
    trace: int
    """Equal for equal scenarios, in every process."""
    counters: Counter[str]
    failure: Exception | None = None

    @property
    def seed(self) -> int:
        return self.scenario.seed

    @property
    def verdict(self) -> str:
        """The failure in a few words; empty if there was none. Runs that fail alike have the same."""
        if self.failure is None:
            return ""
        text = str(self.failure).partition("\n")[0]
        return text.partition(":")[0] if ":" in text else f"{type(self.failure).__name__} {text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a seed, with whole brokers or storage."""

    seed: int
    violations: tuple[str, ...]
    trace: str
    """Equal for equal seeds, in every process."""
    counters: Counter[str]
    records_acknowledged: int
    events: tuple[str, ...] = ()
    """The events, line by line, if they were asked for."""


def count_logged(counters: Counter[str], logs: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> None:
    """Counts entries of a log; `names` has parts of what is logged, and what each counts as."""
    for entry in logs:
        said = f"{entry.get('event')} {entry.get('finding', '')}"
        counters.update(name for fragment, name in names.items() if fragment in said)
