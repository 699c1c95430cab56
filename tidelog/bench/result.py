"""The description of a workload, and the measurements of its run: figures with their units in their names, parameters
beside them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import uvloop

from tidelog.adapters.heap import collect_seldom

Options = TypeVar("Options")
Progress = Callable[[int, int], None]
"""Called now and then with what is done, and what there is in all."""
PERCENTILES: Final = MappingProxyType({"p50": 500, "p99": 990, "p999": 999})
"""Names, and thousandths."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run. `figures` are the measurements, `parameters` the options."""

    workload: str
    parameters: Mapping[str, object]
    figures: Mapping[str, float]

    def lines(self) -> list[tuple[str, str]]:
        """The figures for people: name and number."""
        return [(name.replace("_", " "), _shown(value)) for name, value in self.figures.items()]


Workload = Callable[[Options, Progress], Coroutine[Any, Any, Result]]


def ignore(_done: int, _total: int) -> None:
    """The `Progress` of who does not watch."""


def run(workload: Workload[Options], options: Options, progress: Progress = ignore) -> Result:
    """Runs a workload in an event loop of its own, in a process that looks for garbage seldom from now on."""
    collect_seldom()
    return uvloop.run(workload(options, progress))


def percentiles_ms(seconds: Sequence[float], prefix: str = "") -> dict[str, float]:
    """p50, p99 and p999 of durations, in milliseconds, by the nearest rank; empty if there are none."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        f"{prefix}{name}_ms": 1000 * ordered[-(-thousandths * len(ordered) // 1000) - 1]
        for name, thousandths in PERCENTILES.items()
    }


def rates(records: int, value_bytes: int, seconds: float) -> dict[str, float]:
    """Throughput: records, and megabytes (10^6) of values, per second."""
    return {
        "records_per_s": records / seconds,
        "mb_per_s": value_bytes / seconds / 1e6,
        "duration_s": seconds,
    }


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
