"""Classic groups in simulation: seeds without failure, and planted bugs that are found."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from tests.sim.groups import mutants
from tests.sim.planting import Mutant, seeds_until_found
from tidelog.sim.groups.__main__ import shrink
from tidelog.sim.groups.plan import Scenario, draw_scenario
from tidelog.sim.groups.run import run_groups, run_scenario, run_seed

SEEDS_MAX = 400
FOUND = {
    mutants.commits_of_an_old_generation: {"fencing"},
    mutants.two_leaders: {"leader"},
    mutants.a_generation_is_written_when_it_is_assigned: {"leader"},
    mutants.assignments_of_another_generation: {"assignment"},
    mutants.assignments_are_kept: {"assignment"},
    mutants.a_member_that_waits_is_forgotten_with_its_generation: {"in time"},
    mutants.members_that_wait_are_forgotten_with_their_coordinator: {"in time"},
    mutants.answers_before_the_commit: {"leader", "assignment", "owners", "offsets"},
}
"""The rules that may notice each of them."""
STARTS = {mutants.a_generation_is_written_when_it_is_assigned: 20, mutants.answers_before_the_commit: 7}
"""A seed shortly before the first that shows it; 0 for the others."""


def test_no_seed_breaks_a_rule() -> None:
    """More: `make sim-classic RUNS=2000`."""
    batch = run_groups(0, 25)
    assert [str(outcome.failure) for outcome in batch.failures] == []
    assert batch.counters["struck while PreparingRebalance"] > 0
    assert batch.counters["struck while CompletingRebalance"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_seed_of_many_breaks_a_rule() -> None:
    batch = run_groups(1_000, 2_000)
    assert [str(outcome.failure) for outcome in batch.failures] == []
    assert not [name for name in batch.sometimes if not batch.counters[name]]


def test_a_seed_is_a_run() -> None:
    assert run_seed(3).trace == run_seed(3).trace
    drawn = draw_scenario(3)
    assert msgspec.json.decode(msgspec.json.encode(drawn), type=Scenario) == drawn


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    rules = set[str]()

    def is_good(seed: int) -> bool:
        failure = run_seed(seed).failure
        rules.update({part.split(":")[0] for part in str(failure).split("; ")} if failure else ())
        return not rules & FOUND[mutant]

    start = STARTS.get(mutant, 0)
    tried = seeds_until_found(mutant, is_good, iter(range(start, start + SEEDS_MAX)))
    assert tried is not None, (mutant.__doc__, rules)


def test_a_failing_scenario_becomes_smaller() -> None:
    with mutants.commits_of_an_old_generation():
        failing = next(outcome for seed in count() if (outcome := run_seed(seed)).failure is not None)
        smaller = shrink(failing)
        assert len(smaller.steps) <= len(failing.scenario.steps)
        assert run_scenario(smaller).failure is not None
    assert run_scenario(smaller).failure is None
