"""A disk in memory that behaves as badly as POSIX allows: the `Files` port of the simulator.

A `SimDisk` is one *incarnation*: the disk (`tidelog.sim.kit.medium`) as one running machine sees it. It ends by

- `crash()`, the power cut: any subset of what was not synced survives (`tidelog.sim.kit.inode`,
  `tidelog.sim.kit.namespace`);
- `kill()`, the end of the process alone: the kernel lives on and so do all its un-synced pages, which the next process
  reads as if they were safe. Recovery that trusts what it reads without syncing it fails here.

Both fence the old incarnation and return the next. Each operation on a fenced disk, its handles included, raises
`Crashed`. `crash_at(n)` makes the n-th operation that changes anything the machine's last: it dies before the
operation, in the middle of it, or after it took effect and before the caller was told.

All random choices come from the seed, and `medium.trace()` hashes every change, so that two runs can be compared.

Where POSIX leaves a choice, the model takes the one that hurts: `sync` does not make the file's name durable, names
become durable in any order, a failed sync leaves the pages marked clean. What it does not model: sectors torn in
themselves, and damage that crosses files (a lost journal). Space is counted by length, not by block.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from tidelog.sim.kit.choices import CrashChoices
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.inode import FileNode
from tidelog.sim.kit.medium import Medium
from tidelog.sim.kit.namespace import DirectoryNode, Node, os_error
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.sim_file import SimFile, SimLock

_NEVER = 1 << 62


class SimDisk:
    """`Files` in memory, for one thread. `medium` is the disk itself, with the faults that a scenario can switch on;
    `on_crash` is called when a planned crash happens, before `Crashed` is raised."""

    def __init__(self, seed: int | str | random.Random = 0, *, medium: Medium | None = None) -> None:
        self.medium = medium or Medium(seed if isinstance(seed, random.Random) else stream(seed, "disk"))
        self.on_crash: Callable[[], None] | None = None
        self._space = self.medium.space
        self._locks: dict[int, SimLock] = {}
        self.is_dead = False
        self.operations = 0
        """Number of changes so far in this incarnation, which `crash_at` counts."""
        self._last_operation = _NEVER

    # -- the Files port ----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        directory, name = self._locate(path)
        node = directory.names.get(name)
        if node is None and create:
            node = self._create(directory, name, path)
        return SimFile(self, _existing_file(node, path), path)

    def _create(self, directory: DirectoryNode, name: str, path: str) -> FileNode:
        dies = self.begin("create", path)
        medium = self.medium
        is_full = medium.used_bytes >= medium.capacity_bytes
        if is_full and medium.strikes("disk_full", 0.5):  # the directory's own block may have room left
            raise os_error(errno.ENOSPC, path)
        node = medium.new_file()
        self._space.change(medium.sequence, [(directory, name, node)])
        self.end(dies)
        return node

    def exists(self, path: str) -> bool:
        self._check(path)
        try:
            self._space.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, directory: str) -> list[str]:
        self._check(directory)
        try:
            return sorted(self._space.directory(directory).names)
        except FileNotFoundError:
            return []

    def make_dirs(self, directory: str) -> None:
        self._check(directory)
        node = self._space.root
        for name in directory.split("/") if directory else ():
            dies = self.begin("make_dir", directory)
            node = self._space.make_directory(node, name)
            self.end(dies)

    def make_dir(self, directory: str) -> None:
        parent, name = self._locate(directory)
        if name in parent.names:
            raise os_error(errno.EEXIST, directory)
        dies = self.begin("make_dir", directory)
        self._space.change(self.medium.sequence, [(parent, name, DirectoryNode())])
        self.end(dies)

    def remove(self, path: str) -> None:
        directory, name = self._locate(path)
        self._unlink(directory, name, _existing_file(directory.names.get(name), path), path)

    def remove_tree(self, directory: str) -> None:
        assert directory, "refusing to remove the data directory itself"
        if self.exists(directory):
            node = self._space.directory(directory)
            self._empty(node, directory)
            self._unlink(*self._space.parent(directory), node, directory)

    def _empty(self, directory: DirectoryNode, path: str) -> None:
        for name in sorted(directory.names):
            node = directory.names[name]
            if isinstance(node, DirectoryNode):
                self._empty(node, f"{path}/{name}")
            self._unlink(directory, name, node, f"{path}/{name}")

    def _unlink(self, directory: DirectoryNode, name: str, node: Node, path: str) -> None:
        dies = self.begin("remove", path)
        self._space.change(self.medium.sequence, [(directory, name, None)])
        self.medium.free(node)
        self.end(dies)

    def rename(self, source: str, target: str) -> None:
        from_directory, from_name = self._locate(source)
        to_directory, to_name = self._locate(target)
        node = from_directory.names.get(from_name)
        replaced = to_directory.names.get(to_name)
        if node is None:
            raise os_error(errno.ENOENT, source)
        _check_replaceable(node, replaced, target)
        if replaced is node:
            return
        dies = self.begin("rename", f"{source} {target}")
        self._space.change(self.medium.sequence, [(from_directory, from_name, None), (to_directory, to_name, node)])
        if replaced is not None:
            self.medium.free(replaced)
        self.end(dies)

    def sync_dir(self, directory: str) -> None:
        self._check(directory)
        node = self._space.directory(directory)
        dies = self.begin("sync_dir", directory)
        if self.medium.strikes("sync_error", self.medium.faults.sync_error):
            raise os_error(errno.EIO, directory)
        self._space.sync_directory(node)
        self.end(dies)

    def lock(self, path: str) -> SimLock:
        directory, name = self._locate(path)
        node = _existing_file(directory.names.get(name) or self._create(directory, name, path), path)
        if node.number in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by this process", path)
        lock = self._locks[node.number] = SimLock(self, node.number)
        return lock

    def free_bytes(self) -> int:
        self.check_alive()
        return max(0, self.medium.capacity_bytes - self.medium.used_bytes)

    # -- the end of a machine ----------------------------------------------------------------------------------------

    def crash_at(self, operation: int) -> None:
        """Plans a crash: the `operation`-th change from now on is the last (1 is the next)."""
        assert operation >= 1, operation
        self._last_operation = self.operations + operation

    def crash(self, choices: CrashChoices | None = None) -> SimDisk:
        """Cuts the power. Returns the disk as the next machine finds it; this object is fenced."""
        self.is_dead = True
        self.medium.statistics.faults["crash"] += 1
        self.medium.crash(choices)
        return SimDisk(medium=self.medium)

    def kill(self) -> SimDisk:
        """Ends the process but not the kernel: nothing is lost, nothing becomes durable. Returns the disk for the next
        process; this object is fenced."""
        self.is_dead = True
        self.medium.statistics.faults["kill"] += 1
        return SimDisk(medium=self.medium)

    # -- for SimFile and SimLock -------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self.is_dead:
            raise Crashed

    def begin(self, kind: str, detail: str, payload: bytes = b"") -> bool:
        """Starts an operation that changes the disk. Returns True if it is the last before a planned crash, which `end`
        must be told."""
        if self.is_dead:
            raise Crashed
        if self.medium.read_only:
            self.medium.statistics.faults["read_only"] += 1
            raise os_error(errno.EROFS, detail)
        self.medium.book(kind, detail, payload)
        self.operations += 1
        if self.operations < self._last_operation:
            return False
        if self.medium.random.randrange(3) == 0:
            self.end(True)
        return True

    def end(self, dies: bool) -> None:
        """Ends an operation. After the last one before a crash it raises `Crashed`, so that the caller does not learn
        that the operation worked."""
        if dies:
            self.is_dead = True
            if self.on_crash is not None:
                self.on_crash()
            raise Crashed

    def release_lock(self, number: int, lock: SimLock) -> None:
        self.check_alive()
        if self._locks.get(number) is lock:
            del self._locks[number]

    def _check(self, path: str) -> None:
        self.check_alive()
        assert "\0" not in path and not path.startswith("/"), f"not a relative path: {path!r}"
        assert ".." not in path.split("/"), f"path leads out of the data directory: {path!r}"

    def _locate(self, path: str) -> tuple[DirectoryNode, str]:
        self._check(path)
        return self._space.parent(path)


def _existing_file(node: Node | None, path: str) -> FileNode:
    if node is None:
        raise os_error(errno.ENOENT, path)
    if isinstance(node, DirectoryNode):
        raise os_error(errno.EISDIR, path)
    return node


def _check_replaceable(node: Node, replaced: Node | None, target: str) -> None:
    """Raises the `OSError` that POSIX demands if a file or directory may not be renamed onto another."""
    if replaced is None:
        return
    if isinstance(node, FileNode) and isinstance(replaced, DirectoryNode):
        raise os_error(errno.EISDIR, target)
    if isinstance(node, DirectoryNode):
        if isinstance(replaced, FileNode):
            raise os_error(errno.ENOTDIR, target)
        if replaced.names and replaced is not node:
            raise os_error(errno.ENOTEMPTY, target)
