"""The blocks of all pages run as they are typed, and print what their page says: `make pages`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pages.blocks import PAGES, ROOT, Block, Use, blocks
from tests.pages.terminal import PageFailed, Terminal, default_ports

RUN = {Use.SHELL, Use.PROMPT}


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.pages
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=names)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    todo = list(blocks(page))
    if not RUN & {block.use for block in todo}:
        return
    if Use.PROMPT in {block.use for block in todo} and sys.version_info >= (3, 13):
        pytest.skip("Python 3.13's `python -m asyncio` takes indented blocks from a terminal only")
    directory, notes = tmp_path / "reader", tmp_path / "notes"
    directory.mkdir()
    notes.mkdir()
    with default_ports():
        terminal = Terminal(directory, notes)
        try:
            for block in todo:
                try:
                    follow(block, terminal, directory)
                except PageFailed as error:
                    raise pytest.fail.Exception(f"{names(page)}:{block.line}: {error}", pytrace=False) from None
        finally:
            terminal.close()


def follow(block: Block, terminal: Terminal, directory: Path) -> None:
    """Does what the reader does."""
    match block.use:
        case Use.SHELL:
            terminal.type(block.text, fails=block.fails)
        case Use.PROMPT:
            terminal.type_python(block.text)
        case Use.SAVED:
            file = directory / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        case Use.COMPARED:
            terminal.compare(block.text)


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_a_page_says_what_to_do_with_each_block(page: Path) -> None:
    assert all(block.reason or block.use is not Use.NOT_RUN for block in blocks(page))
