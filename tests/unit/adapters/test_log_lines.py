"""A log that cannot be written harms nobody who logs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import structlog

from tidelog.adapters.log_lines import LogLevel, log_to_standard_error


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


def test_a_log_may_be_json_and_its_level_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = structlog.get_logger()  # made before, as those of modules are
    with (tmp_path / "log").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log_to_standard_error("warning", "json")
        level = LogLevel("warning")
        log.debug("before")
        level.switch()
        log.debug("between")
        level.switch()
        assert level.level == "warning"
        log.info("after")
        log.error("failed", number=7)
        level.set("error")
        log.warning("after that")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    shown = [(line["event"], line["level"]) for line in lines if line["event"] != "log level changed"]
    assert shown == [("between", "debug"), ("failed", "error")]
    assert [line["to"] for line in lines if line["event"] == "log level changed"] == ["debug", "warning"]
