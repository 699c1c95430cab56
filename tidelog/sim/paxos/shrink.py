"""Makes a failing scenario smaller, as long as it fails in the same way.

Actions go first, by halves, quarters and so on (Zeller's ddmin, greedily); then whole kinds of trouble; then messages,
each of which is as good as lost. What is left is usually a history that fits on a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import structs

from tidelog.sim.paxos.scenario import Scenario, Swarm

T = TypeVar("T")
Fails = Callable[[Scenario], bool]
"""Does this scenario fail like the first?"""

SIMPLER: tuple[tuple[str, Any], ...] = (
    ("duplicate", 0.0),
    ("loss", 0.0),
    ("deafness", 0.0),
    ("late", 0.0),
    ("ambition", 0.0),
    ("delay_spread", 0),
    ("disk_ticks", 0),
    ("mood", "none"),
    ("window", 1),
    ("window", 2),
)
"""Values of parameters that make less happen."""


class Shrinking:
    """Of one scenario; `runs_max` bounds the work."""

    def __init__(self, scenario: Scenario, fails: Fails, *, runs_max: int = 3000) -> None:
        self.scenario = scenario
        self.runs = 0
        self._fails = fails
        self._runs_max = runs_max

    def run(self, messages: Callable[[Scenario], int]) -> Scenario:
        """The smallest scenario found; `messages` counts those of a run."""
        before = None
        while before != self.scenario and self.runs < self._runs_max:
            before = self.scenario
            self._shrink(self.scenario.plan, lambda plan: structs.replace(self.scenario, plan=tuple(plan)))
            self._simplify()
        ordinals = [n for n in range(1, messages(self.scenario) + 1) if n not in self.scenario.dropped]
        self._drop(ordinals)
        return self.scenario

    def _try(self, candidate: Scenario) -> bool:
        if self.runs >= self._runs_max or candidate == self.scenario:
            return False
        self.runs += 1
        if not self._fails(candidate):
            return False
        self.scenario = candidate
        return True

    def _shrink(self, items: Sequence[T], build: Callable[[list[T]], Scenario]) -> None:
        """Leaves out as many items as it can."""
        kept = list(items)
        for start, stop in _chunks(len(kept)):
            fewer = kept[:start] + kept[stop:]
            if stop <= len(kept) and self._try(build(fewer)):
                kept = fewer

    def _drop(self, ordinals: Sequence[int]) -> None:
        """Loses as many messages as it can."""
        for start, stop in _chunks(len(ordinals)):
            dropped = {*self.scenario.dropped, *ordinals[start:stop]}
            self._try(structs.replace(self.scenario, dropped=tuple(sorted(dropped))))

    def _simplify(self) -> None:
        for field, value in SIMPLER:
            swarm: Swarm = structs.replace(self.scenario.swarm, **{field: value})
            self._try(structs.replace(self.scenario, swarm=swarm))


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """Slices of a list of this length, the larger ones first, each size from the end on."""
    size = count
    while size >= 1:
        for stop in range(count, 0, -size):
            yield max(0, stop - size), stop
        size //= 2
