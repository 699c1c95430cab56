"""The doors to the outside world, as protocols: clock, entropy, files, blocking work.

Every source of nondeterminism is one of these, given by the caller. Production adapters live in
`tidelog.adapters` and `tidelog.storage.disk_files`; the simulator's in `tidelog.sim`. A lint check keeps
`time`, `random`, `os`, `open`, `socket` and threads out of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Time, for timeouts (monotonic) and for timestamps and retention (wall); never for correctness."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""
        ...


class Entropy(Protocol):
    """Randomness, for ids and jitter."""

    def token_hex(self, bytes_count: int) -> str:
        """`2 * bytes_count` hexadecimal digits that nobody else will draw."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high), for spreading retries."""
        ...


class File(Protocol):
    """An open file, read and written by position only: nobody shares a cursor.

    All failures are `OSError` with the errno of POSIX (EIO, ENOSPC, EROFS, ...).
    """

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes all buffers, one after the other, from `position` on: visible at once, durable after `sync`.

        If it raises, any prefix of the bytes may be in the file.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cuts or extends (with zeros) to `size`; durable after `sync`."""
        ...

    def sync(self) -> None:
        """Makes the file's bytes and length durable, not its name (`Files.sync_dir`). A failure is final: whoever
        sees it must never believe a later success on this file."""
        ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Gives up the handle; makes nothing durable. Idempotent."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A directory tree on one disk. Paths are relative, `/`-separated, and never contain user input.

    Durability follows POSIX at its strictest: bytes need `File.sync`; a created, renamed or removed *name* needs
    `sync_dir` of its directory.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing. Missing: created empty if `create`, else `FileNotFoundError`.

        On a read-only file system, what exists can still be read, and each write fails.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        ...

    def make_dirs(self, directory: str) -> None:
        """Creates the directory and its parents, durably. Fine if it exists."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file. `FileNotFoundError` if there is none."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Removes a directory with all in it; fine if there is none."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replaces `target`."""
        ...

    def sync_dir(self, directory: str) -> None:
        """Makes the names in a directory durable."""
        ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock that dies with the process; `BlockingIOError` if somebody else holds it."""
        ...

    def free_bytes(self) -> int:
        """Space left for this process's user."""
        ...


class BlockingRunner(Protocol):
    """Runs a blocking call away from the event loop, one at a time and in order."""

    async def run(self, call: Callable[[], T]) -> T: ...
