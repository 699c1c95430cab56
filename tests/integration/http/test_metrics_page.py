"""docs/metrics.md has the metrics that a broker shows, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.metrics_reference import exposition, page

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def rows(text: str) -> list[list[str]]:
    """Returns the cells of each row, but for the labels: some families have none before there is something to count."""
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[*row[:2], row[-1]] for row in cells]


@pytest.mark.process
async def test_the_page_has_what_a_broker_shows() -> None:
    assert rows(PAGE.read_text()) == rows(page(await exposition())), "run `make docs`"
