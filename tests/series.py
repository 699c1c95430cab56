"""Series of seeds of which a few are run each time, and the rest when slow tests are asked for."""

from __future__ import annotations

import pytest


def seeds(few: int, all_of_them: int, *, first: int = 0) -> pytest.MarkDecorator:
    """Calls a test with `seeds`: a few, from the first on, and, as a slow test, all others."""
    chosen = range(first, first + few)
    others = [*range(first), *range(first + few, all_of_them)]
    rest = pytest.param(
        others if first else range(few, all_of_them), id="the rest", marks=[pytest.mark.slow, pytest.mark.timeout(600)]
    )
    return pytest.mark.parametrize("seeds", [pytest.param(chosen, id="a few"), rest])


def steps(count: int, seeds: range) -> range:
    """Returns the steps from 1 to `count`: with the first few seeds every third, with the rest all."""
    return range(1, count + 1, 1 if seeds.start else 3)
