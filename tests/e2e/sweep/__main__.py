"""Damages copies of acknowledged records on the disks of three real brokers, by patterns, and says what came back.

    python -m tests.e2e.sweep --protocol isr --patterns 1000
    python -m tests.e2e.sweep --protocol paxos --series last      # one copy of the last record; killed soon after it
    python -m tests.e2e.sweep --variant behind --stop idle        # one replica lacks the last two entries

A round is a cluster of its own, with a partition for each pattern; rounds take the ways to stop in turn. Exit status 1
if anything was lost, wrong, passed over in silence, stuck or left unrepaired: each such partition is printed with the
command that runs its round again, and the round's directory is kept, with the disks as they were damaged in `damaged/`.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.e2e.power.disks import missing
from tests.e2e.sweep.cases import (
    DAMAGES,
    PLAIN_DAMAGES,
    PLAIN_STOPS,
    STOPS,
    VARIANTS,
    WHERES,
    Series,
    draw_cases,
    draw_patterns,
)
from tests.e2e.sweep.reading import Result
from tests.e2e.sweep.rounds import Round
from tidelog.sim.sweep.cases import Damage, Stop, Variant, Where
from tidelog.sim.sweep.verdicts import Verdict
from tidelog.testing import BrokerFailed

PROTOCOLS: Final = ("isr", "paxos")


def rounds(options: argparse.Namespace, directory: Path) -> Iterator[tuple[int, Round]]:
    """Yields the rounds of a series, numbered. Nothing in one depends on those before it."""
    patterns = list(draw_patterns(options.series, options.patterns, random.Random(options.seed)))
    wheres = options.where or (WHERES if options.protocol == "paxos" else [Where.LOG])
    for number, begin in enumerate(range(0, len(patterns), options.partitions)):
        if options.only not in (None, number):
            continue
        seed = options.seed * 1_000 + number
        rng = random.Random(f"cases {seed}")
        yield (
            number,
            Round(
                draw_cases(
                    patterns[begin : begin + options.partitions],
                    rng,
                    damages=options.damage,
                    wheres=wheres,
                    variant=options.variant,
                ),
                seed,
                directory / f"{options.protocol}-{options.series}-{options.variant}-{seed}",
                protocol=options.protocol,
                stop=options.stop[number % len(options.stop)],
                series=options.series,
                variant=options.variant,
            ),
        )


class Tally:
    """All results, by the way in which the brokers ended."""

    def __init__(self) -> None:
        self.results: dict[Stop, list[Result]] = {}
        self.failures: list[str] = []

    def add(self, played: Round, result: Result) -> None:
        """Counts a result, and says what is wrong with it."""
        self.results.setdefault(played.stop, []).append(result)
        if result.verdict is not Verdict.RECOVERED:
            self.failures.append(
                f"{result.verdict}: round={played.seed} stop={played.stop} {result.case}"
                f" age={result.age_s:.2f}s: {result.detail}"
            )

    def figures(self) -> dict[str, dict[str, float]]:
        """Returns the table's columns, by its rows."""
        rows = {str(stop): results for stop, results in self.results.items()}
        rows["all"] = [result for results in self.results.values() for result in results]
        return {name: _figures(results) for name, results in rows.items() if results}

    def table(self) -> Table:
        """Returns the result as people read it."""
        table = Table("", *self.figures())
        for name in next(iter(self.figures().values())):
            table.add_row(name, *(f"{figures[name]:,.6g}" for figures in self.figures().values()))
        return table


def _figures(results: list[Result]) -> dict[str, float]:
    lost = [result for result in results if result.lost_entries]
    return {
        "patterns": len(results),
        "with a good copy of every entry": len(results) - len(lost),
        "of these recovered": sum(one.verdict is Verdict.RECOVERED for one in results if not one.lost_entries),
        "others": len(lost),
        "of these as they should be": sum(one.verdict is Verdict.RECOVERED for one in lost),
        "entries without a good copy": sum(one.lost_entries for one in lost),
        "answered 50303": sum(one.answered_damaged for one in lost),
        **{
            str(verdict): sum(one.verdict is verdict for one in results)
            for verdict in Verdict
            if verdict is not Verdict.UNTOLD
        },
        **{f"age under {limit} s": sum(one.age_s < limit for one in results) for limit in (0.1, 0.5)},
        "age, median s": round(median(one.age_s for one in results), 3),
        "seconds to the verdict, median": round(median(one.seconds for one in results), 1),
        "seconds to the verdict, longest": round(max(one.seconds for one in results), 1),
    }


