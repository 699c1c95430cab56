"""`tidelog tls`: files that are their owner's alone, and mistakes that are told in a line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli, Ran

pytestmark = [pytest.mark.process, pytest.mark.e2e]
ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
Tls = Callable[[str], Ran]


def words(command: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(command)]


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Tls:
    """Runs `tidelog tls` in this process."""
    cli = Cli("", tmp_path, monkeypatch, capfdbinary)
    return lambda command: cli("tls", *shlex.split(command))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def tidelog(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(command),
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_files_are_their_owners_alone_and_nothing_is_written_over(tmp_path: Path, tls: Tls) -> None:
    made = tls("init --brokers 1 --json")
    assert [Path(one["file"]).name for one in json.loads(made.out)] == ["ca.pem", "broker-1.pem"]
    files = sorted((tmp_path / "tls").iterdir())
    assert [file.name for file in files] == ["broker-1.pem", "ca-key.pem", "ca.pem"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    before = {file: file.read_bytes() for file in files}
    for command in ("init", "issue --broker 1"):
        refused = tls(command)
        assert (refused.status, "--force writes over it" in refused.err) == (1, True)
    assert {file: file.read_bytes() for file in files} == before
    assert tls("issue --broker 1 --force").status == 0


def test_renewing_keeps_the_names_and_the_key_if_asked(tmp_path: Path, tls: Tls) -> None:
    tls("init")
    issued = json.loads(tls("issue --broker 7 --host b7 --host 10.0.0.7 --json").out)
    assert issued[0]["names"] == ["broker://tidelog/7", "b7", "10.0.0.7"]
    file = tmp_path / "tls" / "broker-7.pem"
    first = file.read_text()
    kept = json.loads(tls("renew --keep-key --json tls/broker-7.pem").out)
    assert kept[0]["names"] == issued[0]["names"]
    second = file.read_text()
    assert second != first
    assert second.partition("-----BEGIN CERT")[0] == first.partition("-----BEGIN CERT")[0]
    tls("renew tls/broker-7.pem tls/ca.pem")
    assert file.read_text().partition("-----BEGIN CERT")[0] != first.partition("-----BEGIN CERT")[0]


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("issue --broker 1", 1, "`tidelog tls init` makes a CA"),
        ("issue", 2, "either --broker"),
        ("issue --client a --host b", 2, "--host is for brokers"),
        ("init --cluster 'a/b'", 1, "is no name for a cluster"),
        ("renew nothing.pem", 1, "tidelog tls init"),
    ],
)
def test_mistakes_are_told_in_a_line(tls: Tls, command: str, status: int, says: str) -> None:
    done = tls(command)
    assert (done.status, done.err.count("error: ")) == (status, 1), done.err
    assert says in done.err


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("tidelog start --tls tls", 2, "--tls needs --node-id"),
        ("tidelog start --tls tls --node-id 1", 1, "cannot read tls/broker-1.pem"),
        ("tidelog start --set http.security.protocol=SSL", 2, "ssl.keystore.location"),
    ],
)
def test_a_broker_without_its_files_does_not_start(tmp_path: Path, command: str, status: int, says: str) -> None:
    done = tidelog(command, tmp_path)
    assert (done.returncode, done.stderr.count("error: ")) == (status, 1), done.stderr
    assert says in done.stderr
