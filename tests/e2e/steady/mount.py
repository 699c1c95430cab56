"""A process that mounts a file system whose writes and flushes can be made to wait.

    python -m tests.e2e.steady.mount DIRECTORY SEED

All goes to the directory `backing` beside it. A line on standard input, an object whose `seconds` say how long, has
each write and flush wait until so much later, what comes meanwhile included; 0 ends that. What is read is not held up:
a disk that hangs is not asked for what the kernel has in memory. Nothing is drawn, so the seed does not matter; the
file system of `tests.e2e.power` takes one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tests.e2e.power.disks import UNMOUNTERS
from tests.e2e.power.mount import Mounting

ATTRIBUTES: Final = ("st_mode", "st_nlink", "st_size", "st_blocks", "st_uid", "st_gid")
ROOM: Final = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_namemax")
KEPT_FLAGS: Final = os.O_ACCMODE | os.O_TRUNC
"""The kernel says where each write goes, so it must not be appended."""


class Stalling:
    """The calls of the kernel, in the words of `mfusepy`; several threads make them."""

    use_ns = True
    flag_nopath = 1
    flag_nullpath_ok = 1

    def __init__(self, backing: Path, mounted: threading.Event) -> None:
        self._backing = os.fspath(backing)
        self._mounted = mounted
        self._change = threading.Condition()
        self._until_s = 0.0

    def stall(self, seconds: float) -> None:
        """Has writes and flushes wait from now on, for so long."""
        with self._change:
            self._until_s = time.monotonic() + seconds
            self._change.notify_all()

    def _wait(self) -> None:
        with self._change:
            while (left_s := self._until_s - time.monotonic()) > 0:
                self._change.wait(left_s)

    # -- names -------------------------------------------------------------------------------------------------------

    def init(self, path: str) -> None:
        self._mounted.set()

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, int]:
        found = os.lstat(self._backing + (path or "")) if fh is None else os.fstat(fh)
        times = {name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        return {**{name: getattr(found, name) for name in ATTRIBUTES}, **times}

    def opendir(self, path: str) -> int:
        return os.open(self._backing + path, os.O_RDONLY | os.O_DIRECTORY)

    def releasedir(self, path: str | None, fh: int) -> int:
        os.close(fh)
        return 0

    def readdir(self, path: str | None, fh: int) -> list[str]:
        return [".", "..", *os.listdir(fh)]

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._backing)
        return {name: getattr(found, name) for name in ROOM}

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._backing + path, mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._backing + path)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._backing + path)
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._backing + old, self._backing + new)
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        self._wait()
        os.fsync(fh)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> int:
        return 0

    # -- files -------------------------------------------------------------------------------------------------------

    def create(self, path: str, mode: int, flags: int) -> int:
        return os.open(self._backing + path, os.O_RDWR | os.O_CREAT, mode)

    def open(self, path: str, flags: int) -> int:
        return os.open(self._backing + path, flags & KEPT_FLAGS)

    def release(self, path: str | None, fh: int) -> int:
        os.close(fh)
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        self._wait()
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        os.truncate(self._backing + (path or "") if fh is None else fh, length)
        return 0

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self._wait()
        os.fdatasync(fh) if datasync else os.fsync(fh)
        return 0


def _obey(operations: Stalling, directory: Path) -> None:
    for line in sys.stdin:
        operations.stall(json.loads(line)["seconds"])
        _tell({})
    operations.stall(0)
    program = next(filter(shutil.which, UNMOUNTERS))
    subprocess.run([program, "-u", "-z", str(directory)], check=False, capture_output=True)
    os._exit(0)  # whoever still has a file open gets errors from now on


def _answer_when(mounted: threading.Event) -> None:
    mounted.wait()
    _tell({"mounted": True})


def _tell(answer: dict[str, bool]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer is the output


def main() -> None:
    """Mounts, until standard input ends."""
    directory, mounted = Path(sys.argv[1]), threading.Event()
    backing = directory.with_name("backing")
    backing.mkdir(exist_ok=True)
    operations = Stalling(backing, mounted)
    threading.Thread(target=_answer_when, args=[mounted], daemon=True).start()
    threading.Thread(target=_obey, args=[operations, directory], daemon=True).start()
    Mounting(operations, str(directory), foreground=True, hard_remove=True, fsname="tidelog-stalling")


if __name__ == "__main__":
    main()
