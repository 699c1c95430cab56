"""`tidelog dev` as a process with children: ready lines, deaths, the end, and the next start on the same data."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.cli.conftest import COMMAND, TIMEOUT_S, environment
from tidelog.testing.commands import READY
from tidelog.testing.ports import free_ports, is_free

pytestmark = [pytest.mark.process, pytest.mark.e2e]

Dev = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    """Runs `tidelog dev` in `tmp_path`, and leaves nothing behind."""
    with ExitStack() as stack:

        def begin(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*COMMAND, "dev", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env=environment(),
            )
            stack.enter_context(process)
            stack.callback(end, process)
            return process

        yield begin


def end(process: subprocess.Popen[str]) -> None:
    """It is asked to stop, so that its children do."""
    process.terminate()
    process.wait(TIMEOUT_S)


def base_port(brokers: int = 1) -> int:
    """A port from which on there are free ones for so many brokers."""
    while True:
        port = free_ports(1)[0]
        if all(map(is_free, range(port, port + brokers))):
            return port


def ready(process: subprocess.Popen[str], brokers: int) -> list[str]:
    """The base URLs of the brokers, from their ready lines, which come in order."""
    assert process.stdout is not None
    urls = []
    for node_id in range(1, brokers + 1):
        line = process.stdout.readline()
        found = READY.fullmatch(line.rstrip("\n"))
        assert found is not None, (line, process.stderr.read() if process.stderr else "")
        assert found["node"] == str(node_id)
        urls.append(found["url"])
    return urls


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """Exit status, and standard error, after a signal; within ten seconds, and with nothing more printed."""
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert out == ""
    return process.returncode, err


def is_alive(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def command_of(directory: Path, node_id: int) -> list[str]:
    """The newest command in a broker's log."""
    lines = (directory / f"broker-{node_id}.log").read_text().splitlines()
    return shlex.split([line for line in lines if line.startswith("$ ")][-1][2:])


def test_one_broker(dev: Dev, tmp_path: Path) -> None:
    port = base_port()
    process = dev("--brokers", "1", "--dir", "d", "--base-port", str(port))
    assert ready(process, 1) == [f"http://127.0.0.1:{port}"]
    assert is_alive(f"http://127.0.0.1:{port}")
    assert (tmp_path / "d" / "broker-1" / "lock").exists()
    assert stop(process) == (0, "")
    assert not is_alive(f"http://127.0.0.1:{port}")


@pytest.mark.slow
def test_a_broker_that_dies_is_reported_and_its_command_starts_it_again(dev: Dev, tmp_path: Path) -> None:
    process = dev("--brokers", "1", "--base-port", str(base_port()))
    url = ready(process, 1)[0]
    command = command_of(tmp_path / "tidelog-dev", 1)
    os.kill(children_of(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("tidelog: broker 1 died, killed by SIGKILL; ")
    assert err.count("\n") == 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as broker:
        assert broker.stdout is not None
        assert f"ready {url} " in broker.stdout.readline()
        broker.terminate()


def children_of(pid: int) -> list[int]:
    """Returns those whose parent it is, by the second field after the name in parentheses."""
    stats = {int(path.parent.name): path.read_text() for path in Path("/proc").glob("[0-9]*/stat")}
    return sorted(child for child, stat in stats.items() if stat.rpartition(")")[2].split()[1] == str(pid))


def test_a_broker_that_cannot_start_says_why(dev: Dev) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = dev("--brokers", "1", "--base-port", str(taken.getsockname()[1]))
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("error: broker 1 did not start, exit status 1: ")
    assert "address already in use" in err
    assert err.count("\n") == 1


def test_the_same_directory_goes_on_with_the_same_data(dev: Dev, tmp_path: Path) -> None:
    first = dev("--brokers", "1", "--base-port", str(base_port()))
    ready(first, 1)
    assert stop(first) == (0, ""), (tmp_path / "tidelog-dev" / "broker-1.log").read_text()
    before = command_of(tmp_path / "tidelog-dev", 1)
    other = base_port()
    second = dev("--brokers", "1", "--base-port", str(other), "--set", "num.partitions=7")
    ready(second, 1)
    assert stop(second, signal.SIGTERM) == (0, "")
    after = command_of(tmp_path / "tidelog-dev", 1)
    assert after[: after.index("--http")] == before[: before.index("--http")]
    assert after[after.index("--peer") + 1] == before[before.index("--peer") + 1]
    assert after[after.index("--http") + 1] == f"127.0.0.1:{other}"
    assert after[-2:] == ["--set", "num.partitions=7"]


def test_a_paused_broker_is_stopped_all_the_same(dev: Dev) -> None:
    process = dev("--brokers", "1", "--base-port", str(base_port()))
    ready(process, 1)
    os.kill(children_of(process.pid)[0], signal.SIGSTOP)
    assert stop(process) == (0, "")


def test_it_can_be_stopped_before_it_is_ready(dev: Dev, tmp_path: Path) -> None:
    process = dev("--base-port", str(base_port(3)))
    last_log = tmp_path / "tidelog-dev" / "broker-3.log"
    deadline_s = time.monotonic() + TIMEOUT_S
    while not last_log.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    assert stop(process) == (0, "")


def test_another_number_of_brokers_than_before_is_refused(dev: Dev, tmp_path: Path) -> None:
    (tmp_path / "tidelog-dev").mkdir()
    (tmp_path / "tidelog-dev" / "dev.json").write_text('{"peer_ports": [9192, 9193, 9194]}')
    process = dev("--brokers", "1")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (2, "")
    assert "holds a cluster of 3: say --brokers 3" in err


def test_a_directory_of_somebody_elses_is_left_alone(dev: Dev, tmp_path: Path) -> None:
    (tmp_path / "tidelog-dev").mkdir()
    (tmp_path / "tidelog-dev" / "dev.json").write_text('{"peer_ports": "many"}')
    process = dev("--brokers", "1")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    assert "is not what `tidelog dev` wrote" in err


@pytest.mark.slow
def test_three_brokers_of_which_one_is_killed_and_started_by_hand(dev: Dev, tmp_path: Path) -> None:
    port = base_port(3)
    process = dev("--base-port", str(port))
    urls = ready(process, 3)
    assert urls == [f"http://127.0.0.1:{port + number}" for number in range(3)]
    identity = cluster_id(urls[0])
    killed = int((tmp_path / "tidelog-dev" / "broker-2" / "lock").read_text())
    os.kill(killed, signal.SIGKILL)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("tidelog: broker 2 died, killed by SIGKILL; ")
    assert is_alive(urls[0])
    command = command_of(tmp_path / "tidelog-dev", 2)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as broker:
        assert broker.stdout is not None
        assert f"ready {urls[1]} " in broker.stdout.readline()
        broker.terminate()
    assert stop(process) == (0, "")

    again = dev("--brokers", "3", "--base-port", str(base_port(3)))  # the same data, other addresses
    assert cluster_id(ready(again, 3)[2]) == identity
    assert stop(again, signal.SIGTERM)[0] == 0


def cluster_id(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v3/clusters", timeout=5) as answer:
        found: str = json.load(answer)["data"][0]["cluster_id"]
        return found
