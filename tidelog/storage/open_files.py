"""Open file handles, bounded: a broker has many more segments than descriptors.

Least recently used handles are closed. Files with unflushed writes are pinned from the write until their fsync came
back: the handle that saw a write must be the one that sees the error, because a new one may not be told.

A process that runs short of descriptors or memory learns nothing about a file. That is `Overloaded`, an error of the
moment; it must never be taken for damage, nor for a missing file.
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
"""Handles of a log that is being opened: those of its last segment, and what is looked at on the way."""
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class OpenFiles:
    """A cache of handles, shared by all logs of a data directory.

    Pinned handles stand apart, so that finding one to close never looks at them: it costs the same whatever is open.

    The event loop's, but for one thing: the disk thread may `get` what is pinned, which takes nothing out of the cache.
    A log is opened on the disk thread with a cache of its own (`apart`), which becomes one with this one afterwards.
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
        """Returns a small cache of its own."""
        return OpenFiles(self.files, APART_MAX, self.reserve)

    def join(self, other: OpenFiles) -> None:
        """Shares all with `other` from now on, which gets what is pinned here; the rest is closed, and opened again
        when it is needed: many logs are opened that nobody uses."""
        for path in list(self._idle):
            self.close(path)
        other._pinned |= self._pinned
        other._pins |= self._pins
        self._idle, self._pinned, self._pins = other._idle, other._pinned, other._pins
        self._open_max = other._open_max

    def __len__(self) -> int:
        return len(self._idle) + len(self._pinned)

    def get(self, path: str, *, create: bool = False) -> File:
        """Returns the handle of a file, opened if need be. Raises `OSError` as `Files.open` does, or `Overloaded`."""
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
        """Returns the handle of a file, and keeps it open until `unpin` was called as often."""
        file = self.get(path)
        if path not in self._pinned:
            # Out of the order of use: a handle whose write is not flushed must not be closed, or the only report of a
            # lost page goes with it.
            self._pinned[path] = self._idle.pop(path)
        self._pins[path] = self._pins.get(path, 0) + 1
        return file

    @contextmanager
    def pinned(self, *paths: str) -> Iterator[None]:
        """Keeps handles open for as long as a blocking call on another thread works with them."""
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
        """Pins files until what is returned is called, whatever becomes of them meanwhile: one whose log is truncated
        may be closed, and even be another by then. Raises as `get`."""
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
        """Closes a file that is about to be removed, or whose log is closed, pinned or not."""
        # Whoever removes a file has no use for its unflushed writes: pins do not hold it.
        self._pins.pop(path, None)
        file = self._idle.pop(path, None) or self._pinned.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in [*self._idle, *self._pinned]:
            self.close(path)

    def _evict(self) -> None:
        """Makes room for one more, if there is a handle that nobody pinned."""
        # If all are pinned, the bound gives way: the file that is asked for must not be the one to be closed.
        while self._idle and len(self) >= self._open_max:
            _, file = self._idle.popitem(last=False)
            file.close()


def open_file(files: Files, path: str, *, create: bool = False) -> File:
    """Opens a file as `Files.open` does, and tells a shortage apart from what is wrong with the file. Raises `OSError`,
    or `Overloaded`."""
    try:
        return files.open(path, create=create)
    except OSError as error:
        # A shortage says nothing about the file. Taken for damage, it would take good logs offline as soon as a process
        # has many open.
        if error.errno not in SHORTAGE:
            raise
        raise Overloaded(f"{path} cannot be opened now ({error.strerror}); raise the limit of open files") from error
