"""The page of programs, and `examples`: what it names is there, short enough to be copied, and says how it is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\|.*\| `(examples/[^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "programs.md").read_text())
SOURCES = {".go", ".ipynb", ".mjs", ".py"}
LINES_MAX = 79
TOURS = {"group_of_consumers.py", "orders.ipynb", "spark_flights.py"}
"""Programs that are longer: they show more at once, or are JSON."""


def test_all_are_found() -> None:
    assert len(ROWS) >= 8


@pytest.mark.parametrize(("name", "command"), ROWS)
def test_a_program_is_short_and_says_how_it_is_run(name: str, command: str) -> None:
    at = ROOT / name
    files = [at] if at.is_file() else [file for file in at.rglob("*") if file.suffix in SOURCES]
    texts = [file.read_text() for file in files]
    assert command in "".join(texts)
    assert at.name in TOURS or max(len(text.splitlines()) for text in texts) <= LINES_MAX


def test_the_notebook_is_without_outputs() -> None:
    cells = json.loads((ROOT / "examples" / "orders.ipynb").read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
