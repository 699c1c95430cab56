"""Common options of the workloads of `tidelog bench`, and the running of a workload with a progress bar."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from tidelog.bench.history import append_history
from tidelog.bench.result import Workload, run
from tidelog.bench.secured import Level
from tidelog.cli.options import Acks, Codec, Durability
from tidelog.cli.security import client_arguments
from tidelog.cli.tables import count_progress, print_table
from tidelog.cli.terminal import CommandError, print_json
from tidelog.model.cluster import CommitProtocol
from tidelog.testing import BrokerFailed

Bootstrap = Annotated[
    str | None, typer.Option(metavar="URL", help="A running broker. Default: one started for the run.")
]
Topic = Annotated[str | None, typer.Option(metavar="TOPIC", help="Default: one made for the run.", show_default=False)]
Partitions = Annotated[int, typer.Option(min=1, metavar="P", help="Of the topic made for the run.")]
Brokers = Annotated[
    int, typer.Option(min=1, max=9, metavar="N", help="Started for the run; up to three hold a replica each.")
]
ProtocolOption = Annotated[CommitProtocol, typer.Option(help="commit.protocol of the topic made for the run.")]
DurabilityOption = Annotated[Durability, typer.Option(help="ack.durability of the topic made for the run.")]
Records = Annotated[int, typer.Option(min=1, metavar="N", help="How many records.")]
ValueBytes = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Size of a record's value.")]
AcksOption = Annotated[Acks, typer.Option(help="What to wait for.")]
Compression = Annotated[Codec, typer.Option(help="Of whole batches.")]
BatchBytes = Annotated[int, typer.Option(min=1, metavar="BYTES", help="A batch of this size is full.")]
SecurityOption = Annotated[Level, typer.Option("--security", help="Of the brokers that are started for the run.")]
History = Annotated[Path | None, typer.Option(metavar="FILE", help="Add a line of JSON to this file.")]


Options = TypeVar("Options")
P = ParamSpec("P")


def report(
    workload: Workload[Options], options: Options, *, history: Path | None = None, as_json: bool = False
) -> None:
    """Runs a workload and prints its results, or its error."""
    try:
        with count_progress() as progress:
            bar = progress.add_task("measuring", total=None)
            result = run(workload, options, lambda done, total: progress.update(bar, completed=done, total=total))
    except BrokerFailed as error:
        raise CommandError(str(error)) from None
    if history is not None:
        append_history(result, history)
    if as_json:
        print_json(
            {"workload": result.workload, "parameters": dict(result.parameters), "figures": dict(result.figures)}
        )
    else:
        print_table([result.workload, ""], result.lines(), numbers=[""])
        print()


def workload(
    measure: Workload[Options], options: Callable[..., Options]
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorates the signature of a command that runs a workload: its parameters, except `history` and `as_json`, are
    passed as fields of the workload's options."""

    def decorate(signature: Callable[P, None]) -> Callable[P, None]:
        @wraps(signature)
        def command(*_: P.args, **given: P.kwargs) -> None:
            chosen: dict[str, Any] = dict(given)
            history, as_json = chosen.pop("history"), chosen.pop("as_json")
            if "bootstrap" in chosen:
                chosen["connection"] = client_arguments()
            report(measure, options(**chosen), history=history, as_json=as_json)

        return command

    return decorate
