"""Elections as transcripts: the first leader, a dead one, a cut off node's return, stepping aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.election.stage import Stage
from tests.golden.scripts import check

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, Stage().handle, rewrite=request.config.getoption("--rewrite"))
