"""A log that cannot be written harms nobody who logs."""

from __future__ import annotations

import io
import sys

import pytest
import structlog

from tidelog.adapters.log_lines import log_to_standard_error


class ClosedTerminal(io.StringIO):
    """Standard error whose terminal is gone."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_an_event_is_a_line_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    log_to_standard_error("warning")
    structlog.get_logger().info("nothing")
    structlog.get_logger().warning("elected", number=7)
    assert written.getvalue().endswith("level='warning' event='elected' number=7\n")
    assert written.getvalue().count("\n") == 1


def test_a_closed_terminal_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", ClosedTerminal())
    log_to_standard_error()
    structlog.get_logger().warning("elected")
