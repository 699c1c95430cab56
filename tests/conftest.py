"""What every test gets: Hypothesis without a stopwatch and, unless asked otherwise, without dice.

The tests, and the brokers that they start, may open as many files as a login shell lets them, not more.

No test may depend on the machine's speed, and a red run must be red again. `--hypothesis-profile=explore` looks for
new examples; what it finds becomes an `@example`. Slow tests run when they are asked for: `pytest -m slow`; those that
start Spark, by `make spark`.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

OPEN_FILES_MAX = 1024
"""What most Linuxes give a login shell. A test that keeps what it is done with open is found by it."""

settings.register_profile("repeatable", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command that a test runs in this process logs to the standard error of that test, which is closed after it."""
    yield
    structlog.reset_defaults()


def pytest_configure() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES_MAX, hard), hard))


def pytest_collection_finish() -> None:
    """Hides what is imported and collected from the garbage collector, which went through it again and again."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="record what golden scripts answer now; the diff is the review"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked: str = config.option.markexpr
    _skip(items, "spark", "spark: run it with `make spark`", unless="spark" in asked)
    _skip(items, "slow", "slow: run it with `pytest -m slow`", unless=bool(asked))


def _skip(items: list[pytest.Item], marker: str, reason: str, *, unless: bool) -> None:
    skip = pytest.mark.skip(reason=reason)
    for item in items:
        if not unless and item.get_closest_marker(marker):
            item.add_marker(skip)
