"""Pages: each has its place in the site, and its links lead somewhere, also where it is read without the site."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FOLDERS = (".", "decisions", "start", "coming-from", "how-to")
PAGES = sorted({page for folder in FOLDERS for page in (DOCS / folder).glob("*.md")})
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    found, seen = set[str](), Counter[str]()
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def test_each_page_has_one_place_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    named = Counter(re.findall(r": ([\w/-]+\.md)$", nav, re.MULTILINE))
    assert set(named.values()) == {1}
    records = [page for page in DOCS.rglob("*.md") if page.parent.name == "decisions" and page.name != "README.md"]
    assert set(named) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in records}


def test_each_decision_is_in_the_table_once() -> None:
    records = {page.name: page.read_text().splitlines()[0] for page in (DOCS / "decisions").glob("[0-9]*.md")}
    rows = re.findall(
        r"^\| (\d{4}) \| \[(.+)\]\((.+)\) \| .+\. \|", (DOCS / "decisions/README.md").read_text(), re.MULTILINE
    )
    assert [(name, f"# {number} {title}") for number, title, name in rows] == sorted(records.items())


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
        assert target.resolve().is_relative_to(DOCS if page.is_relative_to(DOCS) else ROOT), f"{link}: not in the site"
