from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.unit.cli.conftest import Tidelog
from tidelog import __version__
from tidelog.cli.imports import imported
from tidelog.cli.main import COMMANDS

LEAVES = [
    "start", "produce", "consume", "sim", "check", "openapi", "topic create", "topic list", "topic describe",
    "topic alter", "topic delete", "log benchmark", "log dump", "log verify", "config show", "config docs",
    "config check", "bench",
    "bench produce", "bench consume", "bench latency", "bench raw",
]  # fmt: skip


def modules_after(*words: str) -> set[str]:
    """Returns what a command has imported when it ends, in a fresh interpreter."""
    program = (
        f"import sys; sys.argv = ['tidelog', *{words!r}]\n"
        "from tidelog.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_overview_names_every_command_and_imports_none() -> None:
    modules = modules_after("--help")
    assert not {f"tidelog.cli.{command.module}" for command in COMMANDS.values()} & modules
    assert not {"aiohttp", "pydantic", "rich.console", "uvloop"} & modules


def test_start_imports_nothing_that_only_other_commands_need() -> None:
    modules = modules_after("start", "--help")
    assert "tidelog.cli.start" in modules
    assert not {"aiohttp", "rich.console", "tidelog.producer", "tidelog.broker", "uvloop"} & modules


def test_the_overview_has_a_line_for_each_command(tidelog: Tidelog) -> None:
    ran = tidelog("--help")
    assert ran.status == 0
    for name, command in COMMANDS.items():
        assert any(line.split() == [name, *command.summary.split()] for line in ran.out.splitlines()), name


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_command_has_help_with_an_example(tidelog: Tidelog, leaf: str) -> None:
    ran = tidelog(*leaf.split(), "--help")
    assert ran.status == 0
    assert f"tidelog {leaf}" in ran.out.partition("Example")[2].partition("Options:")[0]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["strat"], "start"),
        (["topics"], "topic"),
        (["topic", "descibe", "t"], "describe"),
        (["config", "chek"], "check"),
    ],
)
def test_a_misspelt_command_is_answered_with_the_nearest(tidelog: Tidelog, words: list[str], meant: str) -> None:
    ran = tidelog(*words)
    assert ran.status == 2
    assert f"Did you mean '{meant}'?" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topic", "create", "t", "--protocol", "raft"], "'--protocol': 'raft' is not one of 'isr', 'paxos'."),
        (["topic", "create", "t", "--partitions", "0"], "'--partitions': must be greater than or equal to 1"),
        (["produce", "t", "--timeout-ms", "x"], "'--timeout-ms': must be a valid integer"),
    ],
)
def test_a_value_that_an_option_refuses_is_told_in_plain_words(tidelog: Tidelog, words: list[str], said: str) -> None:
    ran = tidelog(*words)
    assert (ran.status, ran.out) == (2, "")
    assert f"Error: Invalid value for {said}" in ran.err
    assert "Value error" not in ran.err and "Input should" not in ran.err


def test_the_documentation_knows_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`tidelog {name} " not in page and f"`tidelog {name}`" not in page] == []


def test_the_documentation_knows_the_words_of_every_command() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    unknown = []
    for name, command in COMMANDS.items():
        app = getattr(imported(f"tidelog.cli.{command.module}"), command.attribute)
        if isinstance(app, typer.Typer):
            group = typer.main.get_command(app)
            assert isinstance(group, typer.core.TyperGroup)
            rows = " ".join(re.findall(rf"`tidelog {name} ([^`]+)`", page))
            unknown += [f"{name} {word}" for word in group.commands if word not in re.split(r"[^a-z-]+", rows)]
    assert unknown == []


def test_without_a_command_the_overview_is_shown(tidelog: Tidelog) -> None:
    ran = tidelog()
    assert ran.status == 2
    assert "Commands:" in ran.out + ran.err


def test_the_version(tidelog: Tidelog) -> None:
    assert tidelog("--version") == (0, f"tidelog {__version__}\n", "")
