"""Planted bugs of consumer groups: some seed of a cluster has to notice each.

Each is hunted where it may show: drawn clusters and groups, with the faults that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest
from msgspec import structs

from tests.sim.cluster import group_mutants as mutants
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.group_traffic import GroupTraffic, Mishap
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Scenario, Step, Strike
from tidelog.sim.kit.seeds import stream

SEEDS_MAX = 200


class Hunt(NamedTuple):
    """What it takes to see a bug, and the rule that sees it."""

    mutant: Callable[[], AbstractContextManager[None]]
    rules: tuple[str, ...]
    strikes: tuple[str, ...] = ()
    mishaps: tuple[str, ...] = ()
    late_rate: float = 0.0
    mute_rate: float = 0.0
    copied_from_records: int = 20_000
    protocol: str = ""
    start: int = 0
    """A seed shortly before the first that shows it."""


HUNTS = (
    Hunt(mutants.commits_in_any_order, ("sequence",), late_rate=0.2),
    Hunt(mutants.deliver_without_a_lease, ("exclusive",), mishaps=("sleep",)),
    Hunt(
        mutants.answer_before_the_commit,
        ("offsets", "delivery", "owners"),
        strikes=("power cut of all", "leader dies"),
        start=49,
    ),
    Hunt(mutants.commits_of_whoever_it_was, ("fencing", "offsets"), mishaps=("sleep", "leave"), late_rate=0.2),
    Hunt(mutants.given_away_before_it_is_given_up, ("exclusive",), mishaps=("leave", "crash"), mute_rate=0.3),
    Hunt(
        mutants.load_without_a_claim, ("offsets", "owners"), strikes=("leader dies", "crash"), protocol="isr", start=17
    ),
    Hunt(
        mutants.delete_before_the_copies_are_there,
        ("offsets", "stable"),  # a log with a part of a group's members is another group, or cannot be loaded at all
        strikes=("power cut of all", "kill", "leader dies"),
        copied_from_records=30,
        start=47,
    ),
)


def aimed(hunt: Hunt, seed: int) -> Scenario:
    """The clusters and groups of a seed, and what it takes to see this bug."""
    drawn, rng = draw_scenario(seed, groups=True, has_holes=False), stream(seed, "aimed")
    swarm = drawn.swarm
    steps: list[Step] = []
    for _ in range(rng.randint(3, 8) if hunt.strikes else 0):
        nodes, at_s = rng.sample(swarm.nodes, len(swarm.nodes)), rng.uniform(0.5, swarm.chaos_s)
        steps.append(Strike(at_s, rng.choice(hunt.strikes), tuple(nodes), rng.uniform(0.05, 1.0), rng.random()))
    for _ in range(rng.randint(3, 10) if hunt.mishaps else 0):
        kind, at_s = rng.choice(hunt.mishaps), rng.uniform(0.5, swarm.chaos_s)
        steps.append(Mishap(at_s, kind, rng.randrange(2), rng.randrange(6), rng.uniform(0.05, 1.0), rng.random()))
    groups = GroupTraffic(swarm.groups.groups, hunt.late_rate, 0.0, hunt.mute_rate, hunt.copied_from_records, 1)
    settings = swarm.settings | ({"offsets.topic.commit.protocol": hunt.protocol} if hunt.protocol else {})
    swarm = structs.replace(swarm, groups=groups, settings=settings)
    return structs.replace(drawn, swarm=swarm, steps=tuple(sorted(steps, key=lambda step: step.at_s)))


def scenarios(hunt: Hunt) -> Iterator[Scenario]:
    return (aimed(hunt, seed) for seed in range(hunt.start, hunt.start + SEEDS_MAX))


def find(hunt: Hunt) -> None:
    with hunt.mutant():
        found = next((scenario for scenario in scenarios(hunt) if run_scenario(scenario).violations), None)
        assert found is not None, hunt.mutant.__doc__
        rules = {violation.partition(":")[0] for violation in run_scenario(found).violations}
        assert rules & {*hunt.rules}, rules
    assert run_scenario(found).violations == (), "and it is the mutant that was found"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.mutant.__name__)
def test_a_planted_bug_is_found(hunt: Hunt) -> None:
    find(hunt)


def test_all_of_them_are_hunted() -> None:
    assert [mutant for mutant in mutants.MUTANTS if mutant not in [hunt.mutant for hunt in HUNTS]] == []
