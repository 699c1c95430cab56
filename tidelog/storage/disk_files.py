"""The `Files` port on a real file system.

It relies on no more than POSIX promises. Above all, a failed `fdatasync` is final: Linux reports it once and then marks
the pages clean, so that a second call succeeds although the data is gone (Rebello et al., "Can Applications Recover
from fsync Failures?", USENIX ATC 2020). This module never retries one, and neither may its callers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Sequence

from tidelog.model.ports import Buffer

IOV_MAX = 1024
"""Maximum buffers per `pwritev` call (Linux's `UIO_MAXIOV`, and the limit of the BSDs)."""

_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750


class DiskFile:
    """An open file (`File`). Safe to sync from one thread while another reads and writes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data:  # a short read is the end of the file only if the next one is empty
            size -= len(data)
            position += len(data)
            data = os.pread(self._fd, size, position)
            parts.append(data)
        return b"".join(parts)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        if position < 0:  # Python calls pwritev2, to which -1 means "wherever the cursor is"
            raise OSError(errno.EINVAL, "negative position")
        for first in range(0, len(buffers), IOV_MAX):
            chunk = buffers[first : first + IOV_MAX]
            size = sum(map(len, chunk))
            written = os.pwritev(self._fd, chunk, position)
            # `pwritev` may stop at any byte, as on a disk that fills up, and that is no error: the next call gives the
            # reason.
            if written < size:
                self._write_rest(chunk, written, position + written)
            position += size

    def _write_rest(self, buffers: Sequence[Buffer], skip: int, position: int) -> None:
        """Writes what a short `pwritev` has not written: all but the first `skip` bytes of `buffers`."""
        rest = [memoryview(buffer) for buffer in buffers]
        while True:
            # Whole buffers go, and the one that was cut is sliced: `skip` counts bytes of the last call only.
            while rest and skip >= len(rest[0]):
                skip -= len(rest.pop(0))
            if not rest:
                return
            rest[0] = rest[0][skip:]
            skip = os.pwritev(self._fd, rest, position)
            if skip == 0:
                raise OSError(errno.EIO, "the device took no bytes; nothing is known about why")
            position += skip

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        if self._fd < 0:  # of all calls, fdatasync alone answers this with a ValueError
            raise OSError(errno.EBADF, "file is closed")
        _flush_data(self._fd)

    def size(self) -> int:
        # By the descriptor, not by the name: the name may be another file's by now.
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1  # -1: each later use fails with EBADF, and never hits a reused number
        if fd >= 0:
            os.close(fd)


class DiskLock:
    """A held file lock (`Lock`)."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class DiskFiles:
    """All files below one root directory (`Files`). `make_dirs("")` creates the root itself."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        name = self._resolve(path)
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDWR
        try:
            return DiskFile(os.open(name, flags, _FILE_MODE))
        except OSError as error:
            if error.errno != errno.EROFS or not self.exists(path):
                raise
            # ext4 turns read-only after an error. What is there can still be read, and each write fails with EBADF.
            return DiskFile(os.open(name, os.O_RDONLY))

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._resolve(path))
        except (FileNotFoundError, NotADirectoryError):
            return False  # any other error is not an answer: "absent" would invite the caller to start afresh
        return True

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._resolve(directory)))
        except FileNotFoundError:
            return []

    def make_dirs(self, directory: str) -> None:
        path = self._resolve(directory)
        os.makedirs(path, _DIRECTORY_MODE, exist_ok=True)
        # A name that exists is not yet a durable one: whoever made it may have been killed before syncing it.
        if not directory:
            _sync_ancestors(path)
        while path != self.root:
            path = os.path.dirname(path)
            _sync_directory(path)

    def make_dir(self, directory: str) -> None:
        os.mkdir(self._resolve(directory), _DIRECTORY_MODE)

    def remove(self, path: str) -> None:
        os.unlink(self._resolve(path))

    def remove_tree(self, directory: str) -> None:
        path = self._resolve(directory)
        assert path != self.root, "refusing to remove the data directory itself"
        if self.exists(directory):
            shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        # Atomic, and not durable yet: that takes a `sync_dir`.
        os.replace(self._resolve(source), self._resolve(target))

    def sync_dir(self, directory: str) -> None:
        _sync_directory(self._resolve(directory))

    def lock(self, path: str) -> DiskLock:
        name = self._resolve(path)
        fd = os.open(name, os.O_RDWR | os.O_CREAT, _FILE_MODE)
        try:
            # `flock` belongs to the open file description: the kernel drops it with the process, however that ends. The
            # file stays: if it were removed, two processes could hold locks on two files of one name.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process id is for the message of whoever comes second; the lock itself is the kernel's.
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise BlockingIOError(error.errno, f"locked by process {holder}", name) from None
        except BaseException:
            os.close(fd)
            raise
        return DiskLock(fd)

    def free_bytes(self) -> int:
        stat = os.statvfs(self.root)
        # `f_bavail`, not `f_bfree`: blocks that the system keeps for root are no space of this user.
        return stat.f_bavail * stat.f_frsize

    def _resolve(self, path: str) -> str:
        """Returns the absolute path of a relative one. Paths are built by this program, so a bad one fails an
        assertion."""
        if not path:
            return self.root
        assert "\0" not in path and not path.startswith("/"), f"not a relative path: {path!r}"
        assert ".." not in path.split("/"), f"path leads out of the data directory: {path!r}"
        return os.path.join(self.root, path)


def _sync_directory(path: str) -> None:
    # Creating, renaming and removing change the directory, not the file, so no fsync of a file covers a name.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_ancestors(path: str) -> None:
    """Fsyncs the parent directories of the data directory, as far up as this user may read, so that its name is
    durable."""
    parent = os.path.dirname(path)
    while parent != path and os.access(parent, os.R_OK):
        _sync_directory(parent)
        path, parent = parent, os.path.dirname(parent)


def _flush_data(fd: int) -> None:
    if sys.platform == "darwin":  # there, fsync stops at the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        # It flushes the length as well, as reading the bytes back needs it; times of the file it leaves out.
        os.fdatasync(fd)
