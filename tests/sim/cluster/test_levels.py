"""Whole simulated clusters, with faults and clients, of brokers that speak different feature levels."""

from __future__ import annotations

from msgspec import structs

from tests.series import seeds
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Scenario, Strike

UNSEEN = ("directory missing", "old data directory", "tail beside a missing directory")
"""Faults that nobody recognises at the first level: the metadata do not know since when replicas are there, nor how
recent directories are."""


def mixed(seed: int) -> Scenario:
    """Returns the scenario of a seed in which two of three brokers are of the oldest version."""
    scenario = draw_scenario(seed, has_holes=False)
    old = tuple(node for node in scenario.swarm.nodes if node % 3)
    steps = tuple(step for step in scenario.steps if not isinstance(step, Strike) or step.kind not in UNSEEN)
    return structs.replace(scenario, steps=steps, swarm=structs.replace(scenario.swarm, first_level=old))


@seeds(1, 20)
def test_brokers_of_two_versions_are_one_cluster(seeds: range) -> None:
    for seed in seeds:
        assert run_scenario(mixed(seed)).violations == (), seed
