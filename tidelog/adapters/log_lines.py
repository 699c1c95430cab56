"""A process's log: one line per event on standard error, since standard output is for what programs read.

A line that cannot be written, because the terminal was closed or the disk is full, is dropped and must not end the
broker. So lines bypass Python's own buffer, which would keep what it could not write, and fail when the process ends.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog


class _Lines:
    """The part of a text stream that `print` needs. Without a stream, as after `2>&-`, all text is dropped."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._line = ""

    def write(self, text: str) -> None:
        # `print` writes text and line end apart; one `write` each keeps lines whole among processes that share the
        # stream.
        self._line += text

    def flush(self) -> None:
        line, self._line = self._line, ""
        if self._stream is not None:
            # Standard error that was closed, or a disk that is full, must end no broker.
            with suppress(OSError):
                os.write(self._stream.fileno(), line.encode("utf-8", "backslashreplace"))


def log_to_standard_error(level: str = "debug", form: str = "text") -> None:
    """Configures the log: messages of at least this level, as `text` or as `json`."""
    renderer: Any = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if form == "json" else renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(_Lines(sys.stderr)),  # type: ignore[arg-type]  # it uses no more
    )


class LogLevel:
    """The minimum level of this process's log, which can change while the process runs. `configured` is the level at
    the start, to which `switch` returns; the caller has set it already."""

    def __init__(self, configured: str) -> None:
        self.level = self._configured = configured

    def set(self, level: str) -> None:
        """Sets the minimum level of messages that are logged from now on."""
        bound = structlog.make_filtering_bound_logger(level)
        structlog.configure(**structlog.get_config() | {"wrapper_class": bound})
        self.level = level
        structlog.get_logger("tidelog").warning("log level changed", to=level)

    def switch(self) -> None:
        """Switches to `debug`, or back from `debug` to the configured level."""
        self.set(self._configured if self.level == "debug" else "debug")
