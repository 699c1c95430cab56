"""Planted bugs of disks that are not what their brokers left: stories about such disks have to notice each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from msgspec import structs

from tests.sim.cluster import disk_mutants as mutants
from tests.sim.paxos import mutants as rules
from tests.sim.planting import Mutant
from tidelog.sim.cluster.families import Family
from tidelog.sim.cluster.run import run_scenario
from tidelog.sim.cluster.scenario import Scenario
from tidelog.sim.cluster.stories import draw_story


class Hunt(NamedTuple):
    """The family whose stories should show a bug, and how many are told at most (docs/testing.md has what it took),
    from a seed on that is shortly before the first that shows it."""

    mutant: Mutant
    family: Family
    seeds: int
    start: int = 0
    restart_s: float | None = None
    """How long a broker that does not start is left alone; None: as the story says."""


HUNTS = (
    Hunt(mutants.believe_an_old_directory, Family.OLD, 40),
    Hunt(mutants.believe_an_empty_directory, Family.MISSING, 20),
    # When its directories are put back they are of two clusters: the brokers refuse to start until the run is over.
    Hunt(mutants.found_over_data, Family.METADATA, 40, restart_s=1.0),
    Hunt(mutants.miss_the_loss_of_a_journal, Family.APART, 100, start=14),
    Hunt(rules.as_mutant(rules.faulty_told_as_no_value), Family.TAIL, 100, start=300),
    Hunt(mutants.believe_what_an_emptied_replica_lacks, Family.EMPTIED, 60),
)


def stories(hunt: Hunt) -> Iterator[Scenario]:
    for seed in range(hunt.start, hunt.start + hunt.seeds):
        story = draw_story(hunt.family, seed, has_holes=False)
        restart_s = story.swarm.restart_s if hunt.restart_s is None else hunt.restart_s
        yield structs.replace(story, swarm=structs.replace(story.swarm, restart_s=restart_s))


def shows(hunt: Hunt, scenario: Scenario) -> bool:
    """True if the mutant breaks a rule, and the shipped code does not, which may fail stories of its own."""
    with hunt.mutant():
        is_broken = bool(run_scenario(scenario).violations)
    return is_broken and not run_scenario(scenario).violations


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.mutant.__name__)
def test_a_planted_bug_is_found(hunt: Hunt) -> None:
    assert any(shows(hunt, scenario) for scenario in stories(hunt)), hunt.mutant.__doc__


def test_all_of_them_are_hunted() -> None:
    assert [mutant for mutant in mutants.MUTANTS if mutant not in [hunt.mutant for hunt in HUNTS]] == []
