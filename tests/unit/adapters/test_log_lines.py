"""A log that cannot be written harms nobody who logs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import structlog

from tidelog.adapters.log_lines import log_to_standard_error


def test_an_event_is_a_line_on_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log_to_standard_error("warning")
        structlog.get_logger().info("nothing")
        structlog.get_logger().warning("elected", number=7)
        (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.endswith(" level='warning' event='elected' number=7")


def test_a_line_that_cannot_be_written_is_dropped_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as stream:  # its end would fail with what it kept
        monkeypatch.setattr(sys, "stderr", stream)
        log_to_standard_error()
        structlog.get_logger().warning("elected")


def test_a_process_without_standard_error_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    log_to_standard_error()
    structlog.get_logger().warning("elected")
    assert capfd.readouterr() == ("", "")
