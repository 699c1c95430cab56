"""The simulator of primary-backup partitions as a program."""

from __future__ import annotations

import json
import sys

import pytest

from tests.sim.isr.mutants import MUTANTS, planted
from tidelog.sim.isr.__main__ import main
from tidelog.sim.isr.parts import SHIPPED, Parts
from tidelog.sim.isr.run import run_seeds
from tidelog.sim.isr.scenario import MIXES


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, parts: Parts = SHIPPED) -> int:
    monkeypatch.setattr(sys, "argv", ["isr", *arguments])
    return main(parts)


def test_seeds_are_run_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--runs", "5", "--seed", "10", "--mix", "disk") == 0
    assert "disk: 5 runs, " in capsys.readouterr().out


def test_each_mix_is_an_object(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--runs", "2", "--json") == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["runs"], one["failures"]) for one in told] == [(2, [])] * len(MIXES)


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with planted(MUTANTS["no min ISR"]) as parts:
        assert run(monkeypatch, "--runs", "100", "--mix", "network", parts=parts) == 1
        told = capsys.readouterr().out
        seed = told.partition("\nnetwork seed ")[2].partition(":")[0]
        assert f"again: python -m tidelog.sim.isr --mix network --seed {seed} --trace" in told
        scenario = told.rpartition("--scenario '")[2].partition("'\n")[0]
        assert run(monkeypatch, "--scenario", scenario, "--trace", parts=parts) == 1
        assert "failed: candidates are complete" in capsys.readouterr().out
    assert run(monkeypatch, "--scenario", scenario) == 0, "and it is the planted bug's doing"


@pytest.mark.slow
def test_what_comes_of_seeds_does_not_depend_on_how_they_are_spread() -> None:
    alone, spread = run_seeds("swarm", 0, 102), run_seeds("swarm", 0, 102, jobs=2)
    assert (alone.runs, alone.amount, alone.counters) == (spread.runs, spread.amount, spread.counters)


def test_runs_that_never_reach_something_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = run_seeds("crashes", 0, 1)
    assert batch.never_happened == []
    monkeypatch.setattr("tidelog.sim.kit.batches.COUNTED_FROM_RUNS", 1)
    assert "an unclean election" in batch.never_happened
