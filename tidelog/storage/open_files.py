"""Open file handles, bounded: a broker has many more segments than descriptors.

Least recently used handles are closed. Files with unsynced writes are pinned until their fsync came back: a handle that
saw a write must be the one that sees the error.
"""

from __future__ import annotations

from tidelog.model.ports import File, Files


class OpenFiles:
    """A cache of handles, shared by all logs of a data directory."""

    def __init__(self, files: Files, open_max: int) -> None:
        assert open_max > 0
        self.files = files
        self._open_max = open_max
        self._open: dict[str, File] = {}
        self._pins: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, *, create: bool = False) -> File:
        """The handle of a file, opened if need be. Raises `OSError` as `Files.open` does."""
        file = self._open.pop(path, None)
        if file is None:
            file = self.files.open(path, create=create)
        self._open[path] = file
        if len(self._open) > self._open_max:
            self._evict(path)
        return file

    def pin(self, path: str) -> File:
        """The handle, kept open until `unpin` was called as often."""
        self._pins[path] = self._pins.get(path, 0) + 1
        return self.get(path)

    def unpin(self, path: str) -> None:
        count = self._pins[path] - 1
        if count:
            self._pins[path] = count
        else:
            del self._pins[path]

    def close(self, path: str) -> None:
        """Closes a file that is about to be removed, or whose log is closed."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in list(self._open):
            self.close(path)

    def _evict(self, kept: str) -> None:
        """Closes what is in nobody's hands: pinned files, and the one asked for, may exceed the bound."""
        for path in list(self._open):
            if len(self._open) <= self._open_max:
                return
            if path != kept and path not in self._pins:
                self.close(path)
