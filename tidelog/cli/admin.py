"""`tidelog admin`: runs a statement from the command line, statements from standard input, or an interactive prompt."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tidelog.admin import AdminClient
from tidelog.cli.connection import ask
from tidelog.cli.options import Bootstrap, Json, Throttle, parse_rate
from tidelog.cli.perform import Performer, how_to_found
from tidelog.cli.statements import CreateCluster, Statement, StatementError, completions, parse
from tidelog.cli.terminal import EXIT_DONE, EXIT_ERROR, EXIT_USAGE, CommandError, one_line, print_error
from tidelog.model.errors import TidelogError
from tidelog.transport.addresses import DEFAULT_BOOTSTRAP
from tidelog.transport.errors import ConnectFailed

STDIN = 0
PROMPT = "tidelog> "
HISTORY_LINES = 1000
HELP = """\
create cluster with brokers broker-0, broker-1, ...
create topic NAME with N partitions [and N replicas] [using isr|paxos]
drop topic NAME
alter cluster add|remove brokers broker-3, ...
show topics|brokers|groups
exit"""

Do = Callable[[Statement], None]


def admin(
    statement: Annotated[str | None, typer.Argument(metavar="STATEMENT", show_default=False)] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for brokers.")] = 60.0,
    throttle: Throttle = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Manage a cluster with statements; without one, from standard input or a prompt.

    \b
    Statements:
      create cluster with brokers broker-0, broker-1, broker-2
      create topic topicX with 100 partitions [and 3 replicas] [using isr|paxos]
      drop topic topicX
      alter cluster add brokers broker-3, broker-4
      alter cluster remove brokers broker-1
      show topics | show brokers | show groups

    broker-N is the broker with node id N. Brokers form a cluster by themselves when they start (cluster.voters, or
    --join). `create cluster` waits until the cluster consists of just these brokers, `add` until these are in it as
    well; both say how to start the ones that are missing. `add` then moves to the new brokers their share of the
    replicas, and `remove` empties brokers before they go; both show how far they are, and no broker sends or receives
    more than --throttle for that. After Ctrl-C it goes on, and the same statement watches again.

    \b
    Examples:
      tidelog admin "create topic topicX with 100 partitions"
      tidelog admin "show brokers" --json
      tidelog admin "alter cluster add brokers broker-3" --throttle 50MB
      tidelog admin < statements.txt
    """

    rate = parse_rate(throttle)

    def do(meant: Statement) -> None:
        _perform(meant, bootstrap, as_json=as_json, wait_s=wait, throttle_bytes_per_s=rate)

    if statement is not None:
        status = _once(statement, do)
    elif os.isatty(STDIN):
        status = _converse(do)
    else:
        status = _all(do)
    raise typer.Exit(status)


def _perform(
    statement: Statement, bootstrap: str, *, as_json: bool, wait_s: float, throttle_bytes_per_s: int | None
) -> None:
    async def perform(client: AdminClient) -> None:
        performer = Performer(client, as_json=as_json, wait_s=wait_s, throttle_bytes_per_s=throttle_bytes_per_s)
        await performer.perform(statement)

    try:
        ask(bootstrap, perform)
    except ConnectFailed as error:
        if isinstance(statement, CreateCluster):
            error.add_note(how_to_found(statement.node_ids))
        raise


def _once(text: str, do: Do) -> int:
    """Runs the statement `text`; returns the exit status. Prints syntax errors; raises all others."""
    try:
        meant = parse(text)
    except StatementError as error:
        print(f"error: {one_line(str(error))}\n{error.pointer}", file=sys.stderr)
        return EXIT_USAGE
    do(meant)
    return EXIT_DONE


def _all(do: Do) -> int:
    """Runs the statements of standard input, one per line, up to the first that fails. Ignores empty lines and `#`
    comments."""
    with open(STDIN, closefd=False, errors="replace") as lines:
        for line in lines:
            text = line.strip()
            if text and not text.startswith("#"):
                status = _once(text, do)
                if status != EXIT_DONE:
                    return status
    return EXIT_DONE


# -- a conversation -----------------------------------------------------------------------------------------------


def _converse(do: Do) -> int:
    """Runs statements from the prompt until the end of input or `exit`. An error ends only its statement."""
    import readline  # noqa: PLC0415 - changes the terminal, so only where there is a conversation

    history = _history_file()
    readline.set_history_length(HISTORY_LINES)
    readline.set_completer_delims(" ")
    readline.set_completer(lambda _, number: _completion(readline.get_line_buffer()[: readline.get_endidx()], number))
    readline.parse_and_bind("tab: complete")
    if history.exists():
        readline.read_history_file(history)
    print("Statements end with Enter; `help` lists them, Tab completes, Ctrl-D leaves.")
    try:
        while _answer(do):
            pass
    finally:
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(history)
    return EXIT_DONE


def _answer(do: Do) -> bool:
    """Reads a statement from the prompt and runs it; returns False at the end."""
    try:
        text = input(PROMPT).strip()
    except EOFError:
        print()
        return False
    except KeyboardInterrupt:
        print()
        return True
    if text in ("exit", "quit"):
        return False
    if text == "help":
        print(HELP)
    elif text:
        _survive(text, do)
    return True


def _survive(text: str, do: Do) -> int:
    """Runs the statement `text`; returns the exit status. Prints all errors."""
    try:
        return _once(text, do)
    except TidelogError as error:
        print_error(error)
    except CommandError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; what was begun may have been done", file=sys.stderr)
    return EXIT_ERROR


def _completion(text: str, number: int) -> str | None:
    words = completions(text)
    return f"{words[number]} " if number < len(words) else None


def _history_file() -> Path:
    """Returns the path of the prompt's history file, by the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tidelog" / "admin_history"
