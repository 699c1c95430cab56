"""Whole simulated clusters, with faults and clients, whose brokers prove to each other that they know a secret."""

from __future__ import annotations

from msgspec import structs

from tests.series import seeds
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario


@seeds(1, 20)
def test_brokers_with_a_secret_are_a_cluster_as_any(seeds: range) -> None:
    for seed in seeds:
        scenario = draw_scenario(seed)
        swarm = structs.replace(scenario.swarm, has_secret=True)
        assert run_scenario(structs.replace(scenario, swarm=swarm)).violations == (), seed
