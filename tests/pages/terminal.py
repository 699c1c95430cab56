"""A terminal in which the blocks of a page are typed: a shell in an empty directory, and a prompt of Python beside it.

Pages name the default ports. So the terminal has a network, and a table of processes, of its own (Linux's namespaces).
Where a machine refuses those, it uses the machine's, and pages take turns (`default_ports`).

`sleep` takes twice as long as it says, since the machine of a test is busier than a reader's.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parents[2]
BLOCK_TIMEOUT_S: Final = 120
OUTPUT_TIMEOUT_S: Final = 20
APART: Final = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
LOOPBACK_UP: Final = "; ".join(
    [
        "import fcntl, socket, struct",
        "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x41))",  # SIOCSIFFLAGS: up, running
    ]
)
"""A program for `ip link set lo up`, since a bare Debian has no `ip`."""
FIRST: Final = "set -m; sleep() { command sleep $(($1 * 2)); }"
PROMPTS: Final = re.compile(r"^(?:>>> |\.\.\. )+", re.MULTILINE)
MARK: Final = re.compile(r"^MARK (\d+) (\d+)\n", re.MULTILINE)
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
VARIABLE: Final = re.compile(r"\b[0-9a-f]{8,}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\d[\d,.:]*")


class PageFailed(Exception):
    """A block did not do what its page says; the message has what was printed."""


@functools.cache
def can_be_apart() -> bool:
    """True if a process may have a network and processes of its own here."""
    try:
        tried = subprocess.run([*APART, sys.executable, "-c", LOOPBACK_UP], stderr=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


@contextmanager
def default_ports() -> Iterator[None]:
    """Holds the default ports of this machine, if terminals can't have a network of their own."""
    if can_be_apart():
        yield
        return
    with (Path(tempfile.gettempdir()) / "tidelog-default-ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shape(line: str) -> str:
    """Returns a line without what differs from run to run: numbers, ids, the width of columns."""
    return " ".join(VARIABLE.sub("#", COLOUR.sub("", line)).split())


class Terminal:
    """A shell and a prompt of Python in `directory`. Programs are those of the Python that runs the tests."""

    def __init__(self, directory: Path, notes: Path) -> None:
        self._directory = directory
        self._notes = notes
        self._printed = notes / "printed"
        self._typed = 0
        self._seen = 0
        self._prompt: IO[str] | None = None
        with self._printed.open("wb") as printed:
            self._shell = subprocess.Popen(
                [*(APART if can_be_apart() else ()), "bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=self._environment(),
                start_new_session=True,
                text=True,
            )
        if can_be_apart():
            self.type(f'{sys.executable} -c "{LOOPBACK_UP}"\n')
        self.type(FIRST + "\n")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return kept | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self._directory), "COLUMNS": "120"}

    @property
    def output(self) -> str:
        """All that was printed, by the shell, its programs and Python, but for the marks of this class."""
        return MARK.sub("", self._all())

    def type(self, commands: str, *, fails: bool = False) -> None:
        """Types commands. Raises `PageFailed` unless all end well, or, if it `fails`, the last one does not."""
        self._typed += 1
        script = self._notes / f"block-{self._typed}"
        script.write_text(commands)
        careful = "set +e" if fails else "set -e"
        self._say(f"{careful}; . {script} < /dev/null; e=$?; set +e; echo; echo MARK {self._typed} $e\n")
        code = self._wait_for_mark()
        if (code != 0) != fails:
            raise PageFailed(f"the commands ended with {code}:\n{commands}\n{self.output[-4000:]}")

    def type_python(self, text: str) -> None:
        """Types statements at the prompt. Raises `PageFailed` if Python complains."""
        if self._prompt is None:
            self._open_prompt()
        assert self._prompt is not None
        self._typed += 1
        before = len(self.output)
        self._prompt.write(f"{text}\n\nprint('\\nMARK', {self._typed}, 0)\n")
        self._prompt.flush()
        self._wait_for_mark()
        printed = self.output[before:]
        if re.search(r"^(?:Traceback|\w*Error\b)", printed, re.MULTILINE):
            raise PageFailed(f"Python complains:\n{text}\n{printed[-4000:]}")

    def compare(self, text: str, within_s: float = OUTPUT_TIMEOUT_S) -> None:
        """Raises `PageFailed` unless each line of `text` was printed since the last comparison, but for its numbers.

        Programs in the background have `within_s` to print it.
        """
        wanted = {shape(line): line for line in text.splitlines() if line.strip() not in ("", "...")}
        deadline = time.monotonic() + within_s
        while missing := wanted.keys() - {shape(line) for line in self.output[self._seen :].splitlines()}:
            if time.monotonic() > deadline:
                lines = "\n".join(wanted[line] for line in sorted(missing))
                raise PageFailed(f"not printed:\n{lines}\nbut:\n{self.output[self._seen :][-4000:]}")
            time.sleep(0.1)  # programs print to a file, and nobody tells when it grows
        self._seen = len(self.output)

    def close(self) -> None:
        """Ends the shell and all that was started in it."""
        if self._prompt is not None:
            self._prompt.close()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(process.name)) == self._shell.pid:
                    os.kill(int(process.name), signal.SIGKILL)
        self._shell.wait(timeout=10)
        assert self._shell.stdin is not None
        with suppress(BrokenPipeError):
            self._shell.stdin.close()

    def _all(self) -> str:
        return PROMPTS.sub("", self._printed.read_text(errors="replace"))

    def _open_prompt(self) -> None:
        pipe = self._notes / "prompt"
        os.mkfifo(pipe)
        self._say(f"{sys.executable} -u -m asyncio < {pipe} &\n")
        self._prompt = pipe.open("w")

    def _say(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(line)
            self._shell.stdin.flush()
        except BrokenPipeError as error:
            raise PageFailed(f"the shell has ended:\n{self.output[-4000:]}") from error

    def _wait_for_mark(self) -> int:
        deadline = time.monotonic() + BLOCK_TIMEOUT_S
        while (code := dict(MARK.findall(self._all())).get(str(self._typed))) is None:
            if self._shell.poll() is not None:
                raise PageFailed(f"a command failed:\n{self.output[-4000:]}")
            if time.monotonic() > deadline:
                raise PageFailed(f"no end after {BLOCK_TIMEOUT_S} s:\n{self.output[-4000:]}")
            time.sleep(0.02)  # as in `compare`: the mark comes in a file
        return int(code)
