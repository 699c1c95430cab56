"""A real broker as a child process: `tidelog start`, its ready line, its signals, and its output when it fails.

Its addresses are chosen beforehand and never change, so that clients and other brokers find it again after a restart.
Standard error goes to a file; the message of a failure shows its end.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import tidelog
from tidelog.testing.commands import READY, start_command

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0
"""Seconds to wait for a broker to stop: more than the time after which the broker itself ends a stop that hangs, and
says why."""
SHOWN_OUTPUT_BYTES = 4000


class BrokerFailed(RuntimeError):
    """A broker did not start, or did not stop, as it should; the message shows what it printed."""


class Launch(Protocol):
    """Starts the process of a broker, as `subprocess.Popen` does."""

    def __call__(
        self, words: Sequence[str], /, *, stdin: int, stdout: int, stderr: IO[bytes], env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Starts the process and returns it at once."""


class BrokerProcess:
    """A broker process with its data in `directory`/data. `settings` are given by their dotted names. `http`, `peer`
    and `kafka` are the addresses, HOST:PORT, for HTTP clients, other brokers and Kafka's clients; without `kafka` there
    is no listener for the latter. `prefix` is a command that runs another one under its own process id, as `nice`
    does."""

    launch: Launch = subprocess.Popen
    """Function that starts the process. Tests with hundreds of brokers may set a cheaper one."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        settings: Mapping[str, str],
        *,
        http: str,
        peer: str,
        kafka: str | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.node_id = node_id
        self.directory = directory
        self.data_dir = directory / "data"
        self.url = ""
        self.cluster_id = ""
        self.ops = ""
        """Address of the listener for operators, HOST:PORT; empty if `http.ops.listener` is not set."""
        self.kafka = kafka
        """Address for Kafka's clients, HOST:PORT; None without a listener for them."""
        self._http = http
        self._peer = peer
        self.prefix = prefix
        """Words of a command that runs the broker's command, such as `nice`; a change applies at the next start."""
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """Command that starts the broker; it can be run by hand, too."""
        words = start_command(
            self.node_id, self.data_dir, self._http, peer=self._peer, settings=self._settings, kafka=self.kafka
        )
        return [*self.prefix, *words]

    def change_settings(self, settings: Mapping[str, str]) -> None:
        """Changes settings of the broker from its next start on."""
        self._settings |= settings

    @property
    def pid(self) -> int:
        """The process id. Raises `BrokerFailed` if the broker does not run."""
        if not self.is_running:
            raise BrokerFailed(f"broker {self.node_id} is not running")
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True while the process runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """All that the broker has printed on standard error, in all its runs."""
        path = self.directory / "stderr.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the broker and waits until it is ready. Raises `BrokerFailed` if it dies first, or time runs out."""
        self.begin()
        self.wait_until_ready(time.monotonic() + timeout_s)

    def begin(self) -> None:
        """Starts the broker without waiting. Brokers of a cluster are started together, since each is ready only when
        most of them are."""
        assert not self.is_running
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "stderr.log").open("ab") as errors:
            self._process = self.launch(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=child_environment()
            )

    def wait_until_ready(self, deadline_s: float) -> None:
        """Waits for the ready line until `time.monotonic()` is `deadline_s`. Raises `BrokerFailed`."""
        ready = READY.search(self._wait_for_line(deadline_s))
        if ready is None:
            self.kill()
            raise BrokerFailed(f"broker {self.node_id} printed something else than its ready line\n{self._tail()}")
        self.url = ready["url"]
        self.cluster_id = ready["cluster"]
        self.ops = ready["ops"] or ""

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops gracefully (SIGTERM), paused or not. Raises `BrokerFailed` if that takes too long or ends badly."""
        self.begin_stop()
        self.wait_until_stopped(time.monotonic() + timeout_s)

    def begin_stop(self) -> None:
        """Sends the broker SIGTERM. Does nothing if it is dead already."""
        if not self.is_running:
            self._forget()
            return
        assert self._process is not None
        self.resume()
        self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self, deadline_s: float) -> None:
        """Waits for the end of a broker after `begin_stop`. Raises `BrokerFailed` if it takes too long or the exit
        status is not 0."""
        if self._process is None:
            return
        try:
            status = self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"broker {self.node_id} did not stop in time\n{self._tail()}") from None
        self._forget()
        if status:
            raise BrokerFailed(f"broker {self.node_id} stopped with exit status {status}\n{self._tail()}")

    def kill(self) -> None:
        """Kills the process at once (SIGKILL); what the operating system had buffered survives."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def pause(self) -> None:
        """Suspends the process (SIGSTOP): connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Kills the broker and removes its data, as if its disk had been replaced by an empty one."""
        self.kill()
        shutil.rmtree(self.data_dir)

    def _wait_for_line(self, deadline_s: float) -> str:
        """Returns the first complete line on standard output. Raises `BrokerFailed` if there is none by the
        deadline."""
        assert self._process is not None and self._process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    self.kill()
                    raise BrokerFailed(f"broker {self.node_id} was not ready in time\n{self._tail()}")
                piece = os.read(self._process.stdout.fileno(), 4096)
                if not piece:
                    status = self._process.wait()
                    self._forget()
                    raise BrokerFailed(f"broker {self.node_id} died at start, exit status {status}\n{self._tail()}")
                line += piece
        return line.decode(errors="replace")

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def _tail(self) -> str:
        return f"$ {' '.join(self.command)}\n{self.output[-SHOWN_OUTPUT_BYTES:]}"


def child_environment() -> dict[str, str]:
    """Returns the parent's environment without tidelog settings, and with this package importable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    package_parent = str(Path(tidelog.__file__).parent.parent)
    paths = [package_parent, *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
