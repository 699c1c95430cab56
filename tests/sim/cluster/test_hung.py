"""Stories of brokers and disks that hang: nothing is committed for no longer than users are told, and planted bugs show
in them.

That one witness is not enough, no story shows: `tests/unit/controller/test_sessions.py` does.
"""

from __future__ import annotations

import pytest

from tests.sim.cluster import hung_mutants as mutants
from tests.sim.planting import Mutant
from tidelog.sim.cluster.families import Family
from tidelog.sim.cluster.hung_strikes import KINDS
from tidelog.sim.cluster.run import run_scenario, run_story
from tidelog.sim.cluster.stories import draw_story

STORIES = 40
"""More: `make sim-stories STORY=hung RUNS=200`."""
TOLD = (8, 17)
"""A follower's disk hangs; a follower does. Both in topics with in-sync replicas. The first is told each time,
with a planted bug and without it."""
SHOWN = {
    mutants.wait_for_who_has_stalled: 8,
    mutants.tell_nobody_of_silence: 20,
    mutants.lead_on_with_a_hung_disk: 59,
}
"""A story that shows each planted bug."""
LONG = (mutants.lead_on_with_a_hung_disk, mutants.tell_nobody_of_silence)


@pytest.mark.slow
@pytest.mark.parametrize("seed", TOLD)
def test_a_hung_follower_costs_no_more_than_users_are_told(seed: int) -> None:
    story = draw_story(Family.HUNG, seed)
    assert story.steps[0].kind in ("hung disk of a follower", "hung follower")
    outcome = run_scenario(story)
    assert outcome.violations == ()
    assert outcome.counters["somebody hung"] == 1


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(mutant, marks=[pytest.mark.slow] if mutant in LONG else []) for mutant in SHOWN],
    ids=lambda mutant: mutant.__name__,
)
def test_a_planted_bug_costs_more(mutant: Mutant) -> None:
    story = draw_story(Family.HUNG, SHOWN[mutant])
    with mutant():
        assert any("are told" in violation for violation in run_scenario(story).violations)
    assert run_scenario(story).violations == (), "and it is the mutant that was found"


def test_all_of_them_are_planted() -> None:
    assert {*SHOWN} == {*mutants.MUTANTS}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whatever_hangs_the_bounds_hold() -> None:
    hung = set[str]()
    for seed in range(STORIES):
        outcome = run_story(Family.HUNG, seed)
        assert outcome.violations == (), seed
        if outcome.counters["somebody hung"]:
            hung.add(draw_story(Family.HUNG, seed).steps[0].kind)
    assert hung == {*KINDS}
