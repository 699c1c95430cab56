"""Runs the sweep as a command: series of damage patterns on simulated disks, with a table of what was recovered.

    python -m tidelog.sim.sweep                                       # all of it: hours
    python -m tidelog.sim.sweep --protocol paxos --damage cut --stop power --patterns 256

A series is all patterns, or some, with one protocol, one damage and one way to stop. Exit status 1 if any entry was
lost, wrong or passed over in silence, a log was stuck, left unrepaired or not reported: each such log is printed with
the command that runs its round again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tidelog.sim.sweep.cases import Damage, Plan, Protocol, Stop, Variant, Where
from tidelog.sim.sweep.rounds import Series, play_all, rounds_of
from tidelog.sim.sweep.tally import Tally

COMMAND = "python -m tidelog.sim.sweep"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").split("\n", 1)[0])
    for name, kind in (("protocol", Protocol), ("damage", Damage), ("stop", Stop)):
        parser.add_argument(f"--{name}", type=kind, choices=[*kind], action="append", help="default: all of them")
    parser.add_argument(
        "--variant", type=Variant, choices=[*Variant], default=Variant.PLAIN, help="default: %(default)s"
    )
    parser.add_argument("--where", type=Where, choices=[*Where], default=Where.BOTH, help="Paxos; default: %(default)s")
    parser.add_argument("--patterns", type=int, metavar="N", help="drawn ones of each series; default: all")
    parser.add_argument("--partitions", type=int, default=128, metavar="N", help="of a cluster; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is drawn; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes; default: %(default)s")
    parser.add_argument("--round", type=int, metavar="N", help="of each series only this one, from 0 on; default: all")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(words)


def series_of(options: argparse.Namespace) -> list[Series]:
    """Returns the series that the options ask for. Five replicas have a million patterns: a thousand are drawn by
    default."""
    patterns = options.patterns or (1_000 if options.variant is Variant.FIVE else None)
    return [
        Series(Plan(protocol, stop, options.variant, options.seed), damage, options.where, patterns, options.partitions)
        for protocol in options.protocol or [*Protocol]
        for stop in options.stop or [*Stop]
        for damage in options.damage or [*Damage]
    ]


def again(series: Series, number: int) -> str:
    """Returns the command that runs a round again."""
    plan = series.plan
    words = f"--protocol {plan.protocol} --damage {series.damage} --stop {plan.stop} --variant {plan.variant}"
    some = f" --patterns {series.patterns}" if series.patterns else ""
    return (
        f"{COMMAND} {words} --where {series.where} --seed {plan.seed} --partitions {series.size}{some} --round {number}"
    )


def main() -> int:
    """Runs the series; returns the exit status."""
    options = parse()
    many = series_of(options)
    tally = Tally()
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    left = {series: len(rounds_of(series)) if options.round is None else 1 for series in many}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=sum(left.values()))
        for played in play_all(many, options.jobs, options.round):
            progress.update(bar, description=played.series.name)
            for line in tally.add(played):
                console.print(f"{line}\n  again: {again(played.series, played.number)}", markup=False, soft_wrap=True)
            progress.advance(bar)
            left[played.series] -= 1
            if not left[played.series]:
                console.print(tally.summary(played.series), markup=False, highlight=False, soft_wrap=True)
    out = Console()
    if options.json:
        out.print_json(json.dumps({"seed": options.seed, "series": tally.figures(), "failures": tally.failures}))
    else:
        out.print("\n".join(tally.lines()), markup=False, highlight=False, soft_wrap=True)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
