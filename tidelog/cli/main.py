"""The entry point of the command line: its commands, the import of the selected one, and the exit status.

A broker must be ready within a second, so only modules that the command needs are imported. The overview has a summary
of each command; only the command named by the first word is imported.

Exit status: 0 success, 1 an error (one line on standard error), 2 wrong usage or a wrong setting. A reader that closes
the pipe early, as `head` does, is no error. Only a bug causes a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.core

from tidelog import __version__
from tidelog.cli.imports import imported
from tidelog.cli.terminal import (
    EXIT_DONE,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    CommandError,
    ReaderGone,
    discard_output,
    one_line,
    print_error,
)
from tidelog.config.errors import plain_words
from tidelog.model.errors import TidelogError


class Command(NamedTuple):
    """A subcommand. `module` has the function `attribute`, or a `typer.Typer` for a group of commands."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, Command]] = {
    "start": Command("start", "start", "Run a broker."),
    "dev": Command("dev", "dev", "Run a cluster on this machine."),
    "topic": Command("topic", "app", "Create, list, describe, alter and delete topics."),
    "broker": Command("broker", "app", "List, describe and remove brokers."),
    "cluster": Command("cluster", "app", "Show the cluster, and plan how to even out its load."),
    "group": Command("group", "app", "List, describe, reset and delete consumer groups."),
    "acl": Command("acl", "app", "Say who may do what."),
    "user": Command("user", "app", "Make and remove users, and change their passwords."),
    "token": Command("token", "app", "Make and revoke tokens."),
    "quota": Command("quota", "app", "List, set and remove quotas."),
    "admin": Command("admin", "admin", "Take statements: create, alter, drop, show."),
    "produce": Command("produce", "produce", "Write lines to a topic, from a file or standard input."),
    "consume": Command("consume", "consume", "Print a topic's records."),
    "log": Command("log", "app", "Look into a broker's data on disk, and verify it."),
    "tls": Command("tls", "app", "Make a private CA, and certificates for brokers and clients."),
    "config": Command("config", "app", "Show, explain and check settings."),
    "bench": Command("bench", "app", "Measure a broker: throughput, latency, cost."),
    "sim": Command("sim", "sim", "Run simulations, each from one number."),
    "check": Command("check", "check", "Judge the recorded history of a run under faults."),
    "openapi": Command("openapi", "openapi", "Print the OpenAPI document of the HTTP interface."),
}

ASKING: Final = frozenset(
    {
        "topic",
        "broker",
        "cluster",
        "group",
        "acl",
        "user",
        "token",
        "quota",
        "admin",
        "produce",
        "consume",
        "log",
        "bench",
    }
)
"""Commands that connect to brokers, and so have the options for the connection."""

LOGIN_OPTION: Final = "--token-file"
LOGIN_VARIABLE: Final = "TIDELOG_TOKEN_FILE"
"""The environment variable that `--token-file` sets, and that every client of the command reads."""

COMPLETION_VARIABLE: Final = "_TIDELOG_COMPLETE"
"""Set by the shell when it asks for completions. The words are then not in the arguments, so all commands are
imported."""


def main() -> None:
    """Runs the command line of this process, and exits."""
    try:
        status = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        status = EXIT_DONE
    sys.exit(status)


def _run() -> str | int | None:
    """Runs the command line; returns the exit status. Raises `BrokenPipeError` if standard output is closed."""
    try:
        build(sys.argv[1:])(prog_name="tidelog")
    except SystemExit as end:
        return end.code
    except ReaderGone:
        raise BrokenPipeError from None
    except CommandError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return error.status
    except TidelogError as error:
        print_error(error)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk under standard output, for one
        print(f"error: {one_line(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:  # while something was still being imported
        return EXIT_INTERRUPTED
    return EXIT_ERROR


class PlainGroup(typer.core.TyperGroup):
    """The group of all commands. Rewords typer's error messages about invalid option values, which contain texts of its
    validation library."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the named command. Raises `typer.BadParameter` for an invalid value."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain_words(error.message)
            raise


def build(words: Sequence[str]) -> typer.Typer:
    """Returns the command line: the command named in `words` with its options, all others by name and summary."""
    app = typer.Typer(
        cls=PlainGroup,
        help="A Kafka-style message broker in asyncio Python.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog="Example: tidelog start, and in another terminal: tidelog topic create t --partitions 3",
    )
    app.callback()(_options)
    first = words[2:] if words[:1] == [LOGIN_OPTION] else words
    to_import = COMMANDS if COMPLETION_VARIABLE in os.environ else first[:1]
    for name, command in COMMANDS.items():
        if name in to_import:
            _add(app, name, command)
        else:
            app.command(name, help=command.summary)(_not_imported)
    return app


def _add(app: typer.Typer, name: str, command: Command) -> None:
    target = getattr(imported(f"tidelog.cli.{command.module}"), command.attribute)
    if name in ASKING:
        security = imported("tidelog.cli.security")
        target = security.with_security(target) if isinstance(target, typer.Typer) else security.secured(target)
    if isinstance(target, typer.Typer):
        app.add_typer(target, name=name, short_help=command.summary)
    else:
        app.command(name, short_help=command.summary)(target)


def _not_imported() -> None:
    raise AssertionError("a command is invoked by the first word, and that one was imported")


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"tidelog {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    token_file: Annotated[
        str | None,
        typer.Option(
            LOGIN_OPTION,
            metavar="FILE",
            envvar=LOGIN_VARIABLE,
            show_envvar=True,
            help="A token that says who you are; only you may read the file (0600).",
        ),
    ] = None,
) -> None:
    """Handles the options before the command."""
    if token_file is not None:
        os.environ[LOGIN_VARIABLE] = token_file
