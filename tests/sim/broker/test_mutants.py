"""Planted bugs are found. Without this, green seeds are no evidence."""

from __future__ import annotations

import pytest

from tests.sim.broker import mutants
from tests.sim.broker.mutants import MUTANTS
from tests.sim.planting import Mutant, seeds_until_found
from tidelog.sim.broker.crash import run_seed

SEEDS_MAX = 500
OBVIOUS: tuple[Mutant, ...] = (
    mutants.skip_fsync,
    mutants.delete_unknown_directories,
    mutants.forget_producers_at_restart,
    mutants.definite_error_after_the_append,
)
"""Found in nearly every seed, so cheap enough to look for each time."""


CHEAP = range(2, 22)
"""Seeds whose first has a short run."""


def is_good(seed: int) -> bool:
    return not run_seed(seed).violations


@pytest.mark.parametrize("mutant", OBVIOUS, ids=lambda mutant: mutant.__name__)
def test_an_obvious_bug_is_found_at_once(mutant: Mutant) -> None:
    assert seeds_until_found(mutant, is_good, iter(CHEAP)) is not None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    seeds = seeds_until_found(mutant, is_good, iter(range(SEEDS_MAX)))
    assert seeds is not None, f"{mutant.__name__}: {mutant.__doc__} Nobody noticed in {SEEDS_MAX} seeds."


def test_a_mutant_is_gone_when_it_is_closed() -> None:
    with mutants.skip_fsync():
        assert not is_good(CHEAP[0])
    assert is_good(CHEAP[0])
