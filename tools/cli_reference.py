"""Prints the page of all commands, `docs/commands.md`, from their `--help`: `python -m tools.cli_reference`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final

import typer

from tidelog.cli.main import COMMANDS, build

HEAD: Final = """\
# Commands

Generated from `--help` by `make docs`; do not edit. [The command line](cli.md) says what the commands have in common,
and shows what they print. How to connect is the same for all: `--bootstrap`, `--command-config` and
`--command-property` are left out below.
"""
WIDTH: Final = 100
SHARED: Final = ("bootstrap", "command_config", "command_property", "help")


def page() -> str:
    """Returns the page's text."""
    return "\n".join([HEAD, *(line for name in sorted(COMMANDS) for line in _shown(f"tidelog {name}", _command(name)))])


def _command(name: str) -> Any:
    group: Any = typer.main.get_command(build([name]))
    return group.commands[name]


def _shown(path: str, command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    yield f"## {path}\n"
    yield f"```\n{_help(path, command)}\n```\n"
    for name in sorted(below):
        yield from _shown(f"{path} {name}", below[name])


def _help(path: str, command: Any) -> str:
    command.params = [parameter for parameter in command.params if parameter.name not in SHARED]
    command.add_help_option = False
    context = command.context_class(command, info_name=path, terminal_width=WIDTH, max_content_width=WIDTH)
    return re.sub(r" +$", "", command.get_help(context), flags=re.MULTILINE).strip()


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    print(page(), end="")
