"""Whole simulated clusters, with faults and clients, of brokers that speak different feature levels."""

from __future__ import annotations

import pytest
from msgspec import structs

from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Scenario


def mixed(seed: int) -> Scenario:
    """Returns the scenario of a seed in which two of three brokers are of the oldest version."""
    scenario = draw_scenario(seed)
    old = tuple(node for node in scenario.swarm.nodes if node % 3)
    return structs.replace(scenario, swarm=structs.replace(scenario.swarm, first_level=old))


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_brokers_of_two_versions_are_one_cluster(seed: int) -> None:
    outcome = run_scenario(mixed(seed))
    assert outcome.violations == ()
