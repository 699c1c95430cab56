"""Holds the coverage of the pure cores by their tests: the share of lines and branches reached may only rise.

    python -m tools.core_coverage REPORT [--raise]

A core decides, so a branch that no test takes is a decision that nobody has checked. The table has a row for each room,
that is, each folder with modules in it; below it stands what is not reached. The floors are in
`tools/coverage_floor.txt`, in percent, rounded down to a tenth, and `--raise` raises them to what is measured. A room
without a floor must be reached completely.

The measurement comes as the JSON report of coverage.py; `tool.coverage` in pyproject.toml says what counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
FLOORS: Final = ROOT / "tools" / "coverage_floor.txt"
PERCENT_MAX: Final = 100.0


class Reach(NamedTuple):
    """The lines and branches of a room or of a file, and how many of both were reached."""

    lines: int = 0
    branches: int = 0
    reached: int = 0

    def plus(self, other: Reach) -> Reach:
        """Returns the reach of both together."""
        return Reach(*(mine + its for mine, its in zip(self, other, strict=True)))

    @property
    def percent(self) -> float:
        """The share that was reached, rounded down to a tenth."""
        total = self.lines + self.branches
        return 1000 * self.reached // total / 10 if total else PERCENT_MAX


def rooms(report: Mapping[str, Any]) -> dict[str, Reach]:
    """Returns the reach of each room, from the JSON report of coverage.py."""
    found: dict[str, Reach] = {}
    for path, file in sorted(report["files"].items()):
        room, said = str(PurePosixPath(path).parent.relative_to("tidelog")), file["summary"]
        reached = said["covered_lines"] + said["covered_branches"]
        found[room] = found.get(room, Reach()).plus(Reach(said["num_statements"], said["num_branches"], reached))
    return found


def unreached(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields what was not reached: the lines of each file, and branches between lines that were."""
    for path, file in sorted(report["files"].items()):
        lines = file["missing_lines"]
        if lines:
            yield f"{path}: {', '.join(map(str, lines))}"
        branches = ((begin, end) for begin, end in file["missing_branches"] if {begin, end}.isdisjoint(lines))
        yield from (f"{path}: {begin} -> {end if end > 0 else 'exit'}" for begin, end in branches)


def floors(text: str) -> dict[str, float]:
    """Returns the floors by room, from the text of their file."""
    return {room: float(percent) for room, percent in map(str.split, text.splitlines())}


def raised(found: Mapping[str, Reach], allowed: Mapping[str, float]) -> str:
    """Returns the text of the floors' file after the measurement; none is lowered."""
    higher = {room: max(reach.percent, allowed.get(room, 0.0)) for room, reach in found.items()}
    return "".join(f"{room} {percent}\n" for room, percent in sorted(higher.items()))


def below(found: Mapping[str, Reach], allowed: Mapping[str, float]) -> list[str]:
    """Returns the rooms that are below their floors."""
    return [room for room, reach in sorted(found.items()) if reach.percent < allowed.get(room, PERCENT_MAX)]


def table(found: Mapping[str, Reach], allowed: Mapping[str, float]) -> Iterable[str]:
    """Yields the rows of the table, its head first."""
    yield f"{'room':20} {'lines':>7} {'branches':>9} {'reached':>8} {'floor':>6}"
    for room, reach in sorted(found.items()):
        floor = allowed.get(room, PERCENT_MAX)
        yield f"{room:20} {reach.lines:7,} {reach.branches:9,} {reach.percent:7.1f}% {floor:6.1f}"


def main() -> int:
    """Prints the table and what was not reached; the exit status is 1 if a room is below its floor."""
    parser = argparse.ArgumentParser(description="Hold the coverage of the pure cores.")
    parser.add_argument("report", type=Path, help="the report of `coverage json`")
    parser.add_argument("--raise", action="store_true", dest="is_raised", help="raise the floors to what is reached")
    options = parser.parse_args()
    report = json.loads(options.report.read_text())
    found, allowed = rooms(report), floors(FLOORS.read_text())
    if options.is_raised:
        FLOORS.write_text(raised(found, allowed))
    print(*table(found, allowed), *unreached(report), sep="\n")
    fallen = below(found, allowed)
    print(f"coverage: {len(found)} rooms, {len(fallen)} below their floor{': ' if fallen else ''}{', '.join(fallen)}")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
