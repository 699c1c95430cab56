"""The commands of docs/security.md to a secure cluster, as typed but for the ports; and `tidelog tls` itself."""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli, Ran
from tidelog.testing.commands import READY
from tidelog.testing.ports import HeldPorts

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0
Tls = Callable[[str], Ran]


def documented() -> tuple[list[str], str]:
    """The four commands, and the one of the client that follows."""
    section = (ROOT / "docs" / "security.md").read_text().split("### Four commands to a secure cluster\n")[1]
    blocks = re.findall(r"```\n(tidelog .*?)\n```", section, re.DOTALL)
    return blocks[0].splitlines(), blocks[1].splitlines()[0]


def words(command: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(command)]


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Tls:
    """Runs `tidelog tls` in this process."""
    cli = Cli("", tmp_path, monkeypatch, capfdbinary)
    return lambda command: cli("tls", *shlex.split(command))


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """Returns the ports to use instead of those that the page names."""
    held = HeldPorts()
    named = ["8082", "8083", "8084", "9192", "9193", "9194"]
    yield dict(zip(named, map(str, held.take(len(named))), strict=True))
    held.release()


def moved(command: str, ports: dict[str, str]) -> str:
    return re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: ports[found[0]], command)


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


def ready_line(broker: subprocess.Popen[bytes]) -> str:
    assert broker.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(broker.stdout, selectors.EVENT_READ)
        assert selector.select(PATIENCE_S), "no ready line"
        return broker.stdout.readline().decode()


def test_the_four_commands_make_a_cluster_that_encrypts(tmp_path: Path, ports: dict[str, str]) -> None:
    (make, *starts), create = documented()
    assert len(starts) == 3
    made = tidelog(make, tmp_path)
    assert made.returncode == 0, made.stderr
    brokers = [
        subprocess.Popen(
            words(moved(start, ports)),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for start in starts
    ]
    try:
        for broker in brokers:
            line = READY.search(ready_line(broker))
            assert line is not None
            assert line["url"].startswith("https://")
        done = tidelog(moved(create, ports), tmp_path)
        assert done.returncode == 0, done.stderr
        plain = tidelog(moved(create, ports).replace("https://", "http://").partition(" --command")[0], tmp_path)
        assert "security.protocol=SSL" in plain.stderr
    finally:
        for broker in brokers:
            broker.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + PATIENCE_S
        for broker in brokers:
            assert broker.wait(deadline_s - time.monotonic()) == 0
            assert broker.stdout is not None
            broker.stdout.close()


# -- tidelog tls -----------------------------------------------------------------------------------------------------


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
