"""Pages that are made from code are those that it makes now."""

from __future__ import annotations

import orjson

from tests.pages.blocks import ROOT
from tidelog.broker.http.openapi import describe
from tidelog.broker.http.routes import ROUTES
from tools import api_reference, cli_reference


def test_the_python_api() -> None:
    assert (ROOT / "docs" / "python-api.md").read_text() == api_reference.page(), "run `make docs`"


def test_the_commands() -> None:
    assert (ROOT / "docs" / "commands.md").read_text() == cli_reference.page(), "run `make docs`"


def test_the_openapi_document() -> None:
    assert orjson.loads((ROOT / "docs" / "openapi.json").read_bytes()) == orjson.loads(describe(ROUTES)), (
        "run `make docs`"
    )


def test_every_command_has_an_example() -> None:
    for command in cli_reference.page().split("\n## ")[1:]:
        assert "Commands:\n" in command or "Example" in command, command.splitlines()[0]


def test_every_public_method_says_what_it_does() -> None:
    for block in api_reference.page().split("\n#### ")[1:]:
        method, _, text = block.partition("\n```\n")[2].partition("\n```\n")
        assert text.strip(), method
