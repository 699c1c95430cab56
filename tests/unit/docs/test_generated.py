"""Pages that are made from code are those that it makes now."""

from __future__ import annotations

from tests.pages.blocks import ROOT
from tools.api_reference import page


def test_the_python_api() -> None:
    assert (ROOT / "docs" / "python-api.md").read_text() == page(), "run `make docs`"


def test_every_public_method_says_what_it_does() -> None:
    for block in page().split("\n#### ")[1:]:
        method, _, text = block.partition("\n```\n")[2].partition("\n```\n")
        assert text.strip(), method
