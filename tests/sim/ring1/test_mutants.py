"""Each rule taken away is missed: the simulator finds every mutant, and nothing without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.ring1.mutants import (
    MUTANTS,
    Patch,
    mutated,
    rejoined_before_its_log_is_durable,
)
from tidelog.sim.ring1.drawing import draw_scenario
from tidelog.sim.ring1.run import run_scenario

SEEDS_MAX = 300
RARE = {rejoined_before_its_log_is_durable: 2250}
"""Where to begin with those that take more seeds: a little before the first that finds them."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant: Callable[[], list[Patch]]) -> None:
    first = RARE.get(mutant, 0)
    with mutated(mutant):
        outcomes = (run_scenario(draw_scenario(seed)) for seed in range(first, first + SEEDS_MAX))
        found = next((outcome for outcome in outcomes if outcome.failure is not None), None)
    assert found is not None
    assert run_scenario(found.scenario).failure is None, "and it is the mutant that was found"
