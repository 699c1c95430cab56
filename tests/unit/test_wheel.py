"""The wheel holds what users run: planted bugs are the tests' and are never installed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEFINITION = re.compile(r"^(?:class|def|async def) ([A-Za-z]\w*)", re.MULTILINE)


def wheel_files() -> list[Path]:
    """The modules that the wheel is built of."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build.keys() == {"packages"}, "this test knows of nothing else that adds files"
    return [path for package in build["packages"] for path in sorted((ROOT / package).rglob("*.py"))]


def definitions(paths: Iterable[Path]) -> Iterator[str]:
    """The names of what these modules define at their top, where a definition begins its line."""
    for path in paths:
        yield from DEFINITION.findall(path.read_text())


def test_no_planted_bug_is_in_the_wheel() -> None:
    files = wheel_files()
    assert [path for path in files if "mutant" in path.name] == []
    planted = set(definitions((ROOT / "tests" / "sim").rglob("*mutants.py")))
    planted -= {"Mutant", "mutated", "planted"}  # these plant, and are no bugs themselves
    assert "skip_fsync" in planted, "the planted bugs are looked for where they are"
    assert planted.intersection(definitions(files)) == set()


def test_nothing_in_the_wheel_imports_the_tests() -> None:
    imports = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)
    roots = {root for path in wheel_files() for root in imports.findall(path.read_text())}
    assert "tidelog" in roots
    assert "tests" not in roots
