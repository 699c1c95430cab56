"""Tables and progress bars. The only module of the command line that imports rich.

A table has no frame, and no colour but a bold header, so that it reads the same on a terminal and in a mail, and `awk`
can cut its columns. Without a terminal a table is as wide as necessary; nothing is cut off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from tidelog.cli.terminal import print_json, printable

T = TypeVar("T")

PIPE_COLUMNS = 1000
"""Maximum columns of a table that is not printed to a terminal."""


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()) -> None:
    """Prints a table: integers, and the columns `numbers`, are right-aligned; None is a dash. Unprintable characters in
    names are shown as U+FFFD."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    body = [list(row) for row in rows]
    for position, name in enumerate(head):
        is_number = name in numbers or (bool(body) and all(isinstance(row[position], int) for row in body))
        table.add_column(name.upper(), justify="right" if is_number else "left", overflow="fold")
    for row in body:
        table.add_row(*(Text("-" if cell is None else printable(str(cell))) for cell in row))
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=PIPE_COLUMNS)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show(
    result: T,
    print_it: Callable[[T], object],
    *,
    as_json: bool,
    document: Callable[[T], object] = msgspec.to_builtins,
) -> None:
    """Prints a result: by `print_it`, or as one JSON document."""
    if as_json:
        print_json(document(result))
    else:
        print_it(result)


def listed(node_ids: Iterable[int]) -> str:
    """Returns node ids as text for a table cell."""
    return ",".join(map(str, node_ids))


def byte_progress(*, is_shown: bool = True) -> Progress:
    """Returns a progress bar over bytes with their rate, on standard error; invisible if that is no terminal."""
    return _progress(TaskProgressColumn(), TransferSpeedColumn(), is_shown=is_shown)


def count_progress() -> Progress:
    """Returns a progress bar over counted things, on standard error; invisible if that is no terminal."""
    return _progress(MofNCompleteColumn(), is_shown=True)


def _progress(*columns: TaskProgressColumn | MofNCompleteColumn | TransferSpeedColumn, is_shown: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (is_shown and console.is_terminal),
    )
