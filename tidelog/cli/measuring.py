"""Common options of the workloads of `tidelog bench`, and the running of a workload with a progress bar."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
import uvloop

from tidelog.adapters.heap import collect_seldom
from tidelog.bench.history import append_history
from tidelog.bench.result import Workload
from tidelog.bench.secured import Level
from tidelog.cli.connection import interruptible
from tidelog.cli.options import Acks, Codec, Durability, Json, option, with_options
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

_COMMON: Final = (
    option("topic", Topic, None),
    option("bootstrap", Bootstrap, None),
    option(
        "security", Annotated[Level, typer.Option(help="Of the brokers that are started for the run.")], Level.PLAIN
    ),
    option(
        "history", Annotated[Path | None, typer.Option(metavar="FILE", help="Add a line of JSON to this file.")], None
    ),
    option("as_json", Json, default=False),
)

Options = TypeVar("Options")
Command = Callable[..., None]


def report(
    workload: Workload[Options], options: Options, *, history: Path | None = None, as_json: bool = False
) -> None:
    """Runs a workload and prints its results, or its error. Ctrl-C and SIGTERM stop the brokers started for it."""
    collect_seldom()
    try:
        with count_progress() as progress:
            bar = progress.add_task("measuring", total=None)
            working = workload(options, lambda done, total: progress.update(bar, completed=done, total=total))
            result = uvloop.run(interruptible(working))
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


def workload(measure: Workload[Options], options: Callable[..., Options]) -> Callable[[Command], Command]:
    """Decorates the signature of a command that runs a workload: its parameters are fields of the workload's options.
    Adds the options of `_COMMON` that are such fields, and `--history` and `--json`."""
    names = {*inspect.signature(options).parameters, "history", "as_json"}

    def decorate(signature: Command) -> Command:
        @wraps(signature)
        def command(*, history: Path | None, as_json: bool, **chosen: Any) -> None:
            if "bootstrap" in chosen:
                chosen["connection"] = client_arguments()
            report(measure, options(**chosen), history=history, as_json=as_json)

        return with_options(command, *(option for option in _COMMON if option.name in names))

    return decorate
