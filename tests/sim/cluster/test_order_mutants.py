"""Planted bugs of topics whose commits do not wait for all before them: a story about holes has to notice each."""

from __future__ import annotations

import pytest

from tests.sim.cluster import order_mutants as mutants
from tests.sim.planting import Mutant, seeds_until_found
from tidelog.sim.cluster.families import Family
from tidelog.sim.cluster.run import run_story

AT_ONCE = (mutants.release_when_it_is_proposed,)
FIRST = 3
"""A seed with a short run."""
SEEDS_MAX = 60


def is_good(seed: int) -> bool:
    return not run_story(Family.HOLES, seed).violations


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant",
    [*AT_ONCE, *(pytest.param(each, marks=pytest.mark.slow) for each in mutants.MUTANTS if each not in AT_ONCE)],
    ids=lambda mutant: mutant.__name__,
)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    seeds = seeds_until_found(mutant, is_good, iter(range(FIRST, FIRST + SEEDS_MAX)))
    assert seeds is not None, f"{mutant.__name__}: {mutant.__doc__} No story of {SEEDS_MAX} noticed."
    assert is_good(FIRST + seeds - 1), "and it is the mutant that was found"
