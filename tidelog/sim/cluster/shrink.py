"""Makes a failing scenario smaller, as long as it breaks the same rule.

Steps go first, by halves, quarters and so on (Zeller's ddmin, greedily), then brokers, then whole kinds of trouble.
Strikes are shortened last. What is left is usually a handful of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import structs

from tidelog.sim.cluster.groups.plans import GroupTraffic, Mishap, simpler
from tidelog.sim.cluster.scenario import Scenario, Strike, Swarm
from tidelog.sim.cluster.traffic import Traffic

RUNS_MAX = 300

Fails = Callable[[Scenario], bool]
"""Does this scenario fail like the first?"""


class Shrinking:
    """Of one scenario; `runs_max` bounds the work."""

    def __init__(self, scenario: Scenario, fails: Fails, *, runs_max: int = RUNS_MAX) -> None:
        self.scenario = scenario
        self.runs = 0
        self._fails = fails
        self._runs_max = runs_max

    def run(self) -> Scenario:
        """The smallest scenario found."""
        before = None
        while before != self.scenario and self.runs < self._runs_max:
            before = self.scenario
            self._leave_out_steps()
            for swarm in _simpler(self.scenario.swarm):
                self._try(structs.replace(self.scenario, swarm=swarm))
            self._shorten()
        return self.scenario

    def _try(self, candidate: Scenario) -> bool:
        if self.runs >= self._runs_max or candidate == self.scenario:
            return False
        self.runs += 1
        if not self._fails(candidate):
            return False
        self.scenario = candidate
        return True

    def _leave_out_steps(self) -> None:
        size = len(self.scenario.steps)
        while size >= 1:
            stop = len(self.scenario.steps)
            while stop > 0:
                steps = self.scenario.steps
                self._try(structs.replace(self.scenario, steps=steps[: max(0, stop - size)] + steps[stop:]))
                stop -= size
            size //= 2

    def _shorten(self) -> None:
        for place, step in enumerate(self.scenario.steps):
            if isinstance(step, (Strike, Mishap)) and step.lasts_s > 0.1:
                shorter = structs.replace(step, lasts_s=round(step.lasts_s / 2, 4))
                steps = (*self.scenario.steps[:place], shorter, *self.scenario.steps[place + 1 :])
                self._try(structs.replace(self.scenario, steps=steps))


def _simpler(swarm: Swarm) -> Iterator[Swarm]:
    """Swarms in which less happens."""
    if swarm.learners:
        yield structs.replace(swarm, learners=swarm.learners - 1)
    if swarm.groups.groups:
        yield structs.replace(swarm, groups=GroupTraffic())
        yield from (structs.replace(swarm, groups=groups) for groups in simpler(swarm.groups))
    yield structs.replace(swarm, traffic=Traffic(), groups=GroupTraffic())
    traffic = swarm.traffic
    for producer in traffic.producers:
        fewer = tuple(other for other in traffic.producers if other is not producer)
        yield structs.replace(swarm, traffic=structs.replace(traffic, producers=fewer))
    yield structs.replace(swarm, traffic=structs.replace(traffic, tunes=False))
    yield structs.replace(swarm, clock_drift=0.0)
    yield structs.replace(swarm, delay_min_s=0.0, delay_mean_s=0.0005)
    yield structs.replace(swarm, disk_delay_s=0.0005)
    yield structs.replace(swarm, is_calm_at_first=True)
    yield structs.replace(swarm, settings=dict(swarm.settings) | {"metadata.log.snapshot.records": 1_000})
