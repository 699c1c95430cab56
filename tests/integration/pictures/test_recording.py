"""A recording of a real shell: what it prints, its jobs, and its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.pictures import recording
from tools.pictures.recording import PROMPT, TooSlow, record
from tools.pictures.scenes import OtherEnding, Scene, picture


def test_a_shell_shows_what_was_typed_and_what_it_prints(tmp_path: Path) -> None:
    lines = record(["# a remark", "echo $COLUMNS; pwd", "no-such-command"], tmp_path, columns=60)
    texts = [line.text for line in lines]
    assert texts[:4] == [f"{PROMPT}# a remark", f"{PROMPT}echo $COLUMNS; pwd", "60", str(tmp_path)]
    assert texts[-1].endswith("no-such-command: command not found")
    assert sorted(line.at_s for line in lines) == [line.at_s for line in lines]


def test_jobs_run_in_the_background_and_end_with_the_recording(tmp_path: Path) -> None:
    script = [
        "trap 'touch left' EXIT",
        "(trap 'touch stopped; exit' TERM; touch begun; while sleep 0.02; do :; done) &",
    ]
    record([*script, "until [ -e begun ]; do sleep 0.02; done"], tmp_path, columns=60)
    assert {file.name for file in tmp_path.iterdir()} == {"begun", "stopped", "left"}


def test_a_command_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LINE_TIMEOUT_S", 0.3)
    with pytest.raises(TooSlow, match="no prompt"):
        record(["sleep 1000"], tmp_path, columns=60)


def test_a_scene_that_goes_otherwise_is_no_picture() -> None:
    scene = Scene("greeting", "A greeting", ("echo hello | tr h j",), ("jello",))
    assert ">jello<" in picture(scene)
    with pytest.raises(OtherEnding, match="'hello' is not to be seen"):
        picture(scene._replace(shown=("hello",)))
