from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.cli.conftest import COMMAND, TIMEOUT_S, Cli, environment

pytestmark = [pytest.mark.process, pytest.mark.e2e]

READY = re.compile(r"tidelog: ready (http://(?:127\.0\.0\.1|0\.0\.0\.0):\d+) cluster=([0-9a-f]+) node=(\d+)\n")

SECRET = "3f7c9a5be1d248063f7c9a5be1d24806"
Start = Callable[..., subprocess.Popen[str]]
Refused = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers in `tmp_path`, and leaves none behind."""
    with ExitStack() as stack:

        def begin(*words: str, **variables: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*COMMAND, "start", *(() if "--http" in words else ("--http", "127.0.0.1:0")), *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env=environment(**variables),
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin


def ready_line(process: subprocess.Popen[str]) -> re.Match[str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = READY.fullmatch(line)
    assert ready is not None, (line, process.stderr.read() if process.stderr else "")
    return ready


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Refused:
    """The one line that is said, in this process: of a misspelt setting with status 2, before anything of a broker is
    imported, and of one that lets strangers in with 1, before anything of it is opened."""
    cli = Cli("", tmp_path, monkeypatch, capfdbinary)

    def fail(*words: str, status: int) -> str:
        (line,) = cli.fail("start", *(() if "--http" in words else ("--http", "127.0.0.1:0")), *words, status=status)
        assert line.startswith("error: ")
        return line

    return fail


def refusal(process: subprocess.Popen[str], status: int) -> str:
    """The one line that a broker which cannot start has to say."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (status, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_a_broker_says_when_it_is_ready_and_stops_gracefully(start: Start) -> None:
    """At SIGINT; the next test ends with a SIGTERM."""
    process = start()
    ready = ready_line(process)
    with urllib.request.urlopen(f"{ready[1]}/readyz", timeout=10) as answer:
        assert answer.status == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_other_signals_are_noted_and_end_nothing(start: Start) -> None:
    events = {
        signal.SIGHUP: "event='signal ignored' signal='SIGHUP'",
        signal.SIGUSR1: "log_writer.py",
        signal.SIGUSR2: "event='log level changed' to='debug'",
    }
    process = start()
    ready = ready_line(process)
    for number in events:
        process.send_signal(number)
        with urllib.request.urlopen(f"{ready[1]}/readyz", timeout=10) as answer:
            assert answer.status == 200
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
    for event in events.values():
        assert event in err


def test_a_broker_outlives_its_terminal(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    with subprocess.Popen(
        # A new session's first terminal is the one that controls it.
        ["sh", "-c", 'exec "$@" <"$0"', os.ttyname(terminal), *COMMAND, "start", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=terminal, text=True, cwd=tmp_path, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        try:
            os.close(terminal)
            ready = ready_line(process)
            os.close(ours)  # the kernel sends SIGHUP now, and each write to standard error fails
            create = urllib.request.Request(f"{ready[1]}/v3/clusters/{ready[2]}/topics", b'{"topic_name": "t"}')
            create.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(create, timeout=10) as answer:
                assert answer.status == 201
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_flag_over_environment_over_file_over_default(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text('node.id = 2\nlog.dir = "from-file"\nbroker.rack = "from-file"\n')
    process = start("--config", "tidelog.toml", "--data-dir", "from-flag", TIDELOG_NODE_ID="3", TIDELOG_LOG_DIR="no")
    assert ready_line(process)[3] == "3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from-flag", "tidelog.toml"]


def test_data_in_the_current_directory_is_one_brokers_until_that_is_killed(start: Start, tmp_path: Path) -> None:
    """A second broker names the first."""
    first = start()
    ready_line(first)
    assert (tmp_path / "tidelog-data").is_dir()
    assert f"process {first.pid}" in refusal(start(), 1)
    first.kill()
    first.wait()
    ready_line(start())


def test_an_address_in_use_is_named(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in refusal(start("--set", "num.partitions=1", "--http", f"127.0.0.1:{port}"), 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "log.segment.byte=1"], "did you mean log.segment.bytes?"),
        (["--set", "log.segment.bytes=many"], "log.segment.bytes = 'many': must be a whole number"),
        (["--set", "log.segment.bytes"], "NAME=VALUE"),
        (["--set", "log.dir=a", "--data-dir", "b"], "log.dir is set twice"),
        (["--node-id", "one"], "node.id = 'one': must be a whole number"),
        (["--config", "none.toml"], "cannot read the settings file none.toml"),
        (["--join", "127.0.0.1:"], "cluster.join = '127.0.0.1:'"),
        (
            ["--set", "http.authentication=certificate"],
            "needs http.security.protocol=SSL and ssl.client.auth=requested",
        ),
        (
            ["--set", "http.authentication=jwt"],
            "needs sasl.oauthbearer.jwks.endpoint.url and sasl.oauthbearer.expected",
        ),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_in_one_line(refused: Refused, words: list[str], said: str) -> None:
    assert said in refused(*words, status=2)


def test_a_misspelt_name_in_the_file_is_said_with_the_file(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text("[log]\nretention.mss = 1\n")
    error = refused("--config", "tidelog.toml", status=2)
    assert "tidelog.toml" in error
    assert "log.retention.ms?" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--peer", "0.0.0.0:0"],
            "error: peer.listener 0.0.0.0:0 can be reached from other machines, and takes whoever",
        ),
        (
            ["--join", "http://10.0.0.1:8082", "--set", "cluster.token.file=nowhere"],
            "error: cluster.join http://10.0.0.1:8082 is asked in plain text, with the token",
        ),
        (
            ["--set", "cluster.secret.file=nowhere"],
            "error: cluster.secret.file: there is no file nowhere; make one with",
        ),
        (
            ["--set", "cluster.secret.file=open"],
            "error: cluster.secret.file: others than its owner may use open, so it",
        ),
        (["--set", "cluster.secret.file=short"], "error: cluster.secret.file: short must have 16 to 4,096 bytes; make"),
    ],
)
def test_a_broker_that_anybody_could_talk_to_does_not_start(
    refused: Refused, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "open").write_text(SECRET)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "short").touch(mode=0o600)
    why = refused(*words, status=1)
    assert why.startswith(said)
    assert SECRET not in why
    assert not (tmp_path / "tidelog-data").exists()


