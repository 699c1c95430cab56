"""A bounded cache of open file handles: a broker has many more segments than file descriptors.

The least recently used handles are closed. Files with unflushed writes are pinned (not closed) from the write until
their fsync returned: the handle that saw a write must be the one that gets the error, because a newer handle may not
get it.

A process that runs short of descriptors or memory learns nothing about a file. That is `Overloaded`, a temporary error;
it must never be taken for damage, nor for a missing file.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tidelog.model.errors import Overloaded
from tidelog.model.ports import File, Files
from tidelog.storage.reserve import Reserve

APART_MAX = 8
"""Size of the handle cache while a log is being opened: enough for its last segment."""
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class OpenFiles:
    """A cache of file handles, shared by all logs of a data directory.

    Pinned handles are kept apart, so that choosing one to close costs the same, however many are pinned. Used on the
    event loop, with one exception: the disk thread may `get` pinned files, which does not change the cache. A log is
    opened on the disk thread with a cache of its own (`apart`), which is merged into this one afterwards (`join`).
    """

    def __init__(self, files: Files, open_max: int, reserve: Reserve | None = None) -> None:
        assert open_max > 0
        self.files = files
        self.reserve = reserve or Reserve(files)
        self._open_max = open_max
        self._idle: OrderedDict[str, File] = OrderedDict()
        """The handles that are not pinned, least recently used first."""
        self._pinned: dict[str, File] = {}
        self._pins: dict[str, int] = {}

    def apart(self) -> OpenFiles:
        """Returns a small separate cache, for opening a log on another thread."""
        return OpenFiles(self.files, APART_MAX, self.reserve)

    def join(self, shared: OpenFiles) -> None:
        """Merges this cache into `shared`: pinned handles move there, idle ones are closed. From then on both share
        their handles."""
        for path in list(self._idle):
            self.close(path)
        shared._pinned |= self._pinned
        shared._pins |= self._pins
        self._idle, self._pinned, self._pins = shared._idle, shared._pinned, shared._pins
        self._open_max = shared._open_max

    def __len__(self) -> int:
        return len(self._idle) + len(self._pinned)

    def get(self, path: str, *, create: bool = False) -> File:
        """Returns the handle of a file, which is opened if it is not open. Raises `OSError` if it cannot be opened,
        `Overloaded` if descriptors or memory are short."""
        # Before `_idle`, and without touching it: the disk thread calls this for pinned files while the event loop goes
        # on.
        file = self._pinned.get(path)
        if file is not None:
            return file
        file = self._idle.get(path)
        if file is not None:
            self._idle.move_to_end(path)
            return file
        # Before the opening, so that a process at its limit of descriptors has one for it.
        self._evict()
        file = self._idle[path] = open_file(self.files, path, create=create)
        return file

    def pin(self, path: str) -> File:
        """Returns the handle of a file, and keeps it open until `unpin` has been called as often as `pin`."""
        file = self.get(path)
        if path not in self._pinned:
            # Out of the order of use: a handle whose write is not flushed must not be closed, or the only report of a
            # lost page goes with it.
            self._pinned[path] = self._idle.pop(path)
        self._pins[path] = self._pins.get(path, 0) + 1
        return file

    @contextmanager
    def pinned(self, *paths: str) -> Iterator[None]:
        """Keeps the files open while a blocking call on another thread uses them."""
        held: list[str] = []
        try:
            for path in paths:
                self.pin(path)
                held.append(path)
            yield
        finally:
            for path in held:
                self.unpin(path)

    def unpin(self, path: str) -> None:
        count = self._pins[path] - 1
        if count:
            self._pins[path] = count
        else:
            del self._pins[path]
            self._idle[path] = self._pinned.pop(path)

    def hold(self, paths: Iterable[str]) -> Callable[[], None]:
        """Pins files until the returned function is called. That function does nothing for a file that was closed
        meanwhile, as by a truncation of its log. Raises `OSError` if a file cannot be opened, `Overloaded` if
        descriptors or memory are short."""
        held: list[tuple[str, File]] = []

        def release() -> None:
            for path, file in held:
                # By the handle, not by the path: the file may have been removed meanwhile, and another one made under
                # the same name. Unpinning that one would let it be closed before its flush.
                if self._pinned.get(path) is file:
                    self.unpin(path)

        try:
            held.extend((path, self.pin(path)) for path in paths)
        except (OSError, Overloaded):
            release()
            raise
        return release

    def close(self, path: str) -> None:
        """Closes a file, pinned or not, before it is removed, or when its log is closed."""
        # Whoever removes a file has no use for its unflushed writes: pins do not hold it.
        self._pins.pop(path, None)
        file = self._idle.pop(path, None) or self._pinned.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in [*self._idle, *self._pinned]:
            self.close(path)

    def _evict(self) -> None:
        """Closes the least recently used handle that is not pinned, if the cache is full."""
        # If all are pinned, the bound gives way: the file that is asked for must not be the one to be closed.
        while self._idle and len(self) >= self._open_max:
            _, file = self._idle.popitem(last=False)
            file.close()


def open_file(files: Files, path: str, *, create: bool = False) -> File:
    """Opens a file as `Files.open` does. Raises `Overloaded` if descriptors or memory are short, which says nothing
    about the file, and `OSError` otherwise."""
    try:
        return files.open(path, create=create)
    except OSError as error:
        # A shortage says nothing about the file. Taken for damage, it would take good logs offline as soon as a process
        # has many open.
        if error.errno not in SHORTAGE:
            raise
        raise Overloaded(f"{path} cannot be opened now ({error.strerror}); raise the limit of open files") from error
