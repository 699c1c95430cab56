"""`tidelog log init` and `tidelog log replica` as people call them: Mesos' refusals, and replicas that are killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.model.errors import ControllerLost
from tidelog.standalone.client import LogClient
from tidelog.standalone.process import make_client
from tidelog.testing.ports import free_ports

APPEND_S_MAX = 20.0


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Commands that need no broker; they run in `tmp_path`."""
    return Cli("http://127.0.0.1:1", tmp_path, monkeypatch, capfdbinary)


# -- what is refused at once -------------------------------------------------------------------------------------------


def test_a_directory_is_initialised_once(offline: Cli, tmp_path: Path) -> None:
    assert offline.succeed("log", "init", "--path", "r1").startswith(b"r1: an empty replica")
    (error,) = offline.fail("log", "init", "--path", "r1")
    assert error == "error: r1 cannot be initialised: it is initialised already"


def test_a_directory_that_is_not_empty_stays_as_it_is(offline: Cli, tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "letter").write_text("dear")
    (error,) = offline.fail("log", "init", "--path", "r1")
    assert "not empty: letter" in error
    assert [path.name for path in (tmp_path / "r1").iterdir()] == ["letter"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--servers is missing"),
        (("--servers", "a:1,b:2"), "--listen is missing"),
        (("--servers", "a:1,b:2,a:1", "--listen", "a:1"), "of its own"),
        (("--servers", "a:0"), "of its own"),
        (("--servers", "a"), "HOST:PORT"),
        (("--servers", "a:1,b:2", "--listen", "c:3"), "none of --servers"),
        (("--servers", "a:1,b:2,c:3,d:4", "--quorum", "2"), "no majority of 4 servers, which is 3"),
        (("--servers", "a:1,b:2,c:3", "--quorum", "3"), "no majority of 3 servers, which is 2"),
    ],
)
def test_servers_and_quorum_must_fit(offline: Cli, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (error,) = offline.fail("log", "replica", "--path", "r1", *words, status=2)
    assert said in error
    assert not (tmp_path / "r1").exists()


def test_alone_and_never_initialised_it_has_no_log(offline: Cli) -> None:
    (error,) = offline.fail("log", "replica", "--path", "r1", "--servers", f"127.0.0.1:{free_ports(1)[0]}")
    assert "no other server is named that could know the log" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "0.0.0.0:1 can be reached from other machines, and the replica believes whoever comes: give all of them"),
        (("--secret-file", "nowhere"), "--secret-file: there is no file nowhere; make one with"),
    ],
)
def test_a_replica_that_believes_strangers_does_not_run(
    offline: Cli, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (error,) = offline.fail("log", "replica", "--path", "r1", "--servers", "0.0.0.0:1", *words)
    assert said in error
    assert not (tmp_path / "r1").exists()


@pytest.mark.e2e
def test_a_log_with_a_secret_is_for_programs_that_have_it(offline: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text("what the replicas of this log know")
    server = ("--servers", f"127.0.0.1:{free_ports(1)[0]}")
    secret = ("--secret-file", "secret")
    offline.succeed("log", "init", "--path", "r1")
    with offline.begin("log", "replica", "--path", "r1", *server, *secret) as process:
        assert process.stdout is not None and b" votes log=" in process.stdout.readline()
        offline.succeed("log", "benchmark", "--input", str(sizes(tmp_path)), *server, *secret)
        assert len(offline.succeed("log", "read", *server, *secret).splitlines()) > 2
        offline.succeed("log", "truncate", "--to", "1", *server, *secret)
        for words in (("read",), ("init", "--path", "r2")):
            (error,) = offline.fail("log", *words, *server)
            assert "refuses this program: node 1 has a cluster secret, and the broker that calls it has none" in error
        process.terminate()


def sizes(tmp_path: Path) -> Path:
    file = tmp_path / "sizes"
    file.write_text("10B\n10B\n")
    return file


# -- processes ---------------------------------------------------------------------------------------------------------


class Replicas:
    """Processes of `tidelog log replica`, killed at the end."""

    def __init__(self, offline: Cli, ports: list[int], stack: ExitStack) -> None:
        self.addresses = [("127.0.0.1", port) for port in ports]
        self.servers = ",".join(f"{host}:{port}" for host, port in self.addresses)
        self._offline = offline
        self._stack = stack
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, node: int) -> None:
        host, port = self.addresses[node - 1]
        words = ("--path", f"r{node}", "--quorum", "2", "--servers", self.servers, "--listen", f"{host}:{port}")
        process = self._stack.enter_context(self._offline.begin("log", "replica", *words))
        self._stack.callback(process.kill)
        self._processes[node] = process

    def voting(self, node: int) -> str:
        """Waits for its line; the log's id."""
        stdout = self._processes[node].stdout
        assert stdout is not None
        words = stdout.readline().decode().split()
        assert words[1:4] == ["replica", "{}:{}".format(*self.addresses[node - 1]), "votes"]
        assert words[5] == f"node={node}"
        return words[4].removeprefix("log=")

    def kill(self, node: int) -> None:
        self._processes[node].kill()
        self._processes.pop(node).wait()

    def stop(self) -> list[int]:
        """Ends all in order; their exit statuses."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(timeout=20) for process in self._processes.values()]


@pytest.fixture
def replicas(offline: Cli) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(offline, free_ports(3), stack)


class Writer(threading.Thread):
    """Appends one entry after the other, until it is told to end."""

    def __init__(self, replicas: Replicas) -> None:
        super().__init__()
        self.acknowledged: dict[int, str] = {}
        self.unknown: list[str] = []
        self._addresses = replicas.addresses
        self._is_over = threading.Event()

    def run(self) -> None:
        asyncio.run(self._write())

    def end(self) -> None:
        self._is_over.set()
        self.join()

    def has_written(self, more: int) -> None:
        """Waits until so many more are acknowledged."""
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            assert self.is_alive()
            self._is_over.wait(0.01)

    async def _write(self) -> None:
        client = make_client(self._addresses)
        try:
            while not self._is_over.is_set():
                await self._append(client, f"entry {len(self.acknowledged) + len(self.unknown)}")
        finally:
            await client.close()

    async def _append(self, client: LogClient, text: str) -> None:
        try:
            position = await client.append(text.encode(), deadline_s=APPEND_S_MAX)
        except ControllerLost:
            self.unknown.append(text)
        else:
            assert position not in self.acknowledged
            self.acknowledged[position] = text


def entries(out: bytes) -> dict[int, str]:
    """The users' entries of `log read --json`."""
    found = map(json.loads, out.splitlines())
    shown = {one["position"]: one["content"][0] for one in found if one["kind"] == "append" and not one["is_void"]}
    return {position: content["value"] for position, content in shown.items() if "value" in content}


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_and_wiped_replica_is_not_initialised_but_joins(
    offline: Cli, replicas: Replicas, tmp_path: Path
) -> None:
    for node in (1, 2, 3):
        offline.succeed("log", "init", "--path", f"r{node}")
        replicas.start(node)
    (log_id,) = {replicas.voting(node) for node in (1, 2, 3)}
    writer = Writer(replicas)
    writer.start()
    writer.has_written(20)

    replicas.kill(2)
    shutil.rmtree(tmp_path / "r2")
    writer.has_written(20)
    (error,) = offline.fail("log", "init", "--path", "r2", "--servers", replicas.servers)
    assert f"is of log {log_id}, which is not to be begun again" in error
    assert not (tmp_path / "r2").exists()

    replicas.start(2)
    assert replicas.voting(2) == log_id
    (tmp_path / "sizes").write_text("1KB\n" * 5)
    words = ("--input", "sizes", "--servers", replicas.servers, "--json")
    (measured,) = json.loads(offline.succeed("log", "benchmark", *words))
    assert measured["parameters"] == {"bytes": 1000, "appends": 5, "replicas": 3, "kind": "zero"}
    assert 0 < measured["figures"]["p50_ms"] <= measured["figures"]["p999_ms"]

    replicas.kill(1)
    writer.has_written(20)
    writer.end()

    ran = offline("log", "read", "--servers", replicas.servers, "--json")
    assert (ran.status, ran.err) == (0, "notice: 1 server did not answer; the log may go on behind what is shown\n")
    read = entries(ran.out)
    assert writer.acknowledged.items() <= read.items()
    of_writer = {text for text in read.values() if text.startswith("entry")}
    assert of_writer - set(writer.acknowledged.values()) <= set(writer.unknown)
    assert replicas.stop() == [0, 0]
    own = entries(offline("log", "read", "--path", "r2", "--json").out)
    assert own and own.items() <= read.items(), "the new disk has the log from its beginning"


@pytest.mark.process
@pytest.mark.slow
def test_a_truncated_log_outlives_kills_and_a_lost_disk(offline: Cli, replicas: Replicas, tmp_path: Path) -> None:
    for node in (1, 2, 3):
        offline.succeed("log", "init", "--path", f"r{node}")
        replicas.start(node)
    for node in (1, 2, 3):
        replicas.voting(node)
    writer = Writer(replicas)
    writer.start()
    writer.has_written(20)
    begin = max(writer.acknowledged)
    truncate = ("log", "truncate", "--servers", replicas.servers, "--to")
    assert offline.succeed(*truncate, str(begin)) == f"the log begins at position {begin}\n".encode()

    replicas.kill(2)
    shutil.rmtree(tmp_path / "r2")
    (error,) = offline.fail(*truncate, str(begin + 1))
    assert "server 2" in error and "every voter must have what is truncated; nothing was" in error
    replicas.start(2)
    replicas.voting(2)
    writer.has_written(20)
    for node in (1, 3):
        replicas.kill(node)
        replicas.start(node)
        replicas.voting(node)
    writer.has_written(20)
    writer.end()

    (error,) = offline.fail(*truncate, str(max(writer.acknowledged) + 1_000))
    assert "it cannot begin at" in error
    ran = offline("log", "read", "--servers", replicas.servers, "--from", str(begin), "--json")
    assert (ran.status, ran.err) == (0, "")
    acknowledged = {position: text for position, text in writer.acknowledged.items() if position >= begin}
    assert acknowledged and acknowledged.items() <= entries(ran.out).items()
    assert replicas.stop() == [0, 0, 0]
    for path in ("r1", "r2", "r3"):
        ran = offline("log", "read", "--path", path, "--from", "0", "--to", str(begin), "--json")
        assert ran.status == 1 and f"positions 0 to {begin - 1} are truncated" in ran.err
        assert list(entries(ran.out)) == [begin]