def test_a_broker_with_a_secret_may_be_reached_and_shows_it_nowhere(start: Start, tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    process = start("--peer", "0.0.0.0:0", "--set", "cluster.secret.file=secret", TIDELOG_LOG_LEVEL="debug")
    ready = ready_line(process)
    pages = [asked(ready[1], path) for path in ("/metrics", f"/v3/clusters/{ready[2]}", "/v3/clusters")]
    pages.append(asked(ready[1], f"/v3/clusters/{ready[2]}/brokers/1/configs"))
    assert "tidelog_insecure_listeners 0.0" in pages[0]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert not any(SECRET in page for page in [*pages, err])


EVERYWHERE = ("--http", "0.0.0.0:0", "--peer", "0.0.0.0:0", "--set", "http.ops.listener=[::]:0")


def test_all_listeners_that_strangers_reach_are_named_at_once(refused: Refused) -> None:
    why = refused(*EVERYWHERE, status=1)
    for said in (
        "http.listener 0.0.0.0:0 can be reached from other machines, and speaks plain text: set http.security.protocol",
        "peer.listener 0.0.0.0:0 can be reached from other machines, and takes whoever comes",
        "http.ops.listener [::]:0 can be reached from other machines, and speaks plain text: set http.ops.security",
        "security.allow.insecure=true starts the broker all the same",
    ):
        assert said in why


def test_a_broker_that_is_let_be_insecure_says_so(start: Start) -> None:
    process = start("--http", "0.0.0.0:0", "--peer", "0.0.0.0:0", "--set", "security.allow.insecure=true")
    ready = ready_line(process)
    assert "tidelog_insecure_listeners 2.0" in asked(ready[1], "/metrics")
    described = [sys.executable, "-m", "tidelog", "cluster", "describe", "--bootstrap", ready[1]]
    said = subprocess.run(described, capture_output=True, text=True, check=True, env=environment()).stdout
    for listener in ("http.listener", "peer.listener"):
        assert f"broker 1 is not secure: {listener} 0.0.0.0:0 can be reached from other machines" in said
    (told,) = json.loads(asked(ready[1], "/v3/clusters"))["data"]
    assert [sentence.split()[0] for sentence in told["insecure_listeners"]] == ["http.listener", "peer.listener"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert err.count("not secure, as security.allow.insecure allows") == 2


def asked(url: str, path: str) -> str:
    with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_the_module_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", "--version"], capture_output=True, check=True, env=environment()
    )
    assert ran.stdout.startswith(b"tidelog ")
