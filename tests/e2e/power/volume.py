"""The simulator's disk as the kernel sees a file system: paths, handles, attributes, and faults that last until told.

What is durable, what a power cut leaves, and what a failed flush does are the rules of `tidelog.sim.kit`, the very same
code. One is harder here: the name of a new directory waits for a flush of the directory above it, too.
"""

from __future__ import annotations

import errno
import os
import stat
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.inode import SECTOR_BYTES, FileNode
from tidelog.sim.kit.medium import Medium
from tidelog.sim.kit.namespace import DirectoryNode, Node, os_error
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.sim_file import SimFile

CAPACITY_BYTES: Final = 1 << 32
BLOCK_BYTES: Final = 4096
NAME_BYTES_MAX: Final = 255

Act = Literal["read", "write", "flush", "lie"]


class Fault(NamedTuple):
    """Reads, writes or flushes of some files fail with EIO, those of bytes from `begin` to `end`; or a flush lies."""

    act: Act
    pattern: str
    begin: int = 0
    end: int = CAPACITY_BYTES


class Handle(NamedTuple):
    """An open file, by its name when it was opened."""

    file: SimFile
    node: Node
    path: str


class Volume:
    """A disk, and the machine that uses it now."""

    def __init__(self, seed: int) -> None:
        self.faults: list[Fault] = []
        self.strikes = 0
        self.after_cut: dict[str, bytes] = {}
        """All files as the last power cut has left them."""
        self._medium = Medium(stream(seed, "volume"))
        self._medium.capacity_bytes = CAPACITY_BYTES
        self._disk = SimDisk(medium=self._medium)
        self._handles: dict[int, Handle] = {}
        self._directories: dict[int, str] = {}
        self._handles_made = 0

    # -- the power ---------------------------------------------------------------------------------------------------

    def cut(self) -> dict[str, int]:
        """Cuts the power, and gives it back. Returns what was at stake: changes of names, writes, bytes written."""
        medium = self._medium
        pending = [change for node in medium.dirty.values() for change in node.pending]
        stake = {
            "names": len(medium.space.pending),
            "writes": len(pending),
            "bytes": sum(len(payload) for _, _, payload in pending if payload),
        }
        self._handles.clear()
        self._directories.clear()
        self._disk = self._disk.crash()
        self.after_cut = {path: bytes(node.durable) for path, node in medium.walk().items()}
        return stake

    def spoil(self, pattern: str, begin: int, end: int) -> int:
        """Makes sectors of all files that match unreadable until they are written. Returns how many those are."""
        count = 0
        for path, node in self._medium.walk().items():
            if fnmatch(path, pattern):
                sectors = range(begin // SECTOR_BYTES, -(-min(end, len(node.data)) // SECTOR_BYTES))
                node.unreadable += [(one * SECTOR_BYTES, (one + 1) * SECTOR_BYTES) for one in sectors]
                count += len(sectors)
        return count

    def dump(self, directory: Path, *, after_cut: bool) -> None:
        """Writes all files to a directory of the real disk, as they are or as the last power cut has left them."""
        found = {path: bytes(node.data) for path, node in self._medium.walk().items()}
        for path, data in (self.after_cut if after_cut else found).items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    # -- names -------------------------------------------------------------------------------------------------------

    def attributes(self, path: str | None, handle: int | None = None) -> dict[str, int]:
        """Returns the attributes of a name, or of an open file. Raises `OSError`, as everything here does."""
        node = self._handles[handle].node if handle is not None else self._medium.space.find(path or "")
        if isinstance(node, DirectoryNode):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2, **_owner()}
        return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": len(node.data), **_owner()}

    def open_directory(self, path: str) -> int:
        """Opens a directory. Returns its handle."""
        self._medium.space.directory(path)
        self._handles_made += 1
        self._directories[self._handles_made] = path
        return self._handles_made

    def close_directory(self, handle: int) -> None:
        """Forgets the handle of a directory."""
        self._directories.pop(handle, None)

    def names(self, handle: int) -> list[str]:
        """Returns the names in a directory."""
        return sorted(self._medium.space.directory(self._directories[handle]).names)

    def make_directory(self, path: str) -> None:
        """Makes a directory, whose name waits to be flushed like that of a file."""
        parent, name = self._medium.space.parent(path)
        if name in parent.names:
            raise os_error(errno.EEXIST, path)
        self._change_name(parent, name, DirectoryNode(), "make_dir", path)

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""
        if self._medium.space.directory(path).names:
            raise os_error(errno.ENOTEMPTY, path)
        self._change_name(*self._medium.space.parent(path), None, "remove", path)

    def _change_name(self, parent: DirectoryNode, name: str, node: Node | None, kind: str, path: str) -> None:
        self._medium.book(kind, path, b"")
        self._medium.space.change(self._medium.sequence, [(parent, name, node)])

    def remove(self, path: str) -> None:
        """Removes a file."""
        self._disk.remove(path)

    def rename(self, source: str, target: str) -> None:
        """Renames a file or a directory."""
        self._disk.rename(source, target)

    def flush_names(self, handle: int) -> None:
        """Makes the names in a directory durable."""
        directory = self._directories[handle]
        if not self._strikes("lie", directory):
            self._disk.sync_dir(directory)

    # -- files -------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens a file. Returns its handle."""
        self._handles_made += 1
        file = self._disk.open(path, create=create)
        self._handles[self._handles_made] = Handle(file, self._medium.space.find(path), path)
        return self._handles_made

    def close(self, handle: int) -> None:
        """Forgets a handle."""
        self._handles.pop(handle, None)

    def read(self, handle: int, size: int, position: int) -> bytes:
        """Reads what there is."""
        file, _, path = self._handles[handle]
        self._fail("read", path, position, size)
        return file.pread(size, position)

    def write(self, handle: int, data: bytes, position: int) -> int:
        """Writes, for now to memory only."""
        file, _, path = self._handles[handle]
        self._fail("write", path, position, len(data))
        file.pwritev([data], position)
        return len(data)

    def truncate(self, path: str | None, size: int, handle: int | None = None) -> None:
        """Changes the length of what has this name, or of an open file."""
        file = self._handles[handle].file if handle is not None else self._disk.open(path or "")
        file.truncate(size)

    def flush(self, handle: int) -> None:
        """Makes the bytes of a file durable, or says so. A flush that fails has forgotten some of them."""
        file, node, path = self._handles[handle]
        if self._strikes("lie", path):
            return
        if self._strikes("flush", path):
            assert isinstance(node, FileNode)
            self._medium.fail_sync(node)
            raise os_error(errno.EIO, path)
        file.sync()

    def room(self) -> dict[str, int]:
        """Returns how much space there is, as `statvfs` does."""
        free = self._disk.free_bytes() // BLOCK_BYTES
        return {
            "f_bsize": BLOCK_BYTES,
            "f_frsize": BLOCK_BYTES,
            "f_blocks": CAPACITY_BYTES // BLOCK_BYTES,
            "f_bfree": free,
            "f_bavail": free,
            "f_namemax": NAME_BYTES_MAX,
        }

    def _fail(self, act: Act, path: str, position: int, size: int) -> None:
        if self.faults and self._strikes(act, path, position, size):
            raise os_error(errno.EIO, path)

    def _strikes(self, act: Act, path: str, position: int = 0, size: int = CAPACITY_BYTES) -> bool:
        struck = any(
            fault.act == act and fnmatch(path, fault.pattern) and position < fault.end and fault.begin < position + size
            for fault in self.faults
        )
        self.strikes += struck
        return struck


def _owner() -> dict[str, int]:
    return {"st_uid": os.getuid(), "st_gid": os.getgid()}
