"""The simulator of the Paxos log as a program."""

from __future__ import annotations

import sys

import msgspec
import pytest

from tests.sim.paxos.mutants import mutated, quorum_of_one_too_few
from tidelog.sim.paxos.__main__ import main
from tidelog.sim.paxos.drawing import draw_scenario
from tidelog.sim.paxos.run import run_scenario, run_seeds
from tidelog.sim.paxos.story import Story


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["paxos", *arguments])
    return main()


def test_seeds_are_run_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--runs", "5", "--seed", "10") == 0
    assert "5 runs, " in capsys.readouterr().out


def test_the_sum_is_an_object(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--runs", "2", "--json") == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["runs"], told["failures"], told["amount"] > 0) == (2, [], True)


def test_a_run_is_told_event_by_event(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--seed", "3", "--trace") == 0
    by_seed = capsys.readouterr().out
    assert "elect 1." in by_seed
    scenario = msgspec.json.encode(draw_scenario(3)).decode()
    assert run(monkeypatch, "--scenario", scenario, "--trace") == 0
    assert capsys.readouterr().out == by_seed


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with mutated(quorum_of_one_too_few):
        assert run(monkeypatch, "--runs", "50") == 1
        told = capsys.readouterr().out
        seed = told.partition("\nseed ")[2].partition(":")[0]
        assert f"again: python -m tidelog.sim.paxos --seed {seed} --trace" in told
        scenario = told.rpartition("--scenario '")[2].partition("'\n")[0]
        assert run(monkeypatch, "--scenario", scenario) == 1


def test_what_comes_of_seeds_does_not_depend_on_how_they_are_spread() -> None:
    alone, spread = run_seeds(0, 120), run_seeds(0, 120, jobs=2)
    assert (alone.runs, alone.amount, alone.counters) == (spread.runs, spread.amount, spread.counters)


def test_runs_that_never_reach_something_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = run_seeds(0, 3)
    assert batch.never_happened == []
    monkeypatch.setattr("tidelog.sim.kit.batches.COUNTED_FROM_RUNS", 3)
    assert "a log jumps to a floor" in batch.never_happened


def test_whatever_a_run_raises_is_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("position")

    monkeypatch.setattr(Story, "tell", fail)
    outcome = run_scenario(draw_scenario(3))
    assert isinstance(outcome.failure, KeyError)
    assert outcome.verdict == "KeyError 'position'"
