"""Loads real brokers to the full, takes processor time from them, stalls their disks, and says what they did for it.

    python -m tests.e2e.steady --minutes 30                              # hogs, and disks that stall for 200 ms
    python -m tests.e2e.steady --minutes 10 --hogs 0 --stall-ms 0        # quiet: nobody may leave an in-sync set
    python -m tests.e2e.steady --hang-disk leader --times 20             # a disk that hangs for 30 s

A broker that hangs is to be recognised early, and one that is only slow is not to be taken for it: this is the price.
Three brokers have a topic of each commit protocol. A closed loop measures what they take beside the hogs, and then an
open loop sends that share of it. Exit status 1 if a record that was acknowledged is lost or any is there twice, or if
an in-sync set shrinks in a quiet run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from tests.e2e.power.disks import DisksUnavailable
from tests.e2e.steady.counts import NOTHING, Counts, Processors, read_counts
from tests.e2e.steady.disks import StallingDisk, mounted, stall_at_random
from tests.e2e.steady.hangs import measure_hangs
from tests.e2e.steady.load import Load
from tidelog.admin import AdminClient
from tidelog.bench.pause import BROKERS, PauseOptions, Whom
from tidelog.model.cluster import PROTOCOLS
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

WARM_UP_S: Final = 3.0
CAPACITY_S: Final = 15.0
HOG: Final = "while True: pass"
HANG_S: Final = 30.0
CALM_S: Final = 5.0


@dataclass(slots=True)
class Run:
    """What has come of a run."""

    load: Load
    capacity: float = 0.0
    idle: float = 0.0
    """The part of the processors' time that the closed loop could not use."""
    counts: Counts = NOTHING
    stalls: int = 0
    skipped: str = ""
    """Why no disk was stalled, though it was asked for."""
    figures: dict[str, float] = field(default_factory=dict)

    def note(self, options: argparse.Namespace) -> None:
        """Makes the figures of what is known at the end."""
        books = self.load.books
        self.figures = {
            "records per second, closed loop": round(self.capacity),
            "processors idle meanwhile, %": round(100 * self.idle, 1),
            "records per second, wanted": round(self.capacity * options.share),
            "records acknowledged": sum(book.acknowledged for book in books),
            "records refused": self.load.refused.total(),
            "the load was late by at most, s": round(self.load.behind_s_max, 2),
            "stalls of a disk": self.stalls,
            "stalls were skipped": int(bool(self.skipped)),
            "replicas that left an in-sync set": self.counts.shrinks,
            "replicas that came back": self.counts.expands,
            "changes of leaders": self.counts.leaders,
            "changes of the controller": self.counts.controllers,
            "times a broker was fenced": self.counts.fenced,
            **{
                f"longest without an acknowledgement, {name}, ms": round(
                    1_000 * max(book.gap_s_max for book in books if book.topic == name)
                )
                for name in PROTOCOLS
            },
            "records lost": sum(book.lost for book in books),
            "records there twice": sum(book.twice for book in books),
        }

    def is_good(self, options: argparse.Namespace) -> bool:
        """True unless something is wrong."""
        is_quiet = not options.hogs and not options.stall_ms
        is_whole = not self.figures["records lost"] and not self.figures["records there twice"]
        return is_whole and not (is_quiet and self.counts.shrinks)


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Has so many processes take all the processor time that they get."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", HOG]))
            stack.callback(process.kill)
        yield


async def play(options: argparse.Namespace, directory: Path, said: Console) -> Run:
    """Plays one run."""
    with ExitStack() as stack:
        disks: Mapping[int, StallingDisk] = {}
        skipped = ""
        if options.stall_ms:
            try:
                disks = stack.enter_context(mounted(directory, BROKERS))
            except DisksUnavailable as error:
                skipped = str(error)
                said.print(f"no disk is stalled, as no file system of a program's own can be mounted here: {skipped}")
        cluster = stack.enter_context(LocalCluster(len(BROKERS), data_dir=directory))
        run = Run(Load(cluster.bootstrap, len(BROKERS)), skipped=skipped)
        async with AdminClient(cluster.bootstrap) as admin, Producer(cluster.bootstrap, linger_ms=0) as producer:
            for name in PROTOCOLS:
                replicas = {at: (*BROKERS[at:], *BROKERS[:at]) for at in range(len(BROKERS))}
                await admin.create_topic(name, replicas_assignments=replicas, configs={"commit.protocol": name})
            with hogs(options.hogs):
                await run.load.closed(producer, WARM_UP_S)
                processors = Processors()
                run.capacity = await run.load.closed(producer, CAPACITY_S)
                run.idle = processors.idle()
                said.print(f"{run.capacity:,.0f} records per second; {options.share:.0%} of it from now on")
                before = await read_counts(cluster, admin)
                stalling = asyncio.create_task(
                    stall_at_random(disks, options.stall_ms / 1_000, random.Random(options.seed))
                )
                await run.load.open(producer, run.capacity * options.share, options.minutes * 60)
                stalling.cancel()
                run.stalls = await stalling
                run.counts = (await read_counts(cluster, admin)).since(before)
            said.print("reading all back")
            await run.load.read_back()
    run.note(options)
    return run


def report(figures: Mapping[str, float], title: str, options: argparse.Namespace) -> None:
    """Prints the table, or its figures as JSON."""
    out = Console()
    if options.json:
        out.print_json(json.dumps({"options": vars(options), "figures": dict(figures)}))
        return
    table = Table(title, "")
    for name, value in figures.items():
        table.add_row(name, f"{value:,}")
    out.print(table)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command's words."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.steady", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=30, metavar="N", help="of the open loop; default: %(default)s")
    parser.add_argument("--share", type=float, default=0.9, metavar="X", help="of the capacity; default: %(default)s")
    parser.add_argument("--stall-ms", type=float, default=200, metavar="N", help="0: no stalls; default: %(default)s")
    parser.add_argument("--hogs", type=int, default=cores, metavar="N", help="processes; default: as many as cores")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the stalls; default: %(default)s")
    parser.add_argument("--hang-disk", choices=[Whom.LEADER, Whom.FOLLOWER], help="instead: hang one for 30 s")
    parser.add_argument("--times", type=int, default=20, metavar="N", help="it hangs; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(words)


def hang(options: argparse.Namespace, directory: Path, said: Console) -> int:
    """Has disks hang; returns the exit status."""
    wanted = PauseOptions(whom=Whom(options.hang_disk), pauses=options.times, paused_s=HANG_S, calm_s=CALM_S)
    try:
        found = uvloop.run(
            measure_hangs(directory, wanted, lambda done, total: said.print(f"{done} of {total} disks have hung"))
        )
    except DisksUnavailable as error:
        said.print(f"error: no file system of a program's own can be mounted here: {error}")
        return 1
    shown = {name.replace("_", " "): round(value, 1) for name, value in found.items()}
    report(shown, f"the disk of a {options.hang_disk} hangs", options)
    return 0


def main() -> int:
    """Plays a run; returns the exit status."""
    options, said = parse(), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-steady-", ignore_cleanup_errors=True) as directory:
        if options.hang_disk is not None:
            return hang(options, Path(directory), said)
        run = uvloop.run(play(options, Path(directory), said))
    report(run.figures, "a steady load", options)
    for name, count in run.load.refused.items():
        said.print(f"refused: {count} records by {name}")
    return 0 if run.is_good(options) else 1


if __name__ == "__main__":
    sys.exit(main())
