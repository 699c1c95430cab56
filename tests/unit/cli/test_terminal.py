from __future__ import annotations

import logging

import pytest

from tidelog.cli.terminal import Notices, one_line, print_error
from tidelog.model.errors import DiskFull, UnknownTopic


def test_an_error_is_one_line_with_its_code_then_notes_then_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    error = UnknownTopic("there is no topic\n'a\x1b[2J'")
    error.add_note("3 records were acknowledged")
    print_error(error)
    first, note, hint = capsys.readouterr().err.splitlines()
    assert first == "error: there is no topic 'a [2J' (40401)"
    assert note == "3 records were acknowledged"
    assert hint.startswith("hint: `tidelog topic list`")


def test_an_error_without_an_obvious_next_step_has_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(DiskFull("no space"))
    assert capsys.readouterr().err == "error: no space (50701)\n"


def test_one_line_keeps_what_can_be_printed() -> None:
    assert one_line("  é\r\nb\t\x07c ") == "é b  c"


def test_notices_do_not_repeat_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    handler = Notices()
    for attempt in range(3):
        handler.handle(logging.makeLogRecord({"msg": "trying again (%d)", "args": (attempt,), "levelno": logging.INFO}))
    assert capsys.readouterr().err == "notice: trying again (0)\n"
