"""Deleting the oldest records of a log: everything below an offset (Kafka's DeleteRecords, and retention).

A deletion is written as a catalog row first; files are removed only when that row is durable, so that after a crash the
next opening finds the order to delete, and does not take the missing files for damage.
"""

from __future__ import annotations

from contextlib import suppress

from tidelog.model.errors import DiskFull
from tidelog.storage.appender import Appender
from tidelog.storage.flush import Flusher
from tidelog.storage.log_state import LogState
from tidelog.storage.rows import Kind
from tidelog.storage.segment import Segment
from tidelog.storage.truncation import remove_segment


class Deleter:
    """Deletes the records of one log below an offset."""

    def __init__(self, state: LogState, appender: Appender, flusher: Flusher) -> None:
        self._state = state
        self._appender = appender
        self._flusher = flusher
        self._opened = state.files.opened
        self.doomed: list[tuple[int, Segment]] = []
        """Deleted segments whose files are still there, each with the row sequence below which the catalog has to be
        durable before they are removed."""

    def delete_records(self, offset: int) -> None:
        """Deletes everything below `offset`. Files are removed after the next flush. Does nothing if the log starts at
        or behind `offset`.

        Raises `OffsetOutOfRange` if `offset` is beyond what is durable, `DiskFull`, `Overloaded`, `LogOffline`, or
        `InternalError` (the outcome is unknown).
        """
        state = self._state
        state.require_online()
        if offset <= state.log_start_offset:
            return
        # Beyond what is durable, a power cut could keep the row and lose batches before it: the log would start behind
        # its end.
        state.require_in_range(offset, state.durable_offset)
        try:
            self._note(offset)
        except DiskFull:
            # A full disk has no room for the very row that would empty it: the reserve gives it 64 KiB.
            if not self._opened.reserve.spend():
                raise
            self._note(offset)
        while len(state.segments) > 1 and state.segments[1].base_offset <= offset:
            # The tail is behind the DELETE_RECORDS row now, so the files wait for that row. If they went first, a power
            # cut could take the row, and the loader would call the hole damage.
            self.doomed.append((state.tail.sequence, state.segments.pop(0)))
        while len(state.lineage) > 1 and state.lineage[1][1] <= offset:
            del state.lineage[0]  # the epoch in force at the start stays
        state.damage.clip(offset, state.log_end_offset)

    def _note(self, offset: int) -> None:
        if self._state.is_behind_a_truncation:
            # The row needs a sequence that no dropped row had. The segment keeps its age, as there is no clock here.
            self._appender.roll(self._state.rolled_ms)
        self._appender.note_row(Kind.DELETE_RECORDS, offset)

    def remove_doomed(self) -> None:
        """Removes the files of deleted segments whose deletion is durable. Those that the disk refuses to remove are
        tried again after the next flush, or at the next opening."""
        if not self.doomed:
            return
        ready = [doomed for doomed in self.doomed if doomed[0] <= self._state.tail.durable]
        with suppress(OSError):
            for doomed in ready:
                remove_segment(self._opened, doomed[1])
                self.doomed.remove(doomed)
                # Removed names are durable with the next flush. One that comes back is below the log's start, and goes
                # when the log is opened.
                self._flusher.has_names = True
        if ready:
            self._opened.reserve.fill()

    def close_files(self) -> None:
        """Closes the files of all segments, also of those that are deleted and not removed yet."""
        for segment in [*self._state.segments, *(doomed for _, doomed in self.doomed)]:
            self._opened.close(segment.log_path)
            self._opened.close(segment.catalog_path)
