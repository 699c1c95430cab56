from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Tidelog
from tidelog.config.reference import reference


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "tidelog.toml"
    path.write_text("node.id = 7\n[log]\nretention.ms = 1000\n")
    return path


def test_show_says_where_each_value_comes_from(
    tidelog: Tidelog, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BROKER_RACK", "r1")
    ran = tidelog("config", "show", "--config", str(settings_file), "--set", "log.dir=/data", "--json")
    assert ran.status == 0
    shown = {row["name"]: (row["value"], row["source"]) for row in json.loads(ran.out)}
    assert shown["node.id"] == ("7", str(settings_file))
    assert shown["broker.rack"] == ("r1", "environment variable TIDELOG_BROKER_RACK")
    assert shown["log.dir"] == ("/data", "command line")
    assert shown["num.partitions"] == ("1", "default")


def test_show_prints_a_table_without_colours_or_padding_in_a_pipe(tidelog: Tidelog) -> None:
    lines = tidelog("config", "show").out.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "SOURCE"]
    assert lines[1].split() == ["node.id", "1", "default"]
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_docs_prints_the_reference(tidelog: Tidelog) -> None:
    assert tidelog("config", "docs") == (0, reference(), "")


def test_check_of_a_right_file(tidelog: Tidelog, settings_file: Path) -> None:
    assert tidelog("config", "check", str(settings_file)) == (0, f"{settings_file}: 2 settings, all right\n", "")


def test_check_ignores_the_environment(tidelog: Tidelog, settings_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_NO_SUCH_SETTING", "1")
    assert tidelog("config", "check", str(settings_file)).status == 0


def test_check_names_the_nearest_setting(tidelog: Tidelog, settings_file: Path) -> None:
    settings_file.write_text("[log]\nretention.mss = 1000\n")
    ran = tidelog("config", "check", str(settings_file))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {settings_file}: ")
    assert "log.retention.ms?" in ran.err


def test_check_of_a_file_that_is_not_there(tidelog: Tidelog, tmp_path: Path) -> None:
    ran = tidelog("config", "check", str(tmp_path / "none.toml"))
    assert ran.status == 1
    assert "No such file" in ran.err


@pytest.mark.parametrize("setting", ["retention.ms", "=5", ""])
def test_a_setting_that_is_no_pair_is_a_usage_error(tidelog: Tidelog, setting: str) -> None:
    ran = tidelog("config", "show", "--set", setting)
    assert (ran.status, ran.out) == (2, "")
    assert "NAME=VALUE" in ran.err


def test_a_setting_with_two_values_is_a_usage_error(tidelog: Tidelog) -> None:
    ran = tidelog("config", "show", "--set", "node.id=1", "--set", "node.id=2")
    assert ran.status == 2
    assert "node.id is set twice" in ran.err