def play(options: argparse.Namespace, directory: Path) -> Tally:
    """Plays all rounds. What has failed keeps its directory."""
    tally = Tally()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"{options.protocol} {options.series} {options.variant}", total=options.patterns)
        for number, one in rounds(options, directory):
            failed = len(tally.failures)

            def told(result: Result, played: Round = one) -> None:
                tally.add(played, result)
                if result.verdict is not Verdict.RECOVERED:
                    console.print(tally.failures[-1], markup=False, soft_wrap=True)
                progress.advance(bar)

            try:
                one.play(told)
            except BrokerFailed as error:
                tally.failures.append(f"broker: round={one.seed} stop={one.stop}: {error}")
                console.print(tally.failures[-1], markup=False, soft_wrap=True)
            if len(tally.failures) == failed:
                shutil.rmtree(one.directory)
            else:
                count, words = len(tally.failures) - failed, f"{shlex.join(sys.argv[1:])} --only {number}"
                line = f"{count} failures in {one.directory}; again: python -m tests.e2e.sweep {words}"
                console.print(line, markup=False, soft_wrap=True)
    return tally


def report(tally: Tally, options: argparse.Namespace) -> None:
    """Prints the table, or its figures as JSON, and what was wrong."""
    out = Console()
    if options.json:
        parameters = {"protocol": options.protocol, "series": options.series, "variant": options.variant}
        document = {**parameters, "seed": options.seed, "figures": tally.figures(), "failures": tally.failures}
        out.print_json(json.dumps({**document, "skipped": options.skipped}))
    elif tally.results:
        out.print(tally.table())
        if options.skipped:
            out.print(f"skipped: {', '.join(options.skipped)}")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command's words."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.sweep", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--protocol", choices=PROTOCOLS, default="isr", help="of the topic; default: %(default)s")
    parser.add_argument("--patterns", type=int, default=250, metavar="N", help="how many; default: %(default)s")
    parser.add_argument("--partitions", type=int, default=250, metavar="N", help="of a round; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is drawn; default: %(default)s")
    parser.add_argument("--series", type=Series, choices=[*Series], default=Series.SWEEP, help="default: %(default)s")
    parser.add_argument("--variant", type=Variant, choices=VARIANTS, default=Variant.PLAIN, help="default: %(default)s")
    parser.add_argument(
        "--stop", type=Stop, choices=STOPS, action="append", help="default: all of them in turn that can be had here"
    )
    parser.add_argument(
        "--damage", type=Damage, choices=DAMAGES, action="append", help="default: any that can be had here"
    )
    parser.add_argument("--where", type=Where, choices=WHERES, action="append", help="Paxos; default: any of them")
    parser.add_argument("--only", type=int, metavar="N", help="the round of this number, from 0 on; default: all")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="of all rounds; default: a temporary one")
    options = parser.parse_args(words)
    lack = missing()
    options.skipped = [f"{one} ({lack})" for one in (Stop.POWER, Damage.EIO) if lack]
    stops, damages = (PLAIN_STOPS, PLAIN_DAMAGES) if lack else (STOPS, DAMAGES)
    options.stop = options.stop or (stops if options.series is Series.SWEEP else [Stop.ACKNOWLEDGED])
    options.damage = options.damage or damages
    return options


def main() -> int:
    """Plays a series; returns the exit status."""
    options = parse()
    directory = options.data_dir or Path(tempfile.mkdtemp(prefix="tidelog-sweep-"))
    tally = play(options, directory)
    report(tally, options)
    if not any(directory.iterdir()):
        directory.rmdir()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
