"""A process that mounts a volume, and is told by lines on its standard input when its power is cut.

    python -m tests.e2e.power.mount DIRECTORY SEED

Each line is an object with the word `do` and what belongs to it: `cut`, `faults`, `spoil`, `dump`. Each is answered by
a line. A cut unmounts the file system, so that the kernel forgets all that it knows of it, and mounts what is left.
When standard input ends, so does the process, and the mount with it.
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
from typing import Any, Final

import mfusepy

from tests.e2e.power.disks import UNMOUNTERS
from tests.e2e.power.volume import Fault, Volume

BUSY_S_MAX: Final = 5.0


class Operations:
    """The calls of the kernel, in the words of `mfusepy`. Paths begin with a slash; an open file has none, as it may
    have been removed meanwhile."""

    use_ns = True
    flag_nopath = 1
    flag_nullpath_ok = 1

    def __init__(self, volume: Volume, mounted: threading.Event) -> None:
        self._volume = volume
        self._mounted = mounted

    def init(self, path: str) -> None:
        self._mounted.set()

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, int]:
        return self._volume.attributes(path and path[1:], fh)

    def opendir(self, path: str) -> int:
        return self._volume.open_directory(path[1:])

    def releasedir(self, path: str | None, fh: int) -> int:
        self._volume.close_directory(fh)
        return 0

    def readdir(self, path: str | None, fh: int) -> list[str]:
        return [".", "..", *self._volume.names(fh)]

    def statfs(self, path: str) -> dict[str, int]:
        return self._volume.room()

    def mkdir(self, path: str, mode: int) -> int:
        self._volume.make_directory(path[1:])
        return 0

    def rmdir(self, path: str) -> int:
        self._volume.remove_directory(path[1:])
        return 0

    def unlink(self, path: str) -> int:
        self._volume.remove(path[1:])
        return 0

    def rename(self, old: str, new: str) -> int:
        self._volume.rename(old[1:], new[1:])
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        self._volume.flush_names(fh)
        return 0

    def create(self, path: str, mode: int, flags: int) -> int:
        return self._volume.open(path[1:], create=True)

    def open(self, path: str, flags: int) -> int:
        handle = self._volume.open(path[1:])
        if flags & os.O_TRUNC:
            self._volume.truncate(path[1:], 0)
        return handle

    def release(self, path: str | None, fh: int) -> int:
        self._volume.close(fh)
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return self._volume.read(fh, size, offset)

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        return self._volume.write(fh, data, offset)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        self._volume.truncate(path and path[1:], length, fh)
        return 0

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self._volume.flush(fh)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> int:
        return 0


class Mounting(mfusepy.FUSE):  # type: ignore[misc]  # mfusepy has no types
    """A mount that truncates an open file with libfuse 3 as with libfuse 2: there the call names the file by its handle
    alone, which `mfusepy` drops."""

    def truncate_fuse_3(self, path: bytes | None, length: int, info: Any) -> int:
        name = None if path is None else path.decode(self.encoding, self.errors)
        return int(self.operations.truncate(name, length, info.contents.fh if info else None))


class Mount:
    """The volume at a directory, over all its mounts."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._volume = Volume(seed)
        self._stake: dict[str, int] | None = None
        self._is_unmounting = False
        self._is_over = False

    def serve(self) -> None:
        """Mounts, and mounts again after each cut, until standard input ends."""
        threading.Thread(target=self._obey, daemon=True).start()
        while not self._is_over:
            mounted = threading.Event()
            threading.Thread(target=self._answer_when, args=[mounted], daemon=True).start()
            try:
                self._mount(mounted)
            except RuntimeError:
                if not self._is_unmounting:  # libfuse may call the end of an unmount an aborted connection
                    raise
            self._is_unmounting = False
            self._stake = self._volume.cut()

    def _mount(self, mounted: threading.Event) -> None:
        """Mounts, and returns when it is unmounted. Raises `RuntimeError`."""
        Mounting(
            Operations(self._volume, mounted),
            str(self._directory),
            foreground=True,
            nothreads=True,
            direct_io=True,  # what is read comes from here, and so does an error
            hard_remove=True,
            fsname="tidelog-power",
        )

    def _answer_when(self, mounted: threading.Event) -> None:
        mounted.wait()
        _tell({"mounted": True, "stake": self._stake})

    def _obey(self) -> None:
        for line in sys.stdin:
            words = json.loads(line)
            match words.pop("do"):
                case "cut":
                    self._unmount()
                case "faults":
                    self._volume.faults = [Fault(*fault) for fault in words["faults"]]
                    _tell({"strikes": self._volume.strikes})
                case "spoil":
                    _tell({"sectors": self._volume.spoil(words["pattern"], words["begin"], words["end"])})
                case "dump":
                    self._volume.dump(Path(words["to"]), after_cut=words["after_cut"])
                    _tell({})
        self._is_over = True
        self._unmount("-z")
        os._exit(0)  # whoever still has a file open gets errors from now on

    def _unmount(self, *words: str) -> None:
        """Unmounts. The last of those who used it may be dying still."""
        program = next(filter(shutil.which, UNMOUNTERS))
        self._is_unmounting = True
        deadline_s = time.monotonic() + BUSY_S_MAX
        while subprocess.run(
            [program, "-u", *words, str(self._directory)], check=False, capture_output=True
        ).returncode:
            assert time.monotonic() < deadline_s, f"{self._directory} is in use"
            time.sleep(0.01)  # nothing tells when the last user is gone


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer is the output


if __name__ == "__main__":
    Mount(Path(sys.argv[1]), int(sys.argv[2])).serve()
