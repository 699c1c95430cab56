"""What a log has written and not yet flushed, and the flush that makes it durable.

A flush takes everything that was written so far in one go; what is written while it runs waits for the next. So one
fsync a file serves all that gathered during the one before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.model.ports import File
from tidelog.storage.open_files import OpenFiles


@dataclass(frozen=True, slots=True)
class Flush:
    """One flush: everything appended below `sequence`. `run` may be called on another thread."""

    files: dict[str, File]
    directory: str | None
    sequence: int
    offset: int
    file_bytes: int
    _opened: OpenFiles = field(repr=False)
    afterwards: Callable[[], None] | None = None
    """What else has to be on the disk before the flush counts, once the files are."""

    @property
    def fsyncs(self) -> int:
        return len(self.files) + (self.directory is not None)

    @property
    def syncs(self) -> list[Callable[[], None]]:
        """One fsync for each file, to be done in any order, or at the same time."""
        return [file.sync for file in self.files.values()]

    @property
    def has_rest(self) -> bool:
        """True if something is left to be done once the files are durable."""
        return self.directory is not None or self.afterwards is not None

    def run(self) -> None:
        """Fsyncs each file once, and does the rest. Raises the first `OSError`."""
        for sync in self.syncs:
            sync()
        self.run_rest()

    def run_rest(self) -> None:
        """Fsyncs the directory, if names changed, and does what is asked for afterwards. Raises `OSError`."""
        if self.directory is not None:
            self._opened.files.sync_dir(self.directory)
        if self.afterwards is not None:
            self.afterwards()

    def release(self) -> None:
        """Gives up the hold on the files, whatever became of them."""
        for path in self.files:
            self._opened.unpin(path)


class Unflushed:
    """The files of one log with writes that no flush has taken, each pinned from its first write on."""

    def __init__(self, opened: OpenFiles, directory: str) -> None:
        self._opened = opened
        self._directory = directory
        self._files: dict[str, File] = {}
        self.file_bytes = 0
        self.has_names = False
        """True if a file was created or removed."""

    def __bool__(self) -> bool:
        return bool(self._files)

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def soil(self, path: str, *, create: bool = False) -> File:
        """The handle of a file that is about to be written. Raises `OSError` or `Overloaded` if it cannot be opened."""
        file = self._files.get(path)
        if file is None:
            self._opened.get(path, create=create)
            file = self._files[path] = self._opened.pin(path)
        return file

    def disown(self, path: str) -> None:
        """Forgets about a file's writes: nobody waits for them."""
        if self._files.pop(path, None) is not None:
            self._opened.unpin(path)

    def disown_all(self) -> None:
        for path in list(self._files):
            self.disown(path)

    def take(self, sequence: int, offset: int) -> Flush:
        """Hands everything over to a flush that covers the log up to there."""
        directory = self._directory if self.has_names else None
        flush = Flush(self._files, directory, sequence, offset, self.file_bytes, self._opened)
        self._files, self.file_bytes, self.has_names = {}, 0, False
        return flush
