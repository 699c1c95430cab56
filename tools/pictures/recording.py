"""A recording of a terminal: a shell is given one line after the other, and each line on its screen is noted with its
time.

The shell is a real, interactive one on a terminal of its own, so jobs run in the background, and what they print comes
when it comes. The next line is typed when the prompt is back. The shell and its jobs end with the recording.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

PROMPT: Final = "\x1b[1;32m$\x1b[0m "
SHELL: Final = ("setsid", "--ctty", "--wait", "bash", "--noprofile", "--norc", "--noediting", "-i")
"""`setsid` makes the terminal the shell's own, without which it has no jobs."""
LEAVE: Final = "\x03 kill $(jobs -p); wait; exit"
"""Ctrl-C comes first, for a command that goes on when it should have ended."""
LINE_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 60.0
ROWS: Final = 50
ERASE_ABOVE: Final = "\x1b[1A\x1b[2K"
"""The end of a progress bar: up by a line, which is cleared."""


class Line(NamedTuple):
    """A line of the screen, with its escape sequences, and when it was complete, in seconds from the beginning."""

    text: str
    at_s: float


class TooSlow(Exception):
    """A line was typed, and the prompt did not come back in time."""


def record(script: Sequence[str], directory: Path, columns: int) -> list[Line]:
    """Types a script in a shell in this directory, and returns what was to be seen. Raises `TooSlow`."""
    with _terminal(directory, columns) as terminal:
        for number, typed in enumerate(script, start=1):
            terminal.read_until(prompts=number)
            terminal.type(typed)
        terminal.read_until(prompts=len(script) + 1)
        return terminal.lines()


class _Terminal:
    """The end of a terminal at which a person sits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begin_s = time.monotonic()
        self._chunks: list[Line] = []

    def type(self, line: str) -> None:
        """Types a line, and Enter."""
        os.write(self._fd, f"{line}\n".encode())

    def read_until(self, prompts: int) -> None:
        """Reads until so many prompts were seen in all."""
        deadline_s = time.monotonic() + LINE_TIMEOUT_S
        while (text := self._text()).count(PROMPT) < prompts:
            if not select.select([self._fd], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise TooSlow(f"no prompt within {LINE_TIMEOUT_S:.0f} s; the screen ends with {text[-1000:]!r}")
            chunk = os.read(self._fd, 65536).decode(errors="replace")
            self._chunks.append(Line(chunk, time.monotonic() - self._begin_s))

    def lines(self) -> list[Line]:
        """Returns the lines that were completed; the last prompt is none."""
        return completed(self._chunks)

    def _text(self) -> str:
        return "".join(chunk.text for chunk in self._chunks)


def completed(chunks: Sequence[Line]) -> list[Line]:
    """Returns the lines in pieces of text that came one after the other, each with the time of its last piece; without
    those that were erased."""
    finished: list[Line] = []
    begun = ""
    for text, at_s in chunks:
        *lines, begun = (begun + text).replace("\r\n", "\n").split("\n")
        for line in lines:
            *erased, last = line.split(ERASE_ABOVE)
            del finished[len(finished) - len(erased) :]
            finished.append(Line(last, at_s))
    return finished


@contextmanager
def _terminal(directory: Path, columns: int) -> Iterator[_Terminal]:
    """Starts a shell. At the end its jobs are stopped, and it is left."""
    screen, keyboard = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    shell = subprocess.Popen(  # noqa: S603 -- the command is a constant
        SHELL, stdin=keyboard, stdout=keyboard, stderr=keyboard, cwd=directory, env=_environment(directory)
    )
    os.close(keyboard)
    terminal = _Terminal(screen)
    try:
        yield terminal
    finally:
        terminal.type(LEAVE)
        try:
            shell.wait(END_TIMEOUT_S)
        finally:
            shell.kill()
            os.close(screen)


def _environment(directory: Path) -> dict[str, str]:
    """Returns what the shell knows: the commands of this Python, and nothing of whoever records."""
    commands = Path(sys.executable).parent
    return {
        "HISTFILE": os.devnull,
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PS1": PROMPT,
        "TERM": "xterm-256color",
    }
