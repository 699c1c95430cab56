"""Files as a process has them: what a test leaves open when it plays a crash is closed when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.storage.disk_files import DiskFile, DiskFiles, DiskLock


class ProcessFiles(DiskFiles):
    """Real files that remember what was opened, as the kernel does for each process."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._opened: list[DiskFile] = []
        self._locked: list[DiskLock] = []

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self._opened.append(super().open(path, create=create))
        return self._opened[-1]

    def lock(self, path: str) -> DiskLock:
        self._locked.append(super().lock(path))
        return self._locked[-1]

    def end(self) -> None:
        """Closes what is open, as the end of a process does, however it ends."""
        for file in self._opened:
            file.close()
        for lock in self._locked:
            lock.release()


@contextmanager
def process_files(directory: Path) -> Iterator[ProcessFiles]:
    """Files below `directory`, which is made, until the process ends."""
    files = ProcessFiles(str(directory))
    files.make_dirs("")
    try:
        yield files
    finally:
        files.end()
