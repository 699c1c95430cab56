"""The command line against a real broker: in this process where only its answer counts, else in one of its own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest

import tidelog
from tidelog.cli.main import main
from tidelog.testing import LocalCluster

TIMEOUT_S = 30
COMMAND = [sys.executable, "-m", "tidelog"]


def environment(**variables: str) -> dict[str, str]:
    """Ours without what would configure a broker, with this checkout importable."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return {**inherited, "PYTHONPATH": str(Path(tidelog.__file__).parent.parent), **variables}


class Ran(NamedTuple):
    status: int
    out: bytes
    err: str


class Cli:
    """Runs commands in `directory`, against the broker that the environment names."""

    def __init__(
        self, bootstrap: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]
    ) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._monkeypatch = monkeypatch
        self._capture = capture

    def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        """Runs a command here: everything but a process of its own, which would cost half a second."""
        with self._monkeypatch.context() as patch, TemporaryFile() as given, pytest.raises(SystemExit) as end:
            given.write(stdin)
            given.seek(0)
            patch.setattr(sys, "argv", ["tidelog", *words])
            patch.setenv("TIDELOG_BOOTSTRAP", self._bootstrap)
            patch.chdir(self._directory)
            ours = os.dup(0)
            os.dup2(given.fileno(), 0)
            try:
                main()
            finally:
                os.dup2(ours, 0)
                os.close(ours)
        printed = self._capture.readouterr()
        assert isinstance(end.value.code, int)
        return Ran(end.value.code, printed.out, printed.err.decode())

    def succeed(self, *words: str, stdin: bytes = b"") -> bytes:
        """Standard output of a command that must end well, and must have nothing to complain about."""
        ran = self(*words, stdin=stdin)
        assert (ran.status, ran.err) == (0, "")
        return ran.out

    def fail(self, *words: str, stdin: bytes = b"", status: int = 1) -> list[str]:
        """The lines on standard error of a command that must fail, as a user is to see it fail."""
        ran = self(*words, stdin=stdin)
        assert (ran.status, ran.out) == (status, b""), ran.err
        return ran.err.splitlines()

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """A command in a process of its own, with pipes on all sides. Use it in a `with`."""
        return subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._directory,
            env=environment(TIDELOG_BOOTSTRAP=self._bootstrap),
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Shared: leave it running, and use topics of your own."""
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def cli(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(cli: Cli, topic_names: Iterator[str]) -> str:
    """A topic of two partitions."""
    name = next(topic_names)
    cli.succeed("topic", "create", name, "--partitions", "2")
    return name
