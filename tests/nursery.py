"""A process that has imported a broker, and forks one whenever it is asked: a start without its half second of imports.

    python -m tests.e2e.power.nursery FD

Each request on the socket is a list of words, as for `tidelog`, with two descriptors: standard output and standard
error of the broker. Its process id is the answer. When the socket ends, all brokers are killed.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from tidelog.cli.imports import imported
from tidelog.testing.broker_process import BrokerProcess

REPOSITORY: Final = Path(__file__).parents[3]
REQUEST_BYTES_MAX: Final = 65_536
ANSWER_S_MAX: Final = 30.0


class Nursery:
    """The process, from the side of those who ask."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_S_MAX)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        with other:
            words = [sys.executable, "-m", "tests.e2e.power.nursery", str(other.fileno())]
            self._process = subprocess.Popen(
                words, cwd=REPOSITORY, env=environment, pass_fds=[other.fileno()], start_new_session=True
            )

    def fork(self, words: list[str], stderr: int) -> ForkedProcess:
        """Starts a broker. Returns what can be done with it."""
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(words).encode()], [writing, stderr])
        finally:
            os.close(writing)
        return ForkedProcess(int(self._socket.recv(REQUEST_BYTES_MAX)), reading)

    def close(self) -> None:
        """Ends the process, and all brokers with it."""
        self._socket.close()
        self._process.wait(ANSWER_S_MAX)


class ForkedProcess:
    """A process that is another one's child, with those methods of `Popen` that a `BrokerProcess` needs."""

    def __init__(self, pid: int, stdout: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(stdout, "rb", buffering=0)
        self._descriptor = os.pidfd_open(pid)
        self._is_over = False
        self._closing = threading.Lock()
        """A thread that waits for the ready line sees the end of a broker as well."""

    def poll(self) -> int | None:
        """Returns nothing while the process lives; its own status is its parent's."""
        return self._look(0.0)

    def wait(self, timeout: float = ANSWER_S_MAX) -> int:
        """Waits for the end."""
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired([], timeout)
        return status

    def kill(self) -> None:
        """Kills the process."""
        if not self._is_over:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def _look(self, seconds: float) -> int | None:
        if not self._is_over:
            if not select.select([self._descriptor], [], [], seconds)[0]:
                return None
            with self._closing:
                if not self._is_over:
                    self._is_over = True
                    os.close(self._descriptor)
        return -signal.SIGKILL


class ForkedBroker(BrokerProcess):
    """A broker that the nursery starts, and that ends by being killed."""

    def __init__(
        self, nursery: Nursery, node_id: int, directory: Path, settings: Mapping[str, str], *, http: str, peer: str
    ) -> None:
        super().__init__(node_id, directory, settings, http=http, peer=peer)
        self.is_ready = False
        self._nursery = nursery

    def begin(self) -> None:
        """Starts the broker."""
        self.is_ready = False
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "stderr.log").open("ab") as errors:
            words = self.command[self.command.index("tidelog") + 1 :]
            forked = self._nursery.fork(words, errors.fileno())
        self._process = cast("subprocess.Popen[bytes]", forked)

    def strike(self) -> None:
        """Kills the process, and does not wait for its end."""
        if self._process is not None:
            self._process.kill()

    def wait_until_ready(self, deadline_s: float) -> None:
        """Waits for the ready line. Raises `BrokerFailed`."""
        super().wait_until_ready(deadline_s)
        self.is_ready = True


def serve(descriptor: int) -> None:
    """Forks brokers until the socket ends."""
    main = imported("tidelog.cli.main").main
    imported("tidelog.cli.start")
    imported("tidelog.broker.assembly")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    children: list[int] = []
    with socket.socket(fileno=descriptor) as asked:
        while True:
            request, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 2)
            if not request:
                break
            child = os.fork()
            if not child:
                _become(descriptors, asked)
                sys.argv = ["tidelog", *json.loads(request)]
                main()
            for one in descriptors:
                os.close(one)
            asked.send(str(child).encode())
            children = [*filter(_is_alive, children), os.pidfd_open(child)]
    for one in filter(_is_alive, children):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(one, signal.SIGKILL)


def _is_alive(descriptor: int) -> bool:
    """False, and the descriptor is closed, if that process has ended."""
    if not select.select([descriptor], [], [], 0)[0]:
        return True
    os.close(descriptor)
    return False


def _become(descriptors: list[int], asked: socket.socket) -> None:
    """Makes a child a process like any."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked.close()
    stdout, stderr = descriptors
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
