"""The file of an audit log: append-only, readable by its owner alone, and rotated by size: `audit.log`, `audit.log.1`,
..."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

PRIVATE = 0o600


class AuditFile:
    """An append-only log file that is rotated by size. Not safe for several threads at a time."""

    def __init__(self, path: str, bytes_max: int, files_max: int) -> None:
        """Opens the file, or creates it. A file is rotated at `bytes_max` bytes, and at most `files_max` files are
        kept, the current one included. Raises `OSError`."""
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._file, self._size = _opened(path)
        self.written_ms = int(os.fstat(self._file).st_mtime * 1000) if self._size else 0
        """Time of the last write before the file was opened, in ms since 1970; 0 if the file is new."""
        # A process that was killed, or a disk that was full, may have left half a line.
        self._is_torn = self._ends_in_half_a_line()

    def write(self, lines: Sequence[bytes]) -> None:
        """Appends whole lines. Raises `OSError` if not all of them could be written."""
        data = b"".join(lines)
        # Lines are never split over two files, so a file may be larger than the bound by what is written at once.
        if self._size and self._size + len(data) > self._bytes_max:
            self._rotate()
        elif self._is_gone():
            os.close(self._file)
            self._file, self._size = _opened(self._path)
            self._is_torn = self._ends_in_half_a_line()
        if self._is_torn:  # what could not be written whole is a line by itself, and no part of the next one
            data = b"\n" + data
        while data:
            # May be short, as on a disk that fills up: the rest is tried, and raises.
            written = os.write(self._file, data)
            self._size += written
            self._is_torn = not data[:written].endswith(b"\n")
            data = data[written:]

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _rotate(self) -> None:
        # From the oldest on, each into the name of the next older one: only the oldest is lost, whenever this is
        # interrupted.
        for number in range(self._files_max - 1, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        if self._files_max == 1:
            # With one file to keep there is no other name for it.
            os.ftruncate(self._file, 0)
            self._size, self._is_torn = 0, False
            return
        # The new file is open before the old one is closed: if that fails, the old one goes on.
        file, size = _opened(self._path)
        os.close(self._file)
        self._file, self._size, self._is_torn = file, size, False

    def _ends_in_half_a_line(self) -> bool:
        return bool(self._size) and _last_byte(self._path) != b"\n"

    def _is_gone(self) -> bool:
        """Returns True if the file was moved or removed by another program."""
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return True


def _opened(path: str) -> tuple[int, int]:
    """Opens a file to append to, which nobody but the owner may read. Returns its descriptor and size. Raises
    `OSError`."""
    # O_NOFOLLOW: a symbolic link put here would have the broker append to any file. O_NONBLOCK: a FIFO would hang the
    # start.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, PRIVATE)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(f"{path} is no ordinary file, which an audit log has to be")
    # A file that was there keeps its mode through `open`, and may be readable by all.
    if stat.S_IMODE(status.st_mode) != PRIVATE:
        os.fchmod(file, PRIVATE)
    return file, status.st_size


def _last_byte(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
