"""`tidelog sim`: simulations of brokers, each determined by a seed, with checks of all guarantees.

A seed gives the same run on every machine, so a failure is reported with the command that repeats it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.options import Json
from tidelog.cli.tables import count_progress, print_table, show
from tidelog.cli.terminal import EXIT_ERROR, counted
from tidelog.sim.cluster.families import ON, Family, families_of
from tidelog.sim.cluster.traffic import Mix
from tidelog.sim.main import ALL, Simulator, Summary, replay_command, run

FAILURES_SHOWN_MAX = 5
TRACE_LINES = 20


def sim(
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="How many seeds.")] = 20,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="The first one.")] = 0,
    of: Annotated[Simulator | None, typer.Option(help="What to simulate; default: all of it.")] = None,
    protocol: Annotated[
        Mix | None, typer.Option(help="How the topics of clusters commit; default: as the seed says.")
    ] = None,
    groups: Annotated[
        bool | None,
        typer.Option("--groups/--no-groups", help="Consumer groups in clusters; default: as the seed says."),
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Families of faults in clusters, beside the usual ones, with commas between them: "
            f"{', '.join(Family)}; or all, or none.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Processes to use.")] = 1,
    as_json: Json = False,
) -> None:
    """Simulate brokers with failing disks and networks, and check their guarantees.

    Each run executes the production code on a virtual clock with simulated disks and network, with crashes, damage,
    network partitions and retrying clients: one log, a broker, or a whole cluster. Exit status 1 if a guarantee was
    violated; the output then repeats the run.

    \b
    Examples:
      tidelog sim --runs 1000 --jobs 2
      tidelog sim --runs 1 --seed 4711
      tidelog sim --of cluster --runs 500
      tidelog sim --of cluster --protocol mixed --runs 500
      tidelog sim --of cluster --groups --runs 500
      tidelog sim --of cluster --faults tail,missing --runs 500
    """
    simulators = ALL if of is None else (of,)
    families = _families(faults)
    with count_progress() as progress:
        bar = progress.add_task("simulating", total=runs)
        summary = run(
            runs,
            seed,
            jobs,
            lambda done, _: progress.update(bar, completed=done),
            simulators,
            protocol,
            groups,
            families,
        )
    show(summary, _print_summary, as_json=as_json, document=_document)
    if not summary.is_good:
        raise typer.Exit(EXIT_ERROR)


def _families(names: str | None) -> tuple[Family, ...]:
    try:
        return ON if names is None else families_of(names)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; there are {', '.join(Family)}", param_hint="--faults") from None


def _document(summary: Summary) -> dict[str, object]:
    return {
        "first_seed": summary.first_seed,
        "runs": summary.runs,
        "records_acknowledged": summary.records_acknowledged,
        "faults": summary.faults,
        "counters": dict(sorted(summary.counters.items())),
        "failures": [
            {
                "seed": failure.seed,
                "violations": list(failure.violations),
                "replay": _replay(summary, failure.seed),
            }
            for failure in summary.failures
        ],
        "never_happened": summary.never_happened,
    }


def _replay(summary: Summary, seed: int) -> str:
    return replay_command(seed, summary.simulators, summary.mix, summary.groups, summary.families)


def _print_summary(summary: Summary) -> None:
    figures = [f"{counted(len(summary.failures), 'run')} failed"]
    if summary.counters:  # a storage has no clients, and counts nothing
        print_table(["what happened", "times"], sorted(summary.counters.items()))
        print()
        acknowledged = f"{counted(summary.records_acknowledged, 'record')} acknowledged"
        figures = [acknowledged, counted(summary.faults, "fault"), *figures]
    print(f"{counted(summary.runs, 'run')} from seed {summary.first_seed}: {', '.join(figures)}")
    for failure in summary.failures[:FAILURES_SHOWN_MAX]:
        print(f"\nseed {failure.seed}: {_replay(summary, failure.seed)}")
        for violation in failure.violations:
            print(f"  {violation}")
        if summary.runs == 1:
            print("the end of its trace:", *(failure.events or failure.trace.splitlines())[-TRACE_LINES:], sep="\n  ")
    if len(summary.failures) > FAILURES_SHOWN_MAX:
        print(f"\nand {len(summary.failures) - FAILURES_SHOWN_MAX} more; --json lists all")
    for name in summary.never_happened:
        print(f"never happened, and should have: {name}")
