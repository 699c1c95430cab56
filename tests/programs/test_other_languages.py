"""The programs in Go and JavaScript: each writes two orders and reads them in a group, over HTTP or to Kafka's port."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs.conftest import EXAMPLES, Broker, ran

BUILD_S_MAX = 500
"""A Go compiler that has not built its standard library yet takes long."""

pytestmark = [pytest.mark.programs, pytest.mark.process, pytest.mark.timeout(BUILD_S_MAX + 100)]

ORDERS = ['orders-0@0: {"item": "milk", "count": 1}', 'orders-2@0: {"item": "tea", "count": 2}']
"""The partitions are those that every client's partitioner chooses."""


def need(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")


def fetch(words: list[str], directory: Path) -> None:
    """Has a package manager fetch the libraries of a program."""
    fetched = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False)
    # Packages come from the internet, where a machine may not reach; the program itself is not at fault.
    if fetched.returncode:
        pytest.skip(f"{' '.join(words)}: {fetched.stderr.partition(chr(10))[0]}")


def check(words: list[str | Path], group: str, broker: Broker) -> None:
    """Runs a program: it prints the orders, and leaves its group at their ends."""
    assert sorted(ran(words).splitlines()) == ORDERS
    assert broker.lags(group) == {0: 0, 2: 0}


def test_javascript_over_http(broker: Broker) -> None:
    need("node")
    check(["node", EXAMPLES / "javascript" / "http.mjs", broker.url], "javascript-http", broker)


def test_javascript_over_kafka(broker: Broker, tmp_path: Path) -> None:
    need("node", "npm")
    project = shutil.copytree(EXAMPLES / "javascript", tmp_path / "javascript")
    fetch(["npm", "ci", "--no-audit", "--no-fund"], project)
    check(["node", project / "kafka.mjs", broker.kafka], "javascript-kafka", broker)


def test_go_over_http(broker: Broker, tmp_path: Path) -> None:
    need("go")
    built = tmp_path / "http"
    ran(["go", "build", "-o", built, EXAMPLES / "go" / "http.go"], BUILD_S_MAX)
    check([built, broker.url], "go-http", broker)


def test_go_over_kafka(broker: Broker, tmp_path: Path) -> None:
    need("go")
    project, built = EXAMPLES / "go" / "kafka", tmp_path / "kafka"
    fetch(["go", "mod", "download"], project)
    ran(["go", "build", "-o", built, "."], BUILD_S_MAX, cwd=project)
    check([built, broker.kafka], "go-kafka", broker)
