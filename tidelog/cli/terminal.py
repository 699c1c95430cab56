"""What every command says in the same way: errors on standard error, one JSON document on standard output.

Nothing here imports more than the standard library and the error classes, because every command imports it.
"""

from __future__ import annotations

import json
import os
import sys
from types import MappingProxyType
from typing import Final

from tidelog.model.errors import TidelogError

HINTS: Final = MappingProxyType(
    {
        40401: "`tidelog topic list` shows the topics there are; `tidelog topic create` makes one",
        40402: "`tidelog topic describe TOPIC` shows the partitions it has",
        50302: "the partition has no leader, or too few replicas, at the moment; try again shortly",
        50303: "`tidelog log verify` on the broker's data directory shows the extent of the damage",
        50380: "is a broker running there? `tidelog start` runs one; --bootstrap or TIDELOG_BOOTSTRAP names another",
    }
)
"""What to do about an error, by its code, where its message cannot know: it comes from a broker or a library."""


class UsageError(Exception):
    """The command line, or a setting, is wrong: nothing was tried. Exit status 2."""


def print_error(error: TidelogError) -> None:
    """One line, `error: what (code)`, and one more with the next step where there is an obvious one."""
    print(f"error: {one_line(error.message)} ({error.code})", file=sys.stderr)
    if error.code in HINTS:
        print(f"hint: {HINTS[error.code]}", file=sys.stderr)


def print_json(document: object) -> None:
    """The one document that `--json` prints."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def one_line(text: str) -> str:
    """`text` without line breaks or control characters, so that nothing from outside can rewrite the terminal."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))


def discard_output() -> None:
    """Sends what is left of standard output nowhere: whoever read it has gone, and wants no complaint about it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
