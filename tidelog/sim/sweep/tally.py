"""Results of a sweep, counted by protocol, damage and stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.sim.sweep.rounds import Played, Series
from tidelog.sim.sweep.verdicts import Result, Verdict

FAILED: Final = [verdict for verdict in Verdict if verdict is not Verdict.RECOVERED]


class Tally:
    """Results by series, and the failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._results: dict[Series, list[Result]] = {}

    def add(self, played: Played) -> list[str]:
        """Counts a round; returns a line of text for each failure."""
        self._results.setdefault(played.series, []).extend(played.results)
        lines = [*_failures(played)]
        self.failures += lines
        return lines

    def summary(self, series: Series) -> str:
        """Returns a line about a completed series."""
        results = self._results[series]
        recovered = sum(result.verdict is Verdict.RECOVERED for result in results)
        return f"{series.name}: {recovered:,} of {len(results):,} as they should be"

    def figures(self) -> list[dict[str, str | int | float]]:
        """Returns the rows of the result table, as mappings from column to value."""
        return [_figures(series, results) for series, results in self._results.items()]

    def lines(self) -> Iterator[str]:
        """Yields the result table as lines of text; without the columns of verdicts that no log got."""
        figures = self.figures()
        names = [
            name for name in (figures[0] if figures else ()) if name not in FAILED or any(row[name] for row in figures)
        ]
        cells = [
            names,
            *(
                [f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in names]
                for row in figures
            ),
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _failures(played: Played) -> Iterator[str]:
    plan = played.series.plan
    where = f"{played.series.name} round {played.number}"
    for result in played.results:
        if result.verdict is not Verdict.RECOVERED:
            wiped = f" wiped={result.case.wiped}" if result.case.wiped else ""
            pattern = f"pattern={result.case.pattern_text(plan.variant.replicas)}{wiped}"
            yield f"{result.verdict}: {where}: {pattern}: {result.detail}"
    yield from (f"unforeseen: {where}: {error}" for error in played.errors)


def _figures(series: Series, results: list[Result]) -> dict[str, str | int | float]:
    plan = series.plan
    good = [result for result in results if not result.lost]
    others = [result for result in results if result.lost]
    return {
        "protocol": str(plan.protocol),
        "stop": str(plan.stop),
        "damage": str(series.damage),
        "variant": str(plan.variant),
        "good copies": len(good),
        "recovered": sum(result.verdict is Verdict.RECOVERED for result in good),
        "others": len(others),
        "as they should be": sum(result.verdict is Verdict.RECOVERED for result in others),
        "entries lost": sum(result.lost for result in others),
        "answered so": sum(result.answered for result in others),
        **{str(verdict): sum(result.verdict is verdict for result in results) for verdict in FAILED},
        "longest, s": round(max((result.seconds for result in results), default=0.0), 1),
    }
