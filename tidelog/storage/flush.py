"""The writes of a log that are not yet flushed, and the flush that makes them durable.

A flush covers everything that was written before it began; later writes wait for the next one. So one fsync of a file
serves all writes that gathered during the fsync before it, and the event loop never blocks:
1. `begin` returns a `Flush` of what is to be made durable.
2. `Flush.run` does nothing but fsyncs, on the disk threads, while further appends go on.
3. `end` moves `durable_offset` up to what the flush covered, or takes the log offline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.model.ports import File
from tidelog.storage.log_state import LogState
from tidelog.storage.open_files import OpenFiles


@dataclass(frozen=True, slots=True)
class Flush:
    """The fsyncs that make every catalog row below `sequence`, and their batches, durable. `run` may be called on
    another thread."""

    files: dict[str, File]
    directory: str | None
    sequence: int
    offset: int
    file_bytes: int
    _opened: OpenFiles = field(repr=False)
    afterwards: Callable[[], None] | None = None
    """Call that is made when the files are durable, and that has to succeed before the flush counts as done."""

    @property
    def fsyncs(self) -> int:
        return len(self.files) + (self.directory is not None)

    @property
    def syncs(self) -> list[Callable[[], None]]:
        """Returns one fsync call for each file; they may run in any order, or at the same time."""
        return [file.sync for file in self.files.values()]

    @property
    def has_rest(self) -> bool:
        """Returns True if `run_rest` has something to do after the files' fsyncs."""
        return self.directory is not None or self.afterwards is not None

    def run(self) -> None:
        """Fsyncs each file once, then runs `run_rest`. Raises the first `OSError`."""
        for sync in self.syncs:
            sync()
        self.run_rest()

    def run_rest(self) -> None:
        """Fsyncs the directory if files were created or removed in it, and calls `afterwards`. Raises `OSError`."""
        if self.directory is not None:
            self._opened.files.sync_dir(self.directory)
        if self.afterwards is not None:
            # Last, for it notes that the files are durable, which is true only now.
            self.afterwards()

    def release(self) -> None:
        """Allows the files that were kept open for this flush to be closed again, after success or failure."""
        for path in self.files:
            self._opened.unpin(path)


class Flusher:
    """The files of one log that were written since the last flush began, each kept open (pinned) from its first write
    on."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._opened = state.files.opened
        self._files: dict[str, File] = {}
        self.file_bytes = 0
        self.has_names = False
        """True if a file was created or removed since the last flush began."""

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def soil(self, path: str, *, create: bool = False) -> File:
        """Returns the handle of a file, and includes the file in the next flush. Call before a write. Raises `OSError`
        or `Overloaded` if it cannot be opened."""
        file = self._files.get(path)
        if file is None:
            self._opened.get(path, create=create)
            # Pinned until the fsync came back. The handle that saw the write must see the error: Linux tells a
            # write-back error to descriptors that were open then, and a later one may not be told.
            file = self._files[path] = self._opened.pin(path)
        return file

    def disown(self, path: str) -> None:
        """Removes a file from the next flush, since nobody waits for its writes, and unpins it."""
        if self._files.pop(path, None) is not None:
            self._opened.unpin(path)

    def disown_all(self) -> None:
        for path in list(self._files):
            self.disown(path)

    @property
    def is_dirty(self) -> bool:
        """Returns True if a write waits for a flush, and the log is online."""
        return bool(self._files) and self._state.offline_reason is None

    def begin(self) -> Flush:
        """Returns the flush of everything written so far. `end` has to be called before the next one begins."""
        assert self._files
        assert self._state.offline_reason is None
        tail = self._state.tail
        directory = self._state.directory if self.has_names else None
        # The tail is read before the fsyncs begin, so all below it is written, and what is appended meanwhile is not
        # covered.
        flush = Flush(self._files, directory, tail.sequence, tail.offset, self.file_bytes, self._opened)
        # A file that is written while it is being synced is dirty again, for the next flush: this fsync may or may not
        # cover it.
        self._files, self.file_bytes, self.has_names = {}, 0, False
        return flush

    def end(self, flush: Flush, error: OSError | None) -> None:
        """Ends a flush: on success `durable_offset` covers what it flushed, on an error the log is taken offline."""
        flush.release()
        state = self._state
        # A failed fsync is final. The kernel marks the lost pages clean, and a second fsync would lie.
        if error is not None:
            state.take_offline(f"fsync failed: {error}")
        # The log may have gone offline during this flush, by a write that failed and whose undoing failed, too. These
        # fsyncs may have said yes to pages that are lost, so they count for nothing.
        if state.offline_reason is not None:
            return
        # Flushes end in the order in which they began, or a mark would fall.
        assert flush.sequence >= state.tail.durable
        state.tail = state.tail._replace(durable=flush.sequence)
        state.durable_offset = flush.offset

    def flush(self) -> None:
        """Begins a flush, runs it and ends it. Blocking; no other flush may be under way."""
        flush = self.begin()
        self.end(flush, attempt(flush.run))


def attempt(sync: Callable[[], None]) -> OSError | None:
    """Makes an fsync call, and returns its `OSError`, or None."""
    try:
        sync()
    except OSError as error:
        return error
    return None
