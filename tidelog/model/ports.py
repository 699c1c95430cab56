"""The doors to the outside world, as protocols: clock, entropy, files, blocking work, the network between brokers.

Every source of nondeterminism is one of these, given by the caller. Production adapters live in
`tidelog.adapters` and `tidelog.storage.disk_files`; the simulator's in `tidelog.sim`. A lint check keeps
`time`, `random`, `os`, `open`, `socket` and threads out of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

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


class LogLevel(Protocol):
    """From which level on the process logs: `debug`, `info`, `warning` or `error`."""

    @property
    def level(self) -> str: ...

    def set(self, level: str) -> None:
        """Logs what is of this level or graver from now on."""
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
        """Truncates or extends (with zeros) to `size`; durable after `sync`."""
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

    def make_dir(self, directory: str) -> None:
        """Creates one directory in another that is there; its name is durable after `sync_dir` of that one."""
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
    """Runs blocking calls away from the event loop, one at a time and in order, but for what is asked for together."""

    async def run(self, call: Callable[[], T]) -> T: ...

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs calls that must not raise, in any order or at the same time; ends with the last of them."""
        ...


class FrameConnection(Protocol):
    """A connection that carries whole frames, in order, both ways; or it breaks. A frame is any number of bytes."""

    frame_bytes_max: int
    """A longer frame coming in breaks the connection before a byte of it is stored. Whoever receives may change it at
    any time, for the frames that have not begun."""

    @property
    def queued_bytes(self) -> int:
        """Bytes handed to `send` that the system has not taken yet: what a slow peer costs in memory."""
        ...

    @property
    def remote(self) -> str:
        """Returns the address of the other end, for people: `host:port`."""
        ...

    @property
    def own_name(self) -> str | None:
        """This broker's name in the certificate that it showed (`model/broker_names.py`); None without TLS."""
        ...

    @property
    def peer_name(self) -> str | None:
        """The other end's name in its certificate, which was verified; empty if a certificate names no broker, None
        without TLS."""
        ...

    @property
    def certificates(self) -> tuple[bytes, bytes]:
        """The SHA-256 of the certificate that this end showed, and of the one that it was shown; both empty without
        TLS. Two ends that nobody stands between have the same two, the other way round."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Sends the buffers, one after the other, as one frame. Never blocks, never raises, and drops the frame if the
        connection is closed. The buffers must not change until the connection is lost or the frame has arrived."""
        ...

    def close(self) -> None:
        """Lets go of the connection after what was sent; what the peer does not take in good time is lost.

        No frame is received from now on; `FrameReceiver.connection_lost` follows. Idempotent.
        """
        ...


class FrameReceiver(Protocol):
    """The receiver of the frames that come in on a connection. Its methods must not raise."""

    def frame_received(self, frame: memoryview) -> None:
        """Takes one whole frame. Its bytes belong to the receiver from now on, who may keep and change them."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """Takes the end of the connection: exactly once, whoever ended it, and never from inside `send` or `close`.

        `error` is None if this or the other side closed the connection in order.
        """
        ...


class ClientConnection(FrameConnection, Protocol):
    """A connection that a client has opened."""

    @property
    def certificate(self) -> dict[str, Any] | None:
        """Returns the client's certificate, verified, as `ssl` parses it; None if it showed none."""
        ...

    @property
    def is_clogged(self) -> bool:
        """True while the client does not take what was sent: no more of it is read meanwhile."""
        ...

    def hold(self) -> None:
        """Receives no frame before `go_on`, and reads nothing: the client waits."""
        ...

    def go_on(self) -> None:
        """Ends `hold`. Frames that have come already are received at once."""
        ...


class ClientReceiver(FrameReceiver, Protocol):
    """Hears what a client says. Must not raise."""

    def may_begin(self, length: int, begun: bytes) -> bool:
        """A large frame begins, and these bytes of it are there, at least two: returns False after `hold`, if it is not
        to be read before `go_on`; then it is announced again."""
        ...

    def unclogged(self) -> None:
        """The client takes what was sent again."""
        ...

    def broken_off(self, why: str) -> None:
        """The connection is closed, since no frame came of it; in words for people."""
        ...


class NetworkListener(Protocol):
    """An address at which connections are taken."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, the port as the system chose it if it was 0."""
        ...

    async def close(self) -> None:
        """Takes no more connections; those taken stay. Idempotent."""
        ...


class Network(Protocol):
    """The network as one broker sees it. `receiver` makes who hears a new connection, before its first frame."""

    async def connect(
        self, host: str, port: int, receiver: Callable[[FrameConnection], FrameReceiver], *, timeout_s: float
    ) -> FrameConnection:
        """Opens a connection.

        Raises `ConnectionRefusedError` if the machine says that nobody listens there, `TimeoutError`, or another
        `OSError`.
        """
        ...

    async def listen(
        self, host: str, port: int, receiver: Callable[[FrameConnection], FrameReceiver]
    ) -> NetworkListener:
        """Takes connections; port 0 is any free one. Raises `OSError` if the address cannot be had."""
        ...
