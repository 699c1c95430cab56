"""Cuts the power of real brokers' disks, again and again, and says what became of the acknowledged records.

    python -m tests.e2e.power --cuts 2000
    python -m tests.e2e.power --cuts 30 --lies      # the control: disks that say yes and flush nothing must lose some

A life is a cluster of its own, with partitions of both commit protocols, and many cuts. Exit status 1 if anything was
lost, wrong or stuck: each such record is printed with the command that draws the same life again, and the disks are
kept, as they are and as the last cut has left them. With `--lies`, exit status 1 if nothing was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.e2e.power.disks import DisksUnavailable, mounted
from tests.e2e.power.lives import LIES, LYING_QUIET_S, QUIET_S, Life
from tests.nursery import Nursery
from tidelog.testing import BrokerFailed

SHOWN_MAX: Final = 5


class Tally:
    """The sums over all lives."""

    def __init__(self) -> None:
        self.lives = self.moments = self.disk_cuts = self.acknowledged = 0
        self.stakes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.ages_s: list[float] = []
        self.failures: list[str] = []
        self._begun_s = time.monotonic()

    def add(self, life: Life) -> None:
        """Counts a life that is over."""
        self.lives += 1
        self.moments += len(life.ages_s)
        self.disk_cuts += life.disk_cuts
        self.acknowledged += life.acknowledged
        self.stakes += life.stakes
        self.errors += life.errors
        self.ages_s += life.ages_s
        self.wrong.update(finding.wrong.name.lower() for finding in life.findings)

    def figures(self) -> dict[str, float]:
        """Returns what there is to tell, by its name."""
        return {
            "disks cut": self.disk_cuts,
            "at so many moments": self.moments,
            "in so many lives of a cluster": self.lives,
            "unflushed writes at stake": self.stakes["writes"],
            "unflushed bytes at stake": self.stakes["bytes"],
            "unflushed changes of names at stake": self.stakes["names"],
            "last acknowledgement before a cut, median ms": round(1_000 * median(self.ages_s or [0.0]), 1),
            "records acknowledged": self.acknowledged,
            **{f"offsets {name}": count for name, count in sorted(self.wrong.items())},
            "offsets lost, wrong or stuck": self.wrong.total(),
            "sends that were not acknowledged": self.errors.total(),
            "other failures": len(self.failures) - self.wrong.total(),
            "seconds": round(time.monotonic() - self._begun_s, 1),
            "seconds per disk cut": round((time.monotonic() - self._begun_s) / max(1, self.disk_cuts), 2),
        }


async def live(
    options: argparse.Namespace, number: int, directory: Path, nursery: Nursery, told: Callable[[int], None]
) -> tuple[Life, str]:
    """Lives one life. Returns it, and what ended it if that was not its end."""
    seed = options.seed * 1_000 + number
    nodes, failed = range(1, options.brokers + 1), ""
    with mounted(directory, nodes, seed) as disks:
        quiet_s = LYING_QUIET_S if options.lies else QUIET_S
        rng = random.Random(f"life {seed}")
        life = Life(directory, disks, nursery, rng, partitions=options.partitions, quiet_s=quiet_s, told=told)
        try:
            async with life:
                for disk in disks.values():
                    disk.set_faults([LIES] if options.lies else [])
                await life.play(options.moments)
        except (BrokerFailed, TimeoutError) as error:
            failed = str(error)
        if failed or life.findings:
            life.keep(directory / "kept")
    return life, failed


def play(options: argparse.Namespace, directory: Path, tally: Tally) -> None:
    """Lives lives until enough disks were cut. What has failed keeps its directory."""
    console = Console(stderr=True)
    columns = (TextColumn("power cuts"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    number = options.only or 0
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with closing(Nursery()) as nursery, bars as progress:
        bar = progress.add_task("", total=options.cuts)
        while tally.disk_cuts < options.cuts:
            at = directory / f"life-{options.seed * 1_000 + number}"
            life, failed = asyncio.run(live(options, number, at, nursery, lambda cuts: progress.advance(bar, cuts)))
            tally.add(life)
            wrong = [*map(str, life.findings), *([failed] if failed else [])]
            tally.failures += wrong
            if wrong and not options.lies:
                words = f"{shlex.join(sys.argv[1:])} --only {number}"
                lines = [*wrong[:SHOWN_MAX], f"{len(wrong)} in {at}; again: python -m tests.e2e.power {words}"]
                console.print("\n".join(lines), markup=False, soft_wrap=True)
            else:
                shutil.rmtree(at)
            number += 1
            if options.only is not None:
                break


def report(tally: Tally, options: argparse.Namespace) -> None:
    """Prints the table, or its figures as JSON."""
    out = Console()
    if options.json:
        document = {"seed": options.seed, "brokers": options.brokers, "figures": tally.figures()}
        out.print_json(json.dumps({**document, "failures": tally.failures[:100]}))
        return
    table = Table("disks that lie" if options.lies else "power cuts", "")
    for name, value in tally.figures().items():
        table.add_row(name, f"{value:,}")
    out.print(table)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command's words."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.power", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cuts", type=int, default=100, metavar="N", help="of disks, at least; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is drawn; default: %(default)s")
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="of a cluster; default: %(default)s")
    parser.add_argument("--partitions", type=int, default=4, metavar="N", help="of each topic; default: %(default)s")
    parser.add_argument("--moments", type=int, default=25, metavar="N", help="a life's checks; default: %(default)s")
    parser.add_argument("--only", type=int, metavar="N", help="the life of this number, from 0 on; default: all")
    parser.add_argument("--lies", action="store_true", help="disks flush nothing that topics hold, and say they did")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="of all lives; default: a temporary one")
    return parser.parse_args(words)


def main() -> int:
    """Plays a series; returns the exit status."""
    options = parse()
    directory = options.data_dir or Path(tempfile.mkdtemp(prefix="tidelog-power-"))
    tally = Tally()
    try:
        play(options, directory, tally)
    except DisksUnavailable as error:
        print(f"error: no file system of a program's own can be mounted here: {error}", file=sys.stderr)  # noqa: T201 - a program
        return 1
    except KeyboardInterrupt:
        pass  # what the lives before have shown is told
    report(tally, options)
    if not any(directory.iterdir()):
        directory.rmdir()
    return int(not tally.failures) if options.lies else int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
