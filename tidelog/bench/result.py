"""The result of a benchmark run: figures with the units in their names, and the parameters of the run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

Options = TypeVar("Options")
Progress = Callable[[int, int], None]
"""Called from time to time with the finished and the total number of steps."""
PERCENTILES: Final = MappingProxyType({"p50": 500, "p99": 990, "p999": 999})
"""Percentile names and their thousandths."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run of a workload. `figures` are the measurements, `parameters` the options."""

    workload: str
    parameters: Mapping[str, object]
    figures: Mapping[str, float]

    def lines(self) -> list[tuple[str, str]]:
        """Returns (name, number) of each figure, formatted for people."""
        return [(name.replace("_", " "), _shown(value)) for name, value in self.figures.items()]


Workload = Callable[[Options, Progress], Coroutine[Any, Any, Result]]


def ignore(_done: int, _total: int) -> None:
    """Ignores progress."""


def percentiles_ms(seconds: Sequence[float], prefix: str = "") -> dict[str, float]:
    """Returns p50, p99 and p999 of durations in milliseconds, by the nearest-rank method; empty without durations."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        f"{prefix}{name}_ms": 1000 * ordered[-(-thousandths * len(ordered) // 1000) - 1]
        for name, thousandths in PERCENTILES.items()
    }


def rates(records: int, value_bytes: int, seconds: float) -> dict[str, float]:
    """Returns the throughput in records and in megabytes (10^6 bytes) of values per second, and the duration."""
    return {
        "records_per_s": records / seconds,
        "mb_per_s": value_bytes / seconds / 1e6,
        "duration_s": seconds,
    }


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
