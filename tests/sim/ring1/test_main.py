"""The inner ring as a program."""

from __future__ import annotations

import sys

import msgspec
import pytest

from tests.sim.ring1.mutants import mutated, quorum_of_one_too_few
from tidelog.sim.ring1.__main__ import main
from tidelog.sim.ring1.drawing import draw_scenario


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ring1", *arguments])
    return main()


def test_seeds_are_run_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--runs", "5", "--seed", "10") == 0
    assert "5 runs, " in capsys.readouterr().out


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
        assert f"again: python -m tidelog.sim.ring1 --seed {seed} --trace" in told
        scenario = told.rpartition("--scenario '")[2].partition("'\n")[0]
        assert run(monkeypatch, "--scenario", scenario) == 1
