"""Names in pages are names of things that exist: make targets, commands and their options, settings, routes, error
codes, files of code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from tests.pages.blocks import PAGES, ROOT, blocks
from tidelog.broker.peer_service import MESSAGE_ADDITIONS
from tidelog.cli.main import build
from tidelog.controller.records import RECORD_ADDITIONS
from tidelog.model.levels import Additions
from tools.error_reference import error_classes

OURS: Final = [page for page in PAGES if page.name != "divergences.md" and page.parent.name != "coming-from"]
"""Pages that name what tidelog has; the others name what it has not."""
SPAN: Final = re.compile(r"`([^`\n]+)`")
DOTTED: Final = re.compile(r"[a-z]+(?:\.[a-z]+)+")
ROUTE: Final = re.compile(r"/(?:v3|topics|consumers|groups|offsets|metadata)(?:/[\w{}$:.-]+)*")


@cache
def spans(page: Path) -> list[str]:
    """Returns what a page has as code: within lines, and line by line in blocks that are typed."""
    text = page.read_text()
    typed = [line for block in blocks(page) for line in block.text.splitlines()]
    return [*SPAN.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)), *typed]


def named(pattern: str, page: Path) -> set[str]:
    return {name for span in spans(page) for name in re.findall(pattern, span)}


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", OURS, ids=names)


@each_page
def test_make_targets(page: Path) -> None:
    rules = re.findall(r"^([a-z0-9%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    patterns = [re.compile(rule.replace("%", ".+")) for rule in rules]
    unknown = {
        name
        for name in named(r"^(?:.*[;&] *)?make ([a-z][a-z0-9-]+)", page)
        if not any(p.fullmatch(name) for p in patterns)
    }
    assert not unknown


@cache
def command(words: tuple[str, ...]) -> Any:
    """Returns the command of these words, as far as they are commands; None for a word that is none."""
    at: Any = _with(words[0])
    for word in words:
        if hasattr(at, "commands") and at is not None:
            at = at.commands.get(word)
    return at


@cache
def _with(first: str) -> Any:
    return typer.main.get_command(build([first]))


def said(page: Path) -> Iterator[tuple[str, ...]]:
    """Yields the words of each command of ours that a page names."""
    for span in spans(page):
        for line in re.split(r"[;|&]|\$\(", span):
            found = re.match(r"\s*(?:[A-Z_]+=\S+ )*tidelog ([a-z][a-z-]*(?: .*)?)$", line)
            if found and found[1] != "peer proof 1":  # the label of a signature
                yield tuple(found[1].split("#")[0].split())


@each_page
def test_commands_and_their_options(page: Path) -> None:
    for words in said(page):
        head = tuple(word for word in words if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-"))
        at = command(head[:2]) or command(head[:1])
        assert at is not None, words
        options = {option for parameter in at.params for option in (*parameter.opts, *parameter.secondary_opts)}
        unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options - {"--help"}
        assert not unknown, (words, unknown)


@cache
def sources() -> str:
    return "\n".join(
        file.read_text() for room in ("tidelog", "pyspark_tidelog") for file in (ROOT / room).rglob("*.py")
    )


@cache
def files() -> set[str]:
    return {file.name for file in ROOT.rglob("*.py") if ".venv" not in str(file)}


@each_page
def test_settings_modules_and_files(page: Path) -> None:
    for span in spans(page):
        if span.endswith(".py") and "/" not in span and DOTTED.fullmatch(span):
            assert span in files(), f"no file is named {span}"
        elif DOTTED.fullmatch(span) and span.split(".")[-1] not in {"toml", "pem", "txt", "json", "com", "log"}:
            ending = span.partition(".")[2]  # Spark's options put `kafka.` before the name of an argument
            assert ending in sources() or ending.replace(".", "_") in sources(), f"{span} is named nowhere in the code"


@cache
def paths() -> str:
    return "\n".join(f"/{file.relative_to(ROOT)}" for file in ROOT.rglob("*.py")) + "\n"


@each_page
def test_paths_of_code(page: Path) -> None:
    if page.name == "hacking.md":
        return  # its example of a commit protocol is the reader's to write
    for path in named(r"^[\w./-]+/\w+\.py$", page):
        assert f"/{path}\n" in paths(), f"there is no {path}"


@pytest.mark.parametrize(
    ("name", "additions"),
    [("peer-protocol", MESSAGE_ADDITIONS), ("metadata-log", RECORD_ADDITIONS)],
    ids=["peer-protocol", "metadata-log"],
)
def test_what_is_new_at_a_level(name: str, additions: Additions) -> None:
    known = named(r"\w+", ROOT / "docs" / f"{name}.md")
    fields = {field for fields in additions.fields.values() for field in fields}
    assert fields | {kind.__struct_config__.tag for kind in additions.types} <= known  # the names on the wire


@each_page
def test_routes(page: Path) -> None:
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    shapes = [re.compile(re.sub(r"\{\w+\}", r"[^/]+", path)) for path in paths]
    for route in named(ROUTE.pattern, page):
        if route.startswith("/v3/") and not route.endswith("..."):
            assert any(shape.fullmatch(route.rstrip(".:")) for shape in shapes), route


@each_page
def test_error_codes(page: Path) -> None:
    known = {str(kind.code) for kind in error_classes()}
    assert named(r"(?<![\d.:-])([45]0[0-9]\d{2})(?![\d.])", page) <= known
