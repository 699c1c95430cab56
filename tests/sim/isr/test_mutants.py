"""Each rule taken away is missed: the walks find every mutant, and nothing without one."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.sim.isr.mutants import MUTANTS, planted
from tidelog.sim.isr.run import run_scenario
from tidelog.sim.isr.scenario import Scenario, draw_scenario

SEEDS_MAX = 300
WHERE = {
    "durability as of now, not of the life": ("everything", 0),
    "answers before their metadata": ("control", 1_080),
    "answers of any partition epoch": ("network", 125),
    "answers to any question, if they fit": ("disk", 90),
    "damaged ends are truncated unasked": ("rot", 70),
    "denials of any replica": ("rot", 250),
    "durability before the set that goes with it": ("control", 11_462_900),
    "earlier lives remembered": ("crashes", 35),
    "failed fsyncs are repeated": ("swarm", 0),
    "fetches of any leader epoch": ("control", 150),
    "leaders not told of another min ISR": ("control", 70),
    "logs truncated at their first damaged batch": ("rot", 0),
    "metadata of any partition epoch": ("disk", 45),
    "no broker epochs": ("crashes", 35),
    "no log start condition": ("crashes", 600),
    "one round of epochs": ("control", 0),
}
"""Mixes, and seeds from which on the rarer ones are soon found; docs/replication-isr.md has the medians."""


TOLD = (
    "anybody's high watermark is the leader's",
    "denials of any epoch",
    "denials of any life",
    "no new term when a replica goes",
    "one damaged copy more is all",
    "torn copies are acknowledged",
)
"""So rare in walks that their stories are told by hand, in test_scenarios.py."""


KEPT = {"a new min ISR before the set": "kept_min_isr_first.json"}
"""One in a million walks finds these, so scenarios are kept that do, made small."""


def test_the_page_lists_rules_by_their_names() -> None:
    page = (Path(__file__).parents[3] / "docs/replication-isr.md").read_text()
    rows = re.findall(r"^\| ([^|`]+) \| `[a-z]+` \| [\d,]+ \|", page, re.MULTILINE)
    assert rows and set(rows) <= set(MUTANTS)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_scenario_finds_its_mutant(name: str) -> None:
    scenario = msgspec.json.decode((Path(__file__).parent / KEPT[name]).read_bytes(), type=Scenario)
    with planted(MUTANTS[name]) as parts:
        assert run_scenario(scenario, parts).failure is not None, "nobody noticed"
    assert run_scenario(scenario).failure is None, "and it is the mutant that was found"


@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in {*TOLD, *KEPT}])
def test_each_rule_is_needed(name: str) -> None:
    mix, first = WHERE.get(name, ("crashes", 0))
    with planted(MUTANTS[name]) as parts:
        outcomes = (run_scenario(draw_scenario(mix, seed), parts) for seed in range(first, first + SEEDS_MAX))
        found = next((outcome for outcome in outcomes if outcome.failure is not None), None)
    assert found is not None, "nobody noticed"
    assert run_scenario(found.scenario).failure is None, "and it is the mutant that was found"
