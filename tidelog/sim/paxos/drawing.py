"""Draws scenarios from seeds. Two of three have a fixed set of voters (`plans.py`); in the third the voters change
(`voter_plans.py`). One of four has a log that is ordered by key."""

from __future__ import annotations

from msgspec import structs

from tidelog.sim.kit.seeds import stream
from tidelog.sim.paxos import plans
from tidelog.sim.paxos.scenario import Scenario
from tidelog.sim.paxos.voter_plans import draw_changes, draw_lineage

VOTERS_EVERY = 3
NODES = (1, 1, 2, 2, 3, 3, 3, 4, 5)
SPARES = (1, 1, 2, 3)
KEYED_SHARE = 0.25
KEYS = (1, 2, 2, 3, 3, 8, 30, 30)
HOLE_SPANS = (3, 4, 8, 16, 16)


def draw_scenario(seed: int) -> Scenario:
    """Returns the scenario of a seed, always the same one."""
    scenario = _in_order(_draw(seed))
    beliefs = plans.draw_beliefs(stream(seed, "beliefs"), scenario.swarm, list(scenario.steps))
    return structs.replace(scenario, steps=tuple(sorted([*scenario.steps, *beliefs], key=lambda item: item[0])))


def _in_order(scenario: Scenario) -> Scenario:
    """Returns the scenario, with a log that is ordered by key if its seed is one of those."""
    rng = stream(scenario.seed, "keys")
    if rng.random() >= KEYED_SHARE:
        return scenario
    keys, window = rng.choice(KEYS), rng.choice(HOLE_SPANS)
    return structs.replace(scenario, swarm=structs.replace(scenario.swarm, keys=keys, window=window))


def _draw(seed: int) -> Scenario:
    if seed % VOTERS_EVERY == VOTERS_EVERY - 1:
        return _draw_changing(seed)
    rng = stream(seed, "plan")
    swarm = plans.draw_swarm(rng)
    if rng.random() < 0.1:
        nodes, mood = rng.choice((3, 3, 4, 5)), rng.choice(("some", "torn"))
        swarm = structs.replace(swarm, nodes=nodes, mood=mood, is_founded=True, loss=0.0)
        return Scenario(seed, swarm, tuple(plans.draw_rejoins(rng, swarm)))
    plan = plans.draw_mixed(rng, swarm) if rng.random() < 0.4 else plans.draw_episodes(rng, swarm)
    if not swarm.is_founded and rng.random() < 0.8:
        plan = sorted([*plan, *plans.draw_early_loss(rng, swarm)], key=lambda item: item[0])
    return Scenario(seed, swarm, tuple(plan))


def _draw_changing(seed: int) -> Scenario:
    rng = stream(seed, "plan")
    swarm = structs.replace(plans.draw_swarm(rng), nodes=rng.choice(NODES), is_founded=True, spares=rng.choice(SPARES))
    style = rng.random()
    if style < 0.6:
        swarm = structs.replace(swarm, loss=rng.choice((0.0, swarm.loss)), patience=rng.choice((20, 80)))
        plan: plans.Plan = draw_lineage(rng, swarm)
    else:
        plan = plans.draw_mixed(rng, swarm) if style < 0.7 else plans.draw_episodes(rng, swarm)
        plan = draw_changes(rng, swarm, plan)
    return Scenario(seed, swarm, tuple(sorted(plan, key=lambda item: item[0])))
