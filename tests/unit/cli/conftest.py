"""Running the command line inside the test's own process: no second interpreter, so milliseconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tidelog.cli.main import main


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Tidelog = Callable[..., Ran]


@pytest.fixture
def tidelog(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tidelog:
    """Runs a command as `tidelog` would; returns its exit status and what it printed."""

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["tidelog", *words])
        with pytest.raises(SystemExit) as exit_info:
            main()
        printed = capfd.readouterr()
        status = exit_info.value.code
        assert isinstance(status, int)
        return Ran(status, printed.out, printed.err)

    return run
