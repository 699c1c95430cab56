from __future__ import annotations

import sys

import pytest

from tests.unit.sim.kit.ran import Ran
from tidelog.sim.kit.batches import Batch
from tidelog.sim.kit.progress import ProgressBar


def a_bar() -> ProgressBar:
    """One for which each look at the clock takes a second."""
    return ProgressBar("disk ", iter(range(100)).__next__)


def test_a_file_gets_a_line_for_each_percent(capsys: pytest.CaptureFixture[str]) -> None:
    bar = a_bar()
    bar.show(Batch(runs=20), 2000)
    bar.show(Batch(runs=21), 2000)
    bar.show(Batch(runs=500, failures=[Ran(3, ValueError())]), 2000)
    assert capsys.readouterr().err.splitlines() == [
        f"disk   1% {'':20} 20 runs, 99 s left",
        f"disk  25% {'#####':20} 500 runs, 6 s left, seed 3 failed",
    ]


def test_a_terminal_gets_one_line_that_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = a_bar()
    bar.show(Batch(runs=1000), 2000)
    bar.show(Batch(runs=2000), 2000)
    half, whole = capsys.readouterr().err.split("\r")[1:]
    assert half.startswith("disk  50% ") and "\n" not in half
    assert whole.startswith("disk 100% ") and whole.endswith("\n")


def test_what_is_over_soon_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    a_bar().show(Batch(runs=100), 1999)
    assert capsys.readouterr().err == ""
