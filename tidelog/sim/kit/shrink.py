"""Makes a failing scenario smaller, as long as it fails in the same way.

Steps go first, by halves, quarters and so on (Zeller's ddmin, greedily); then the scenario's own simpler versions are
tried. What remains is usually a handful of steps, a history that fits on a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from msgspec import structs

from tidelog.sim.kit.outcome import S

T = TypeVar("T")


class Shrinking(Generic[S]):
    """The shrinking of one scenario.

    `fails` says whether a candidate fails like the first one; it is called `runs_max` times at most.
    """

    def __init__(self, scenario: S, fails: Callable[[S], bool], *, runs_max: int = 3000) -> None:
        self.scenario = scenario
        """Smallest failing scenario so far."""
        self.runs = 0
        self._fails = fails
        self._runs_max = runs_max

    def run(self, simpler: Callable[[S], Iterable[S]] = lambda _: ()) -> S:
        """Leaves out steps and simplifies, until neither changes anything."""
        before = None
        while before != self.scenario and self.runs < self._runs_max:
            before = self.scenario
            self.leave_out(self.scenario.steps, _with_steps)
            self.simplify(simpler)
        return self.scenario

    def leave_out(self, items: Sequence[T], build: Callable[[S, tuple[T, ...]], S]) -> None:
        """Leaves out as many items as possible; `build` makes a scenario with the kept items."""
        kept, size = tuple(items), len(items)
        while size >= 1:
            for stop in range(len(kept), 0, -size):  # from the end on: what goes does not shift what is still to come
                fewer = kept[: max(0, stop - size)] + kept[stop:]
                if self._try(build(self.scenario, fewer)):
                    kept = fewer
            size //= 2

    def simplify(self, simpler: Callable[[S], Iterable[S]]) -> None:
        """Tries each simpler version of the scenario. Once one fails, the next tried are simpler versions of
        that one."""
        tried = 0
        while (candidate := next(islice(simpler(self.scenario), tried, None), None)) is not None:
            tried += not self._try(candidate)

    def _try(self, candidate: S) -> bool:
        if self.runs >= self._runs_max or candidate == self.scenario:
            return False
        self.runs += 1
        if not self._fails(candidate):
            return False
        self.scenario = candidate
        return True


def _with_steps(scenario: S, steps: tuple[Any, ...]) -> S:
    return cast("S", structs.replace(cast("Any", scenario), steps=steps))
