"""Asks more of three real brokers than they can do, in ways that have names, and says what they did.

    python -m tests.e2e.overload
    python -m tests.e2e.overload --only F85 --seconds 60
    python -m tests.e2e.overload --scale 0.1 --seconds 5    # a tenth of the clients: to see that it works

A case is a cluster of its own; in its end all that was acknowledged must be there exactly once. Exit status 1 if a
bound was broken; the case's directory, with the brokers' data and logs, is kept then. Bounds of figures are meant for a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.e2e.overload.cases import CASES, play
from tests.e2e.overload.crew import Crew, may_open_all
from tests.e2e.overload.ground import Row


def play_all(options: argparse.Namespace, directory: Path) -> list[Row]:
    """Plays the cases. Returns their rows; the directory of a case that held is removed."""
    rows: list[Row] = []
    console = Console(stderr=True)
    with Crew() as crew:
        for name in options.only or CASES:
            at = directory / name
            found = play(name, crew, at, seconds=options.seconds, scale=options.scale)
            rows += found
            is_held = all(row.is_held for row in found)
            if is_held:
                shutil.rmtree(at)
            told = "held" if is_held else f"not held; data and logs are in {at}"
            console.print(f"{name}: {told}", markup=False, soft_wrap=True)
    return rows


def report(rows: list[Row], options: argparse.Namespace) -> None:
    """Prints the table, or the same as JSON."""
    out = Console()
    if options.json:
        parameters = {"seconds": options.seconds, "scale": options.scale}
        out.print_json(json.dumps({**parameters, "rows": [row._asdict() for row in rows]}))
        return
    table = Table("case", "done", "measured", "bound", "held")
    for row in rows:
        held = "" if not row.bound else "yes" if row.is_held else "NO"
        table.add_row(row.case, row.done, row.measured, row.bound, held)
    out.print(table)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command's words."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.overload", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", choices=[*CASES], action="append", help="this case; default: all of them")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of a flood; default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, metavar="F", help="of all numbers; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="of all cases; default: a temporary one")
    return parser.parse_args(words)


def main() -> int:
    """Plays the cases; returns the exit status."""
    options = parse()
    may_open_all()
    directory = options.data_dir or Path(tempfile.mkdtemp(prefix="tidelog-overload-"))
    rows = play_all(options, directory)
    report(rows, options)
    if directory.exists() and not any(directory.iterdir()):
        directory.rmdir()
    return 0 if all(row.is_held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
