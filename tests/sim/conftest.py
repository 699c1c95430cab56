"""Slow tests run when they are asked for: `pytest -m slow`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    slow = pytest.mark.skip(reason="slow: run it with `pytest -m slow`")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(slow)
