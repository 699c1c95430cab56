"""Stories of a classic group in a simulated cluster: no seed breaks a rule, and planted bugs show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.series import seeds
from tests.sim.cluster.classic_mutants import MUTANTS
from tests.sim.planting import Mutant
from tidelog.sim.cluster.classic.story import STRIKES
from tidelog.sim.cluster.run import run_scenario, run_story
from tidelog.sim.cluster.scenario import decode_scenario, encode_scenario
from tidelog.sim.cluster.stories import CLASSIC, draw_story
from tidelog.sim.groups.plan import MISHAPS

SEEN = (
    "classic group at rest",
    "classic: commit kept",
    "classic: commit refused",
    "classic: committed offsets read back",
    "classic: join told of another coordinator",
    "classic: static member fenced",
    "coordinator died at a sync",
    "coordinator failed over with classic members",
    "static member restarted in a stable generation",
    *(f"fault: {kind}" for kind in STRIKES),
    *(f"mishap: {kind}" for kind in MISHAPS),
)
"""Events that the whole series must reach."""
SHOWN: dict[str, tuple[int, set[str]]] = {
    "commits_of_an_old_generation": (16, {"fencing"}),
    "a_generation_is_written_when_it_is_assigned": (15, {"leader", "fencing"}),
    "members_that_wait_are_forgotten_with_their_coordinator": (11, {"in time"}),
    "assignments_of_the_generation_before": (2, {"assignment"}),
    "syncs_before_the_record": (74, {"owners", "static"}),
    "load_without_a_claim": (10, {"leader", "offsets"}),
}
"""A story that shows each planted bug, and the rules that may notice it."""
STORIES = 300
"""More: `make sim-stories STORY=classic RUNS=1000`."""


@seeds(1, STORIES, first=1)
def test_no_story_breaks_a_rule(seeds: Sequence[int]) -> None:
    counters: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_story(CLASSIC, seed)
        assert outcome.violations == (), seed
        counters += outcome.counters
    assert counters["classic group at rest"]
    assert len(seeds) < len(STRIKES) or [name for name in SEEN if not counters[name]] == []


def test_a_story_is_a_function_of_its_seed() -> None:
    story = draw_story(CLASSIC, 1)
    assert decode_scenario(encode_scenario(story)) == story
    assert run_scenario(story).trace == run_story(CLASSIC, 1).trace


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    seed, rules = SHOWN[mutant.__name__]
    story = draw_story(CLASSIC, seed)
    with mutant():
        broken = {violation.partition(":")[0] for violation in run_scenario(story).violations}
    assert broken & rules, (mutant.__doc__, broken)
    assert run_scenario(story).violations == (), "and it is the mutant that was found"


def test_all_of_them_are_planted() -> None:
    assert {*SHOWN} == {mutant.__name__ for mutant in MUTANTS}
