"""Elections under faults: leases exclude each other, there is a leader soon, a healthy one stays."""

from __future__ import annotations

import pytest

from tests.sim.election.mutants import MUTANTS
from tests.sim.election.scenario import RATE_BEYOND, run_seed
from tidelog.replication.election import Election

SEEDS = range(150)
"""Enough for each of the rules below."""
SURVIVED = range(50)


def test_elections_survive() -> None:
    assert {seed: found for seed in SURVIVED if (found := run_seed(seed))} == {}


def test_leases_need_clocks_within_the_bound() -> None:
    """The assumption is one, and the search would notice."""
    violations = [violation for seed in range(40) for violation in run_seed(seed, rate_max=RATE_BEYOND)]
    assert any(violation.startswith("two leases") for violation in violations)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_each_rule_is_needed(mutant: type[Election]) -> None:
    assert any(run_seed(seed, mutant) for seed in SEEDS), f"{mutant.__doc__} Nobody noticed."


def test_a_seed_is_one_run() -> None:
    assert run_seed(17, rate_max=RATE_BEYOND) == run_seed(17, rate_max=RATE_BEYOND)
