"""The simulator of primary-backup partitions as a test: many short runs of each fault mix find nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.sim.isr.run import run_scenario, run_seeds
from tidelog.sim.isr.scenario import MIXES, draw_scenario
from tidelog.sim.isr.sometimes import SOMETIMES

RUNS = 30
RUNS_LONG = 2_000
RARE_IN_FEW = 0.6
"""The share of what should happen now and then that has to be seen in `RUNS` runs."""


@pytest.mark.parametrize("mix", MIXES)
def test_nothing_committed_is_lost(mix: str) -> None:
    batch = run_seeds(mix, 0, RUNS)
    assert not batch.failures, f"python -m tidelog.sim.isr --mix {mix} --seed {batch.failures[0].seed} --trace"
    assert batch.amount > RUNS
    seen = [name for name in SOMETIMES[mix] if batch.counters[name]]
    assert len(seen) > RARE_IN_FEW * len(SOMETIMES[mix]), f"the runs have become too tame: {seen}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mix", MIXES)
def test_many_runs_reach_what_is_hard_to_reach(mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.sim.kit.batches.COUNTED_FROM_RUNS", RUNS_LONG)
    batch = run_seeds(mix, 0, RUNS_LONG)
    assert not batch.failures, f"python -m tidelog.sim.isr --mix {mix} --seed {batch.failures[0].seed} --trace"
    assert not batch.never_happened


def test_a_seed_is_a_run() -> None:
    first, again = run_scenario(draw_scenario("swarm", 17)), run_scenario(draw_scenario("swarm", 17))
    assert (first.trace, first.counters) == (again.trace, again.counters)
    assert len({run_scenario(draw_scenario("swarm", seed)).trace for seed in range(10)}) == 10


def test_a_seed_is_the_same_run_in_every_process() -> None:
    program = (
        "from tidelog.sim.isr.run import *; print([run_scenario(draw_scenario('swarm', n)).trace for n in range(8)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": "77"}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == str([run_scenario(draw_scenario("swarm", seed)).trace for seed in range(8)])


def test_durability_counts_with_the_set_of_the_same_moment() -> None:
    """Seed 11462940: a follower loses what it had in memory, and the leader learns of that with the image in which
    memory is enough."""
    assert run_scenario(draw_scenario("control", 11462940)).failure is None


def test_a_stale_leader_takes_nobodys_high_watermark_for_its_own() -> None:
    """Seed 9817705: while a leader looks into its damaged end, another one leads, and commits another batch there."""
    assert run_scenario(draw_scenario("rot", 9817705)).failure is None


@pytest.mark.parametrize("seed", [12360396, 12368452])
def test_a_copy_tells_what_is_committed_before_it_and_nothing_of_what_is_behind(seed: int) -> None:
    """Batches are damaged everywhere, and a follower waits to hear that they are committed. The leader asks a replica
    out of sync, which knows that, about a batch that it has whole: one behind a damaged one, or one before."""
    assert run_scenario(draw_scenario("decay", seed)).failure is None
