"""Protocols for all access to the outside world: clock, entropy, files, blocking work, the network between brokers.

Every source of nondeterminism is one of these, and is passed in by the caller. Production adapters live in
`tidelog.adapters` and `tidelog.storage.disk_files`; the simulator's in `tidelog.sim`. A lint check keeps `time`,
`random`, `os`, `open`, `socket` and threads out of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """The clocks: monotonic for timeouts, wall clock for timestamps and retention. Correctness depends on neither."""

    def monotonic_s(self) -> float:
        """Returns seconds since an arbitrary start; never goes back."""

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch; may jump either way."""


class LogLevel(Protocol):
    """The minimum level of messages in the process's log: `debug`, `info`, `warning` or `error`."""

    @property
    def level(self) -> str: ...

    def set(self, level: str) -> None:
        """Sets the minimum level of messages that are logged from now on."""


class Entropy(Protocol):
    """Randomness, for ids and jitter."""

    def token_hex(self, bytes_count: int) -> str:
        """Returns `2 * bytes_count` random hexadecimal digits, for unique ids."""

    def uniform(self, low: float, high: float) -> float:
        """Returns a random number in [low, high), for the jitter of retries."""


class File(Protocol):
    """An open file, read and written at explicit positions only.

    All failures are `OSError` with the errno of POSIX (EIO, ENOSPC, EROFS, ...).
    """

    def pread(self, size: int, position: int) -> bytes:
        """Reads up to `size` bytes from `position`; fewer only where the file ends."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes all buffers, one after the other, from `position` on: visible at once, durable after `sync`.

        If it raises, any prefix of the bytes may be in the file.
        """

    def truncate(self, size: int) -> None:
        """Truncates or extends (with zeros) to `size`; durable after `sync`."""

    def sync(self) -> None:
        """Makes the file's bytes and length durable, but not its name (`Files.sync_dir`). After a failure no later
        success on this file may be trusted."""

    def size(self) -> int: ...

    def close(self) -> None:
        """Closes the file; makes nothing durable. Idempotent."""


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A directory tree on one disk. Paths are relative, `/`-separated, and never contain user input.

    Durability follows POSIX at its strictest: bytes need `File.sync`; a created, renamed or removed *name* needs
    `sync_dir` of its directory.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file for reading and writing. A missing file is created empty if `create`, else raises
        `FileNotFoundError`.

        On a read-only file system existing files can be opened and read, and each write fails.
        """

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Returns the names in a directory, sorted; none if there is no such directory."""

    def make_dirs(self, directory: str) -> None:
        """Creates the directory and its parents, durably, unless they exist."""

    def make_dir(self, directory: str) -> None:
        """Creates a directory in an existing one. Its name is durable after `sync_dir` of the existing one."""

    def remove(self, path: str) -> None:
        """Removes a file. Raises `FileNotFoundError` if there is none."""

    def remove_tree(self, directory: str) -> None:
        """Removes a directory with its content, if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Renames a file, atomically replacing `target`."""

    def sync_dir(self, directory: str) -> None:
        """Makes the names in a directory durable."""

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock, which ends with the process. Raises `BlockingIOError` if another process holds
        it."""

    def free_bytes(self) -> int:
        """Returns the bytes that this process's user may still write."""


class BlockingRunner(Protocol):
    """Runs blocking calls outside the event loop: one at a time and in order, except for the calls of one `run_all`."""

    async def run(self, call: Callable[[], T]) -> T: ...

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs calls in any order or at the same time, and returns their results when all have ended. The calls must
        not raise."""


class FrameConnection(Protocol):
    """A connection that transports whole frames in order, both ways, or breaks. A frame is any number of bytes."""

    frame_bytes_max: int
    """Maximum size in bytes of a received frame. A longer one breaks the connection before any byte of it is stored.
    The receiver may change the bound at any time, for frames that have not begun."""

    @property
    def queued_bytes(self) -> int:
        """Bytes passed to `send` that the operating system has not taken yet: the memory that a slow peer costs."""

    @property
    def remote(self) -> str:
        """Address of the other end, for people: `host:port`."""

    @property
    def own_name(self) -> str | None:
        """This broker's name in the certificate that it presented (`model/broker_names.py`); None without TLS."""

    @property
    def peer_name(self) -> str | None:
        """The other end's name in its verified certificate; empty if a certificate names no broker, None without
        TLS."""

    @property
    def certificates(self) -> tuple[bytes, bytes]:
        """SHA-256 digests of the certificate that this end presented and of the one that it received; both empty
        without TLS. Both ends have the same two in opposite order, unless there is a man in the middle."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Sends the buffers, one after the other, as one frame. Never blocks, never raises, and drops the frame if the
        connection is closed. The buffers must not change until the connection is lost or the frame has arrived."""

    def close(self) -> None:
        """Closes the connection once the queued frames are sent; those that the peer does not take within a timeout are
        lost.

        No frame is delivered from now on; `FrameReceiver.connection_lost` follows. Idempotent.
        """


class FrameReceiver(Protocol):
    """The receiver of the frames of a connection. Its methods must not raise."""

    def frame_received(self, frame: memoryview) -> None:
        """Handles one whole frame. Its buffer belongs to the receiver from now on, which may keep and change it."""

    def connection_lost(self, error: Exception | None) -> None:
        """Handles the end of the connection. Called exactly once, whichever side ended it, and never from inside `send`
        or `close`.

        `error` is None if this or the other side closed the connection in order.
        """


class ClientConnection(FrameConnection, Protocol):
    """A connection opened by a client."""

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The client's verified certificate, as `ssl` parses it; None if it presented none."""

    @property
    def is_clogged(self) -> bool:
        """True while the client does not take the answers that were sent; nothing more is read from it meanwhile."""

    def hold(self) -> None:
        """Stops reading, and delivering frames, until `go_on`. The client has to wait."""

    def go_on(self) -> None:
        """Ends `hold`. Frames that have already arrived are delivered at once."""


class ClientReceiver(FrameReceiver, Protocol):
    """The receiver of a client's frames. Its methods must not raise."""

    def may_begin(self, length: int, begun: bytes) -> bool:
        """Returns True if a large frame of `length` bytes may be read now; `begun` is its beginning, of at least two
        bytes. To postpone it, the method calls `hold` and returns False; it is called again for the frame after
        `go_on`."""

    def unclogged(self) -> None:
        """Called when the client takes its answers again."""

    def broken_off(self, why: str) -> None:
        """Called when the connection is closed because what arrived is no valid frame; `why` is a text for people."""


class NetworkListener(Protocol):
    """An address at which connections are accepted."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the listener; if port 0 was requested, the port that the system chose."""

    async def close(self) -> None:
        """Stops accepting connections; those accepted stay open. Idempotent."""


class Network(Protocol):
    """The network as one broker sees it. `receiver` is a function that creates the receiver of a new connection, before
    its first frame."""

    async def connect(
        self, host: str, port: int, receiver: Callable[[FrameConnection], FrameReceiver], *, timeout_s: float
    ) -> FrameConnection:
        """Opens a connection within `timeout_s` seconds.

        Raises `ConnectionRefusedError` if nothing listens at the address, `TimeoutError`, or another `OSError`.
        """

    async def listen(
        self, host: str, port: int, receiver: Callable[[FrameConnection], FrameReceiver]
    ) -> NetworkListener:
        """Listens for connections; port 0 is any free port. Raises `OSError` if the address cannot be used."""
