"""Disks for brokers of a test: each a file system of its own, whose power can be cut, and whose sectors can go bad."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from tests.e2e.power.volume import CAPACITY_BYTES, Fault

ANSWER_S_MAX: Final = 30.0
REPOSITORY: Final = Path(__file__).parents[3]
UNMOUNTERS: Final = ("fusermount3", "fusermount")


class DisksUnavailable(RuntimeError):
    """This machine, or this user, cannot mount a file system of a program's own; the message says why."""


def missing() -> str:
    """Returns what this machine lacks; nothing if it lacks nothing that can be known beforehand."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not there, or may not be used"
    if not any(map(shutil.which, UNMOUNTERS)):
        return "fusermount is not installed (Debian: apt-get install fuse3)"
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy is not installed (make setup)"
    return ""


class Disk:
    """A file system at `directory`, which is made. All that is drawn at its cuts comes from `seed`."""

    mount: ClassVar[str] = "tests.e2e.power.mount"
    """The program that mounts it, and is told by lines what is to happen."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        self._errors = directory.with_name("disk.log")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if lack := missing():
            raise DisksUnavailable(lack)
        self._directory.mkdir(parents=True)
        words = [sys.executable, "-m", self.mount, str(self._directory), str(self._seed)]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                words,
                text=True,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for those who use the disk, which ends when they do
            )
        try:
            self._hear()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        try:
            self._process.communicate(timeout=ANSWER_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise

    def begin_cut(self) -> None:
        """Cuts the power. Nobody may use the disk any more; `end_cut` says when it is back."""
        self._tell({"do": "cut"})

    def end_cut(self) -> Mapping[str, int]:
        """Waits until the disk is back. Returns how many names, writes and bytes were at stake."""
        stake: Mapping[str, int] = self._hear()["stake"]
        return stake

    def cut(self) -> Mapping[str, int]:
        """Cuts the power and gives it back."""
        self.begin_cut()
        return self.end_cut()

    def set_faults(self, faults: Iterable[Fault]) -> int:
        """Replaces the faults there are from now on. Returns how often the disk has failed or lied so far."""
        self._tell({"do": "faults", "faults": list(faults)})
        strikes: int = self._hear()["strikes"]
        return strikes

    @contextmanager
    def failing(self, *faults: Fault) -> Iterator[None]:
        """Has faults for the time of a `with`, each of which must strike."""
        before = self.set_faults(faults)
        try:
            yield
        finally:
            strikes = self.set_faults([]) - before
        assert strikes, f"nothing met {faults}"

    def spoil(self, pattern: str, begin: int = 0, end: int = CAPACITY_BYTES) -> None:
        """Makes sectors of all files that match unreadable (EIO) until they are written."""
        self._tell({"do": "spoil", "pattern": pattern, "begin": begin, "end": end})
        assert self._hear()["sectors"], f"no file has any bytes there: {pattern}"

    def dump(self, directory: Path, *, after_cut: bool = False) -> None:
        """Copies all files to a directory, as they are or as the last power cut has left them."""
        self._tell({"do": "dump", "to": str(directory), "after_cut": after_cut})
        self._hear()

    def _tell(self, words: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_S_MAX)[0]:
            raise TimeoutError(f"the disk at {self._directory} does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise DisksUnavailable(self._reason())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _reason(self) -> str:
        """Returns why the process has ended. What libfuse says comes first, before Python's traceback."""
        lines = self._errors.read_text().splitlines() or ["the file system has ended"]
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]


@contextmanager
def mounted(directory: Path, nodes: Iterable[int], seed: int) -> Iterator[dict[int, Disk]]:
    """Yields a disk for the data of each broker of a cluster in this directory. Raises `DisksUnavailable`."""
    with ExitStack() as stack:
        yield {
            node: stack.enter_context(Disk(directory / f"broker-{node}" / "data", seed * 10 + node)) for node in nodes
        }
