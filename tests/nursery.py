"""A process that has imported a broker, and forks one whenever it is asked: a start without its half second of imports.

    python -m tests.nursery FD

The brokers of a test run are started here (`tests/conftest.py`); they run the same command, with the environment and in
the directory of who asks. What begins with other words, or with other settings of Python's own, becomes a process in
the ordinary way.

Each request on the socket is the words, the directory and the environment, with three descriptors: standard output and
standard error of the broker, and a pipe for its exit status. Its process id is the answer. When the socket ends, all
brokers are killed.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from tidelog.cli.imports import imported

REPOSITORY: Final = Path(__file__).parents[1]
COMMAND: Final = [sys.executable, "-m", "tidelog", "start"]
REQUEST_BYTES_MAX: Final = 131_072
ANSWER_S_MAX: Final = 30.0
READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "MALLOC_", "LD_")
"""Variables that begin so tell an interpreter, or the C library, what it asks once."""


class Nursery:
    """The process, from the side of those who ask. It is started when the first of them does."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._asking = threading.Lock()
        self._at_start = _read_at_start(os.environ)

    def launch(
        self, words: Sequence[str], /, *, stdin: int, stdout: int, stderr: IO[bytes], env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Starts a process as `Popen` does; `stdin` is `DEVNULL` and `stdout` a pipe."""
        assert (stdin, stdout) == (subprocess.DEVNULL, subprocess.PIPE)
        is_ours = list(words[: len(COMMAND)]) == COMMAND and _read_at_start(env) == self._at_start
        if not is_ours:
            return subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, env=env)
        forked = self._fork(json.dumps([words[3:], os.getcwd(), dict(env)]).encode(), stderr.fileno())
        return cast("subprocess.Popen[bytes]", forked)

    def _fork(self, request: bytes, stderr: int) -> ForkedProcess:
        with self._asking:
            asked = self._socket or self._begin()
            output, stdout = os.pipe()
            end, status = os.pipe()
            try:
                socket.send_fds(asked, [request], [stdout, stderr, status])
            finally:
                os.close(stdout)
                os.close(status)
            return ForkedProcess(int(asked.recv(REQUEST_BYTES_MAX)), output, end)

    def _begin(self) -> socket.socket:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_S_MAX)
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        with other:
            words = [sys.executable, "-m", "tests.nursery", str(other.fileno())]
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        return self._socket

    def close(self) -> None:
        """Ends the process, and all brokers with it."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(ANSWER_S_MAX)


class ForkedProcess:
    """A process that is another one's child, with those methods of `Popen` that a `BrokerProcess` needs."""

    def __init__(self, pid: int, stdout: int, status: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(stdout, "rb", buffering=0)
        self._status = os.fdopen(status, "rb", buffering=0)
        self._ended: int | None = None
        self._looking = threading.Lock()
        """A thread that waits for the ready line sees the end of a broker as well."""

    def poll(self) -> int | None:
        """Returns the exit status, or nothing while the process lives."""
        return self._look(0.0)

    def wait(self, timeout: float = ANSWER_S_MAX) -> int:
        """Waits for the end. Returns the exit status."""
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(COMMAND, timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process if it lives."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process."""
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float) -> int | None:
        if self._ended is None:
            with suppress(OSError, ValueError):  # another thread has seen the end
                if not select.select([self._status], [], [], seconds)[0]:
                    return None
            with self._looking:
                if self._ended is None:
                    # Without a word from the nursery, the nursery itself is gone.
                    self._ended = int(self._status.read() or -signal.SIGKILL)
                    self._status.close()
        return self._ended


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns what a process that runs already cannot be told any more; where modules are found is no matter."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    }


# -- the process -------------------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Forks brokers until the socket ends."""
    main = imported("tidelog.cli.main").main
    imported("tidelog.cli.start")
    imported("tidelog.broker.assembly")
    gc.freeze()
    with socket.socket(fileno=descriptor) as asked:
        children = Children()
        while True:
            children.reap_until(asked)
            request, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 3)
            if not request:
                break
            stdout, stderr, status = descriptors
            child = os.fork()
            if not child:
                children.forget()
                asked.close()
                os.close(status)
                _become(json.loads(request), stdout, stderr)
                main()
            os.close(stdout)
            os.close(stderr)
            children.add(child, status)
            asked.send(str(child).encode())
        children.kill()


class Children:
    """The brokers that live, and where the status of each goes."""

    def __init__(self) -> None:
        self._living: dict[int, tuple[int, int]] = {}
        """Holds the process id of each and the pipe for its status, by a descriptor that is readable at its end."""

    def add(self, pid: int, status: int) -> None:
        """Adds a broker that was just forked."""
        self._living[os.pidfd_open(pid)] = (pid, status)

    def reap_until(self, asked: socket.socket) -> None:
        """Passes on how brokers end, until there is a request."""
        while True:
            watched: list[Any] = [asked, *self._living]
            readable = select.select(watched, [], [])[0]
            for descriptor in self._living.keys() & readable:
                self._reap(descriptor)
            if asked in readable:
                return

    def _reap(self, descriptor: int) -> None:
        pid, status = self._living.pop(descriptor)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(status, str(ended).encode())
        os.close(status)
        os.close(descriptor)

    def forget(self) -> None:
        """Closes what a child has no business with."""
        for descriptor, (_, status) in self._living.items():
            os.close(descriptor)
            os.close(status)

    def kill(self) -> None:
        """Kills all that live, and sees them end."""
        for descriptor in self._living:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in [*self._living]:
            self._reap(descriptor)


def _become(request: Any, stdout: int, stderr: int) -> None:
    """Makes a child a process like any."""
    words, directory, environment = request
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["tidelog", *words]


if __name__ == "__main__":
    serve(int(sys.argv[1]))
