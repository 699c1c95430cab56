"""Moves the wall clocks of real brokers, one after the other, and says what became of the records.

    python -m tests.e2e.clocks
    python -m tests.e2e.clocks --trusting    # the control: brokers that believe their clocks must delete what is new

Exit status 1 if an acknowledged record is missing, one was refused, or has a time further off than brokers may be, or
if nothing said that a clock was off; 2 if clocks cannot be moved here. With `--trusting`, 1 if nothing is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from tests.e2e.clocks.faking import LACK, give_clocks, library
from tests.e2e.clocks.moving import Move, move
from tests.e2e.clocks.writing import BROKERS, Writer
from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

NODES: Final = 3
HOUR_S: Final = 3_600
MOVES_S: Final = (HOUR_S, -HOUR_S, 24 * HOUR_S)
SKEW_MS_MAX: Final = 30_000
CHECK: Final = {"log.retention.check.interval.ms": "500", "clock.skew.ms.max": str(SKEW_MS_MAX)}
TRUSTING: Final = {"clock.skew.ms.max": str(30 * 24 * HOUR_S * 1_000)}
CALM_S: Final = 3.0


async def play(directory: Path, loaded: Path, options: argparse.Namespace) -> tuple[Writer, list[Move]]:
    """Moves all clocks. Raises `TimeoutError` if nothing says so."""
    settings = {**CHECK, **(TRUSTING if options.trusting else {})}
    cluster = LocalCluster(NODES, settings=settings, data_dir=directory)
    clocks = give_clocks(cluster, directory, loaded)
    moves: list[Move] = []
    async with cluster:
        writer = Writer(cluster.bootstrap, NODES)
        async with AdminClient(cluster.bootstrap) as admin:
            await writer.create(admin)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.write())
            try:
                for node, ahead_s in [(node, ahead_s) for node in cluster.node_ids for ahead_s in MOVES_S]:
                    await asyncio.sleep(CALM_S)
                    if options.trusting:
                        clocks[node].move(ahead_s)
                        await asyncio.sleep(options.seconds)
                        clocks[node].move(0)
                    else:
                        moves.append(await move(cluster, clocks, node, ahead_s, options.seconds))
                await asyncio.sleep(CALM_S)
            finally:
                writer.stop()
        await writer.read_back()
    return writer, moves


def figures(writer: Writer, moves: Sequence[Move]) -> dict[str, float]:
    """Returns what there is to tell, by its name."""
    waits = {"log": "log_s", "metric": "metric_s", "description": "describe_s"}
    return {
        "records acknowledged": sum(len(book.sent) for book in writer.books),
        "records missing": sum(book.missing for book in writer.books),
        "records refused": writer.refused.total(),
        "a broker's time was off by at most, ms": max(
            book.off_ms_max for book in writer.books if book.times == BROKERS
        ),
        **{
            f"until the {name} said it, worst, s": round(max((getattr(one, of) for one in moves), default=0), 2)
            for name, of in waits.items()
        },
        "until all was well again, worst, s": round(max((one.right_s for one in moves), default=0), 2),
        "not named by `cluster describe`": sum(not one.is_named for one in moves),
    }


def report(found: dict[str, float], moves: Sequence[Move], options: argparse.Namespace) -> None:
    """Prints the tables, or their figures as JSON."""
    out = Console()
    if options.json:
        out.print_json(json.dumps({"figures": found, "moves": [one._asdict() for one in moves]}))
        return
    table = Table("broker", "", "moved by", "log, s", "metric, s", "described, s", "right again, s")
    for one in moves:
        seconds = (one.log_s, one.metric_s, one.describe_s, one.right_s)
        table.add_row(str(one.node), one.role, f"{one.ahead_s:+,} s", *(f"{value:.2f}" for value in seconds))
    out.print(table)
    table = Table("clocks that brokers believe" if options.trusting else "clocks", "")
    for name, value in found.items():
        table.add_row(name, f"{value:,}")
    out.print(table)


def is_good(found: dict[str, float], options: argparse.Namespace) -> bool:
    """True unless something is wrong."""
    if options.trusting:
        return found["records missing"] > 0
    wrong = ("records missing", "records refused", "not named by `cluster describe`")
    return not any(found[name] for name in wrong) and found["a broker's time was off by at most, ms"] <= SKEW_MS_MAX


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command's words."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.clocks", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=8, metavar="N", help="of each move; default: %(default)s")
    parser.add_argument("--trusting", action="store_true", help="brokers believe their clocks; records must be lost")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(words)


def main() -> int:
    """Plays a run; returns the exit status."""
    options, said, loaded = parse(), Console(stderr=True), library()
    if loaded is None:
        said.print(f"error: {LACK}", markup=False)
        return 2
    with tempfile.TemporaryDirectory(prefix="tidelog-clocks-") as directory:
        writer, moves = uvloop.run(play(Path(directory), loaded, options))
    found = figures(writer, moves)
    report(found, moves, options)
    for name, count in writer.refused.items():
        said.print(f"refused: {count} records by {name}")
    return 0 if is_good(found, options) else 1


if __name__ == "__main__":
    sys.exit(main())
