"""A process's log: one line an event on standard error; standard output is for what a program may read."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

import structlog


class _Lines:
    """A text stream that drops what it cannot write: a terminal that was closed, or a full disk, ends no broker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def log_to_standard_error(level: str = "debug") -> None:
    """Logs what is of this level or graver from now on."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(_Lines(sys.stderr)),  # type: ignore[arg-type]  # it uses no more
    )
