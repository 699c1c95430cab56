"""What every test gets: Hypothesis without a stopwatch and, unless asked otherwise, without dice.

The tests, and the brokers that they start, may open as many files as a login shell lets them, not more.

No test may depend on the machine's speed, and a red run must be red again. `--hypothesis-profile=explore` looks for
new examples; what it finds becomes an `@example`. Slow tests run when they are asked for: `pytest -m slow`; those that
start Spark, by `make spark`; the programs of `docs/programs.md`, by `make programs`.

Brokers that tests start are forked from a process that has imported what they need (`tests/nursery.py`): imports were
nearly all that a start takes. `executed` has those of a test started as users start them.

Temporary directories are in memory where there is room, since no test cuts the power of this machine, and waiting for
its disk took more time than anything else. `TMPDIR` names another place: with `TMPDIR=/var/tmp` they are on a disk.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.nursery import Nursery
from tidelog.testing import BrokerProcess

OPEN_FILES_MAX = 1024
"""What most Linuxes give a login shell. A test that keeps what it is done with open is found by it."""

MEMORY = "/dev/shm"
WHOLE_PROGRAMS = Path(__file__).parent / "e2e"
MEMORY_BYTES_MIN = 2 << 30
ONLY_IF_ASKED_FOR = {
    "spark": "make spark",
    "pages": "make pages",
    "programs": "make programs",
    "slow": "pytest -m slow",
}
"""The commands that run the tests that are skipped otherwise, by their marker."""

settings.register_profile("repeatable", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command that a test runs in this process logs to the standard error of that test, which is closed after it."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _nursery() -> Iterator[None]:
    with closing(Nursery()) as nursery, pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerProcess, "launch", nursery.launch)
        yield


@pytest.fixture(scope="module")
def executed() -> Iterator[None]:
    """Has the brokers of a module started by their command lines alone, as users' are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerProcess, "launch", subprocess.Popen)
        yield


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a run in the background of a shell, and its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES_MAX, hard), hard))
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keeps the garbage collector from what is imported and collected, and stays; and shares out compiling it."""
    gc.disable()
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    if worker and not sys.dont_write_bytecode:
        _compile_share(session, int(worker.removeprefix("gw")), int(workers))


def _compile_share(session: pytest.Session, worker: int, workers: int) -> None:
    """Imports every so many of the test modules. In a fresh checkout nothing is compiled, all workers need all modules,
    in the same order, and each compiled nearly all of them for itself. (Its assertions take most of the time.)"""
    root = session.config.rootpath
    paths = [root / argument.partition("::")[0] for argument in session.config.args]
    files = sorted({*chain.from_iterable(path.rglob("test_*.py") if path.is_dir() else [path] for path in paths)})
    if _are_left_out(session.config):
        files = [file for file in files if WHOLE_PROGRAMS not in file.parents]
    for file in files[worker::workers]:
        with suppress(Exception, pytest.skip.Exception):  # which the collection of this module reports
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Hides what is imported and collected from the garbage collector, which went through it again and again."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="record what golden scripts answer now; the diff is the review"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the directory of whole programs where they are not to be run: no worker needs to import them."""
    return True if collection_path == WHOLE_PROGRAMS and _are_left_out(config) else None


def _are_left_out(config: pytest.Config) -> bool:
    """Returns True if whole programs, and nothing else, are deselected."""
    return bool(config.option.markexpr == "not e2e")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skips = {
        marker: pytest.mark.skip(reason=f"{marker}: run it with `{command}`")
        for marker, command in ONLY_IF_ASKED_FOR.items()
        if marker not in config.option.markexpr
    }
    for item in items:
        markers = {mark.name for mark in item.iter_markers()}
        for marker, skip in skips.items():
            if marker in markers:
                item.add_marker(skip)
        if WHOLE_PROGRAMS in item.path.parents:
            item.add_marker("e2e")
