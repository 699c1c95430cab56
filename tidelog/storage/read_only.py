"""Opening a log without changing its files: for tools that run beside a stopped broker, or over a copy of its disk.

The loader runs as always, on a disk that refuses every change. It keeps its corrections in memory, and returns a log
that takes no writes. So a tool sees what the next start of the broker would make of the files, and there is no second
way to read them.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from tidelog.model.errors import NotFound
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer, File, Files, Lock
from tidelog.storage.load_report import LoadReport
from tidelog.storage.loader import load_log
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog

HANDLES_MAX = 64
_SETTINGS = LogSettings(segment_bytes=1 << 62, segment_ms=1 << 62)


def open_read_only(files: Files, directory: str, identity: PartitionId) -> tuple[PartitionLog, LoadReport]:
    """Opens a log for reading, and writes nothing; the report says what the next start would find and correct.

    Raises `NotFound` if there is no such directory, `OSError` if files cannot be opened. Close the log with
    `PartitionLog.close(0)`.
    """
    if not files.exists(directory):
        raise NotFound(f"there is no log in {directory}")
    opened = OpenFiles(ReadOnlyFiles(files), HANDLES_MAX)
    # No incarnation and no time are needed: metainfo cannot be written.
    log, report = load_log(opened, directory, identity, _SETTINGS, new_incarnation="", now_ms=0)
    # Also where nothing had to be corrected, and the log would take appends.
    log.take_offline("it was opened for reading")
    return log, report


class ReadOnlyFiles:
    """`Files` that refuse every change with EROFS. Opening a file that would have to be created gives an empty one."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self._files.exists(path):
            # The loader makes files that are missing, and reads them. To it this one is empty, as a new one is.
            return ReadOnlyFile(None, path)
        return ReadOnlyFile(self._files.open(path), path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def list(self, directory: str) -> list[str]:
        return self._files.list(directory)

    def make_dirs(self, directory: str) -> None:
        if not self._files.exists(directory):
            raise _refusal(directory)

    def make_dir(self, directory: str) -> None:
        raise _refusal(directory)

    def remove(self, path: str) -> None:
        raise _refusal(path)

    def remove_tree(self, directory: str) -> None:
        raise _refusal(directory)

    def rename(self, source: str, target: str) -> None:
        raise _refusal(source)

    def sync_dir(self, directory: str) -> None:
        raise _refusal(directory)

    def lock(self, path: str) -> Lock:
        raise _refusal(path)

    def free_bytes(self) -> int:
        return self._files.free_bytes()


class ReadOnlyFile:
    """A `File` that refuses every change. `file` is None for one that does not exist, which reads as empty."""

    def __init__(self, file: File | None, path: str) -> None:
        self._file = file
        self._path = path

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position) if self._file else b""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        raise _refusal(self._path)

    def truncate(self, size: int) -> None:
        raise _refusal(self._path)

    def sync(self) -> None:
        raise _refusal(self._path)

    def size(self) -> int:
        return self._file.size() if self._file else 0

    def close(self) -> None:
        if self._file:
            self._file.close()


def _refusal(path: str) -> OSError:
    return OSError(errno.EROFS, "opened for reading", path)
