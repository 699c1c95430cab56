"""The shipped broker through crashes, kills, bad disks and rot: no promise is broken, in any of these seeds.

More seeds: `tidelog sim --runs N`. See docs/testing.md for what a failing one means.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidelog.sim.broker.sometimes import SOMETIMES
from tidelog.sim.main import Simulator, Summary, replay_command, run, run_seed

SEEDS = 6
SIMULATORS = (Simulator.STORAGE, Simulator.BROKER)
"""Seeds of clusters are run in `cluster/test_seeds.py`."""


def explain(summary: Summary) -> str:
    lines = [
        f"{replay_command(outcome.seed)}   # {outcome.violations[0]} ({len(outcome.violations)} violations)"
        for outcome in summary.failures
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run(SEEDS, simulators=SIMULATORS)


def test_no_seed_breaks_a_promise(summary: Summary) -> None:
    assert not summary.failures, explain(summary)
    assert summary.records_acknowledged > 100 * SEEDS


def test_enough_happens_in_them(summary: Summary) -> None:
    """All of it in a batch of 500; most of it in these."""
    assert summary.faults > 10 * SEEDS
    assert sum(summary.counters[name] > 0 for name in SOMETIMES) > len(SOMETIMES) * 0.7


@pytest.mark.parametrize("seeds", [(8,), pytest.param((3, 8), marks=pytest.mark.slow)], ids=len)
def test_a_seed_is_the_same_run_every_time_and_in_every_process(seeds: tuple[int, ...]) -> None:
    program = (
        "from tidelog.sim.main import Simulator, run_seed\n"
        f"for seed in {seeds}:\n"
        "    outcome = run_seed((Simulator.STORAGE, Simulator.BROKER), None, None, seed)\n"
        "    print(outcome.trace, outcome.records_acknowledged)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    outcomes = [run_seed(SIMULATORS, None, None, seed) for seed in seeds]
    assert done.stdout.splitlines() == [f"{one.trace} {one.records_acknowledged}" for one in outcomes]
    assert len({one.trace for one in outcomes}) == len(seeds)


def test_seeds_come_to_the_same_on_several_processes() -> None:
    alone, spread = run(2, first_seed=100, simulators=SIMULATORS), run(2, first_seed=100, simulators=SIMULATORS, jobs=2)
    assert alone.counters == spread.counters
    assert alone.records_acknowledged == spread.records_acknowledged


def test_progress_is_told_after_each_seed() -> None:
    told: list[tuple[int, int]] = []
    run(2, first_seed=2, simulators=(Simulator.STORAGE,), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
