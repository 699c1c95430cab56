from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import structs

from tidelog.sim.kit.shrink import Shrinking


class Scenario(msgspec.Struct, frozen=True):
    steps: tuple[int, ...]
    seed: int = 1
    nodes: int = 5
    loss: float = 0.1


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.nodes > 1:
        yield structs.replace(scenario, nodes=scenario.nodes - 1)
    yield structs.replace(scenario, loss=0.0)


def test_steps_that_are_not_needed_go() -> None:
    shrinking = Shrinking(Scenario(tuple(range(40))), lambda scenario: {7, 30} <= set(scenario.steps))
    assert shrinking.run() == Scenario((7, 30))
    assert shrinking.runs < 60


def test_simpler_versions_add_up() -> None:
    shrinking = Shrinking(Scenario((1, 2)), lambda scenario: 2 in scenario.steps and scenario.nodes >= 3)
    assert shrinking.run(simpler) == Scenario((2,), nodes=3, loss=0.0)


def test_a_step_goes_that_is_needed_no_more_once_all_is_simpler() -> None:
    """Fewer nodes need fewer steps, so steps are tried again after all else."""
    shrinking = Shrinking(Scenario(tuple(range(9))), lambda scenario: len(scenario.steps) >= scenario.nodes)
    assert shrinking.run(simpler) == Scenario((0,), nodes=1, loss=0.0)


def test_what_is_left_always_fails() -> None:
    tried: list[tuple[Scenario, bool]] = []

    def fails(scenario: Scenario) -> bool:
        tried.append((scenario, sum(scenario.steps) % 3 == 0))
        return tried[-1][1]

    smaller = Shrinking(Scenario((1, 2, 3, 4, 5)), fails).run(simpler)
    assert smaller == [scenario for scenario, failed in tried if failed][-1]


def test_the_work_has_a_bound() -> None:
    shrinking = Shrinking(Scenario(tuple(range(100))), lambda _: False, runs_max=5)
    assert shrinking.run(simpler) == Scenario(tuple(range(100)))
    assert shrinking.runs == 5
