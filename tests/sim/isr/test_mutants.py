"""Each rule taken away is missed: the walks find every mutant, and nothing without one."""

from __future__ import annotations

import pytest

from tidelog.sim.isr.mutants import MUTANTS, planted
from tidelog.sim.isr.plans import draw_plan
from tidelog.sim.isr.run import run_plan

SEEDS_MAX = 300
WHERE = {
    "answers before their metadata": ("control", 25),
    "answers of any partition epoch": ("network", 0),
    "answers to any question, if they fit": ("control", 30),
    "earlier lives remembered": ("swarm", 20),
    "failed fsyncs are repeated": ("disk", 25),
    "leaders not told of another min ISR": ("control", 15),
    "metadata of any partition epoch": ("disk", 45),
    "no broker epochs": ("crashes", 220),
    "one round of epochs": ("control", 0),
    "no new reign when a replica goes": ("control", 50),
}
"""Mixes, and seeds from which on the rarer ones are soon found; docs/replication-isr.md has the medians."""


@pytest.mark.parametrize("name", MUTANTS)
def test_each_rule_is_needed(name: str) -> None:
    mix, first = WHERE.get(name, ("crashes", 0))
    with planted(MUTANTS[name]) as parts:
        outcomes = (run_plan(draw_plan(mix, seed), parts) for seed in range(first, first + SEEDS_MAX))
        found = next((outcome for outcome in outcomes if outcome.failure is not None), None)
    assert found is not None, "nobody noticed"
    assert run_plan(found.plan).failure is None, "and it is the mutant that was found"
