"""Series of seeds of which a few are run each time, and the rest when slow tests are asked for."""

from __future__ import annotations

import pytest


def seeds(few: int, all_of_them: int) -> pytest.MarkDecorator:
    """Calls a test with `seeds`: the first few, and, as a slow test, those after them."""
    rest = pytest.param(range(few, all_of_them), id="the rest", marks=[pytest.mark.slow, pytest.mark.timeout(600)])
    return pytest.mark.parametrize("seeds", [pytest.param(range(few), id="a few"), rest])
