"""An open file of a simulated disk (`File`)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

from tidelog.model.ports import Buffer
from tidelog.sim.kit.faults import NO_FAULTS
from tidelog.sim.kit.inode import SECTOR_BYTES, FileNode
from tidelog.sim.kit.medium import Medium
from tidelog.sim.kit.namespace import os_error


class Incarnation(Protocol):
    """Incarnation of a simulated disk: the disk as one running machine sees it."""

    @property
    def medium(self) -> Medium: ...

    def check_alive(self) -> None:
        """Raises `Crashed` once the incarnation is over."""

    def begin(self, kind: str, detail: str, payload: bytes = b"") -> bool:
        """Starts an operation that changes the disk. Returns True if it is the last before a planned crash, which `end`
        must be told."""

    def end(self, dies: bool) -> None:
        """Ends an operation. Raises `Crashed` after the last one before a planned crash."""

    def release_lock(self, number: int, lock: SimLock) -> None: ...


class SimFile:
    """Open handle of a file (`File`). It becomes unusable with the incarnation of the disk that opened it."""

    __slots__ = ("_disk", "_medium", "_node", "_path")

    def __init__(self, disk: Incarnation, node: FileNode, path: str) -> None:
        self._disk = disk
        self._medium = disk.medium
        self._node: FileNode | None = node
        self._path = path

    def _open_node(self) -> FileNode:
        self._disk.check_alive()
        if self._node is None:
            raise os_error(errno.EBADF, self._path)
        return self._node

    def pread(self, size: int, position: int) -> bytes:
        node = self._open_node()
        if size < 0 or position < 0:
            raise os_error(errno.EINVAL, self._path)
        medium = self._medium
        medium.statistics.operations["read"] += 1
        if medium.faults is not NO_FAULTS and medium.strikes("read_error", medium.faults.read_error):
            raise os_error(errno.EIO, self._path)
        if node.unreadable and node.is_unreadable(position, min(size, len(node.data) - position)):
            medium.statistics.faults["unreadable"] += 1
            raise os_error(errno.EIO, self._path)
        return bytes(node.data[position : position + size])

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        node = self._open_node()
        if position < 0:
            raise os_error(errno.EINVAL, self._path)
        payload = b"".join(buffers)
        dies = self._disk.begin("write", f"{self._path} {position}", payload)
        if dies and self._medium.random.randrange(2):
            payload = payload[: self._medium.random.randrange(len(payload) + 1)]
        error, payload = self._curb(node, payload, position)
        if payload:
            self._write(node, payload, position)
        self._disk.end(dies)
        if error:
            raise os_error(error, self._path)

    def _curb(self, node: FileNode, payload: bytes, position: int) -> tuple[int, bytes]:
        """Returns the errno that this write fails with (0: none), and the bytes that are written before."""
        medium = self._medium
        if medium.faults is not NO_FAULTS and medium.strikes("write_error", medium.faults.write_error):
            return errno.EIO, payload[: medium.random.randrange(len(payload) + 1)]
        lacking = position + len(payload) - len(node.data) - (medium.capacity_bytes - medium.used_bytes)
        if lacking > 0 and position + len(payload) > len(node.data):
            medium.statistics.faults["disk_full"] += 1
            return errno.ENOSPC, payload[: max(0, len(payload) - lacking)]
        return 0, payload

    def _write(self, node: FileNode, payload: bytes, position: int) -> None:
        medium = self._medium
        medium.used_bytes += max(0, position + len(payload) - len(node.data))
        medium.dirty[node.number] = node
        node.write(medium.sequence, position, payload)
        if medium.faults is NO_FAULTS:
            return
        if medium.strikes("lost_write", medium.faults.lost_write):
            node.pending.pop()
        elif medium.strikes("misdirected_write", medium.faults.misdirected_write):
            node.pending.pop()
            victim = medium.random.choice([*medium.walk().values(), node])
            sector = medium.random.randrange(len(victim.durable) // SECTOR_BYTES + 1)
            medium.dirty[victim.number] = victim
            victim.pending.append((medium.sequence, sector * SECTOR_BYTES, payload))

    def truncate(self, size: int) -> None:
        node = self._open_node()
        if size < 0:
            raise os_error(errno.EINVAL, self._path)
        dies = self._disk.begin("truncate", f"{self._path} {size}")
        medium = self._medium
        medium.used_bytes += size - len(node.data)
        medium.dirty[node.number] = node
        node.truncate(medium.sequence, size)
        self._disk.end(dies)

    def sync(self) -> None:
        node = self._open_node()
        medium = self._medium
        dies = self._disk.begin("sync", self._path)
        if medium.faults is not NO_FAULTS:
            if medium.strikes("sync_error", medium.faults.sync_error):
                medium.fail_sync(node)
                raise os_error(errno.EIO, self._path)
            if medium.strikes("lying_sync", medium.faults.lying_sync):
                self._disk.end(dies)
                return
        node.sync()
        medium.dirty.pop(node.number, None)
        self._disk.end(dies)

    def size(self) -> int:
        return len(self._open_node().data)

    def close(self) -> None:
        self._disk.check_alive()
        self._node = None


class SimLock:
    """Held file lock (`Lock`); it becomes unusable with the incarnation of its disk."""

    def __init__(self, disk: Incarnation, number: int) -> None:
        self._disk = disk
        self._number = number

    def release(self) -> None:
        self._disk.release_lock(self._number, self)
