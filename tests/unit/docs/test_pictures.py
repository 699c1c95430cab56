"""Pictures: each is shown with words that say what it shows, can be read by itself, and is small."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "images").iterdir())
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
BYTES_MAX = 100_000
CAST_BYTES_MAX = 60_000
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


def shown() -> list[tuple[Path, str, Path]]:
    """The pages that show a picture, the words that stand for it, and its file."""
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    found = [(page, words, link) for page in pages for words, link in SHOWN.findall(page.read_text())]
    return [(page, words, (page.parent / link).resolve()) for page, words, link in found]


def test_what_pages_show_is_there_and_all_that_is_there_is_shown() -> None:
    assert {picture for _, _, picture in shown()} == set(PICTURES)


def test_words_say_what_a_picture_shows() -> None:
    for page, words, picture in shown():
        assert len(words.split()) > 5, f"{page.name}: {picture.name}"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_a_small_svg_file_with_a_title_and_text(picture: Path) -> None:
    tree = ElementTree.parse(picture).getroot()
    assert tree.tag == f"{SVG}svg"
    assert tree.get("viewBox")
    assert tree.findtext(f"{SVG}title")
    assert len(list(tree.iter(f"{SVG}text"))) > 5
    is_cast = any("animation" in (style.text or "") for style in tree.iter(f"{SVG}style"))
    assert picture.stat().st_size < (CAST_BYTES_MAX if is_cast else BYTES_MAX)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_fetches_and_runs_nothing(picture: Path) -> None:
    tree = ElementTree.parse(picture).getroot()
    for element in tree.iter():
        assert element.tag.rpartition("}")[2] not in {"script", "image", "foreignObject"}
        for name in ("href", LINK):
            assert element.get(name, "#").startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)'\"]*)", picture.read_text()))
    assert "@import" not in picture.read_text()
