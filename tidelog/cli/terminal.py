"""What every command says in the same way: errors on standard error, one JSON document on standard output.

Nothing here imports more than the standard library and the error classes, because every command imports it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from types import MappingProxyType
from typing import ClassVar, Final, Self

from tidelog.model.errors import TidelogError

HINTS: Final = MappingProxyType(
    {
        40401: "`tidelog topic list` shows the topics there are; `tidelog topic create` makes one",
        40402: "`tidelog topic describe TOPIC` shows the partitions it has",
        40405: "`tidelog group list` shows the groups there are",
        41001: "`tidelog log losses` shows who gave these records up, and when",
        50302: "the partition has no leader, or too few replicas, at the moment; try again shortly",
        50303: "`tidelog log verify --cluster` shows if a good copy is left; `tidelog log accept-loss` is for none",
        50380: "is a broker running there? `tidelog start` runs one; --bootstrap or TIDELOG_BOOTSTRAP names another",
    }
)
"""What to do about an error, by its code, where its message cannot know: it comes from a broker or a library."""

NOTICE_EVERY_S: Final = 5.0
EXIT_DONE: Final = 0
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
"""The status of a command that Ctrl-C ended: 128 and the number of the signal, as shells count."""
EXIT_TERMINATED: Final = 143
"""The status of one that SIGTERM ended, which supervisors send."""


class ReaderGone(Exception):
    """Nobody reads our standard output any more, as after `| head`. Not an error: whoever it was had enough."""


class CommandError(Exception):
    """A command cannot do its work here, and no broker has to do with it: an unreadable file."""

    status: ClassVar[int] = EXIT_ERROR


class UsageError(CommandError):
    """The command line, or a setting, is wrong: nothing was tried."""

    status: ClassVar[int] = EXIT_USAGE


def printable(text: str) -> str:
    """Returns a text that commands nothing to a terminal: what is not printable is shown as U+FFFD."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def print_error(error: TidelogError) -> None:
    """One line, `error: what (code)`; then what the command noted about it, and the next step if there is one."""
    print(f"error: {one_line(error.message)} ({error.code})", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)
    if error.code in HINTS:
        print(f"hint: {HINTS[error.code]}", file=sys.stderr)


class Notices(logging.Handler):
    """Shows on standard error what a client says while it works, such as that it waits for a broker to come back.

    As long as it is entered. Clients report every single try; a line in `NOTICE_EVERY_S` is what a person can use.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._quiet_until_s = 0.0
        self._logger = logging.getLogger("tidelog")

    def emit(self, record: logging.LogRecord) -> None:
        """Prints the message, unless another one was printed shortly before."""
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + NOTICE_EVERY_S
            print(f"notice: {one_line(record.getMessage())}", file=sys.stderr)

    def __enter__(self) -> Self:
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(logging.NOTSET)


def print_json(document: object) -> None:
    """The one document that `--json` prints."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def say(document: object, text: str, *, as_json: bool) -> None:
    """Prints a line of text for people, or the one document."""
    if as_json:
        print_json(document)
    else:
        print(text)


def counted(count: int, noun: str) -> str:
    """`3 records`, `1 record`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def one_line(text: str) -> str:
    """`text` without line breaks or control characters, so that nothing from outside can rewrite the terminal."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))


def discard_output() -> None:
    """Sends what is left of standard output nowhere: whoever read it has gone, and wants no complaint about it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
