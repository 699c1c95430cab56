"""Drawn clusters: no seed breaks a rule, equal seeds are equal runs, planted bugs are found.

More seeds: `tidelog sim --of cluster --runs N`, which from 500 on also demands that everything happens that should.
See docs/testing.md for what a failing one means.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.cluster import mutants
from tests.sim.planting import Mutant, seeds_until_found
from tidelog.sim.cluster.drawing import draw_scenario
from tidelog.sim.cluster.run import run_scenario, run_seed, shrink
from tidelog.sim.cluster.scenario import Scenario, decode_scenario, encode_scenario
from tidelog.sim.cluster.sometimes import SOMETIMES
from tidelog.sim.cluster.traffic import Mix
from tidelog.sim.main import Simulator, Summary, run

SEEDS = range(50, 54)
"""Short runs, in which much happens."""
CHEAP = range(9, 30)
"""Seeds whose first has short runs."""
SEEDS_MAX = 500
FIRST = {"acknowledge_before_it_is_chosen": 3, "deliver_without_payload": 22, "unknown_is_called_refused": 1_100}
"""Seeds from which on the rarer planted bugs are soon found."""
OBVIOUS: tuple[Mutant, ...] = (mutants.fence_and_leave_in_the_lead, mutants.never_fence)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run(len(SEEDS), first_seed=SEEDS[0], simulators=(Simulator.CLUSTER,), groups=False)


def test_no_seed_breaks_a_rule(summary: Summary) -> None:
    assert not summary.failures, [failure.violations for failure in summary.failures]


def test_enough_happens_in_them(summary: Summary) -> None:
    assert summary.faults > len(SEEDS)
    assert summary.records_acknowledged > 10 * len(SEEDS)
    assert sum(summary.counters[f"cluster: {name}"] > 0 for name in SOMETIMES) > len(SOMETIMES) * 0.4


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "runs", [((14, True),), pytest.param(((9, False), (14, True)), marks=pytest.mark.slow)], ids=len
)
def test_a_seed_is_the_same_run_in_every_process(runs: tuple[tuple[int, bool], ...]) -> None:
    program = (
        "from tidelog.sim.cluster.run import run_seed\n"
        f"for seed, groups in {runs}:\n"
        "    print(run_seed(seed, groups=groups).trace, flush=True)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    traces = [str(run_seed(seed, groups=groups).trace) for seed, groups in runs]
    assert done.stdout.split() == traces
    assert len(set(traces)) == len(runs)


def test_a_scenario_on_paper_is_the_same_run() -> None:
    scenario = draw_scenario(9)
    assert decode_scenario(encode_scenario(scenario)) == scenario
    assert run_scenario(decode_scenario(encode_scenario(scenario))).trace == run_seed(9).trace


@pytest.mark.parametrize("mutant", OBVIOUS, ids=lambda mutant: mutant.__name__)
def test_an_obvious_bug_is_found_at_once(mutant: Mutant) -> None:
    assert seeds_until_found(mutant, is_good, iter(CHEAP)) is not None


@pytest.mark.slow
def test_a_failing_scenario_becomes_smaller() -> None:
    with mutants.fence_and_leave_in_the_lead():
        scenario = next(one for one in map(with_in_sync_sets, CHEAP) if len(one.steps) > 4 and fails(one))
        smaller = shrink(scenario, runs_max=10)
        assert fails(smaller)
    assert len(smaller.steps) < len(scenario.steps)
    assert not fails(smaller), "it is the mutant that fails, not the smaller scenario"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    first = FIRST.get(mutant.__name__, 0)
    seeds = seeds_until_found(mutant, is_good, iter(range(first, first + SEEDS_MAX)))
    assert seeds is not None, f"{mutant.__name__}: {mutant.__doc__} Nobody noticed in {SEEDS_MAX} seeds."
    assert is_good(first + seeds - 1), "and it is the mutant that was found"


def is_good(seed: int) -> bool:
    return not fails(with_in_sync_sets(seed))


def with_in_sync_sets(seed: int) -> Scenario:
    """Without strikes on disks: they are others' to find, and a seed stays the same when a family of them is added."""
    return draw_scenario(seed, Mix.ISR, groups=False, families=())


def fails(scenario: Scenario) -> bool:
    return bool(run_scenario(scenario).violations)
