"""Common output of all commands: errors on standard error, one JSON document on standard output.

This module imports only the standard library and the error classes, because every command imports it.
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
"""Hints about an error by its code, for errors from brokers and libraries whose messages cannot know them."""

NOTICE_EVERY_S: Final = 5.0
EXIT_DONE: Final = 0
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
"""The exit status after Ctrl-C: 128 plus the number of the signal, as in shells."""
EXIT_TERMINATED: Final = 143
"""The exit status after SIGTERM: 128 plus the number of the signal."""


class ReaderGone(Exception):
    """The reader of our standard output has closed it, as after `| head`. Not an error."""


class CommandError(Exception):
    """A local error of a command, without a broker involved, such as an unreadable file."""

    status: ClassVar[int] = EXIT_ERROR


class UsageError(CommandError):
    """The command line, or a setting, is wrong; nothing was done."""

    status: ClassVar[int] = EXIT_USAGE


def printable(text: str) -> str:
    """Returns a text in which unprintable characters, which might control a terminal, are replaced by U+FFFD."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def print_error(error: TidelogError) -> None:
    """Prints an error on one line, `error: what (code)`, then its notes, and a hint if there is one."""
    print(f"error: {one_line(error.message)} ({error.code})", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)
    if error.code in HINTS:
        print(f"hint: {HINTS[error.code]}", file=sys.stderr)


class Notices(logging.Handler):
    """A logging handler that prints a client's warnings on standard error, such as that it waits for a broker.

    Active while it is entered as a context. Clients log every attempt; one line per `NOTICE_EVERY_S` seconds is
    printed.
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
    """Prints the single document of `--json`."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def say(document: object, text: str, *, as_json: bool) -> None:
    """Prints a line of text, or the JSON document."""
    if as_json:
        print_json(document)
    else:
        print(text)


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: `3 records`, `1 record`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def one_line(text: str) -> str:
    """Returns `text` without line breaks and control characters, so that foreign text cannot control the terminal."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))


def discard_output() -> None:
    """Redirects standard output to nowhere after its reader is gone, so that its flush at exit raises no error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
