"""The writes of a log that are not yet flushed, and the flush that makes them durable.

A flush takes everything that was written so far in one go; what is written while it runs waits for the next. So one
fsync a file serves all that gathered during the one before it, and the event loop never blocks:

1. `begin` hands out what is to be made durable.
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
    """A flush covers everything appended below `sequence`. `run` may be called on another thread."""

    files: dict[str, File]
    directory: str | None
    sequence: int
    offset: int
    file_bytes: int
    _opened: OpenFiles = field(repr=False)
    afterwards: Callable[[], None] | None = None
    """Makes durable, once the files are, the rest that has to be on the disk before the flush counts."""

    @property
    def fsyncs(self) -> int:
        return len(self.files) + (self.directory is not None)

    @property
    def syncs(self) -> list[Callable[[], None]]:
        """Returns one fsync for each file, to be done in any order, or at the same time."""
        return [file.sync for file in self.files.values()]

    @property
    def has_rest(self) -> bool:
        """Returns True if something is left to be done once the files are durable."""
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
            # Last, for it notes that the files are durable, which is true only now.
            self.afterwards()

    def release(self) -> None:
        """Gives up the hold on the files, whatever became of them."""
        for path in self.files:
            self._opened.unpin(path)


class Flusher:
    """The files of one log with writes that no flush has taken, each pinned from its first write on."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._opened = state.files.opened
        self._files: dict[str, File] = {}
        self.file_bytes = 0
        self.has_names = False
        """True if a file was created or removed."""

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def soil(self, path: str, *, create: bool = False) -> File:
        """Returns the handle of a file that is about to be written. Raises `OSError` or `Overloaded` if it cannot be
        opened."""
        file = self._files.get(path)
        if file is None:
            self._opened.get(path, create=create)
            # Pinned until the fsync came back. The handle that saw the write must see the error: Linux tells a
            # write-back error to descriptors that were open then, and a later one may not be told.
            file = self._files[path] = self._opened.pin(path)
        return file

    def disown(self, path: str) -> None:
        """Forgets about a file's writes: nobody waits for them."""
        if self._files.pop(path, None) is not None:
            self._opened.unpin(path)

    def disown_all(self) -> None:
        for path in list(self._files):
            self.disown(path)

    @property
    def is_dirty(self) -> bool:
        """Returns True if something waits for a flush."""
        return bool(self._files) and self._state.offline_reason is None

    def begin(self) -> Flush:
        """Takes all that was written so far. One flush at a time: `end` before the next."""
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
        """Takes in a flush's outcome; on success `durable_offset` covers it."""
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
        """Flushes in one go. Blocking; no other may be under way."""
        flush = self.begin()
        try:
            flush.run()
        except OSError as error:
            self.end(flush, error)
        else:
            self.end(flush, None)
