"""A partition's log: appended at the end, read anywhere, shortened at either end, repaired in its middle.

Its parts share one `LogState`, and each can be read by itself: `LogReader`, `Appender`, `Flusher`, `Deleter`,
`Truncator`, `Scrubber`, `Mender`. `PartitionLog` creates them and offers their methods as its own.
"""

from __future__ import annotations

from contextlib import suppress

from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.storage.appender import Appender
from tidelog.storage.deleter import Deleter
from tidelog.storage.flush import Flush, Flusher, attempt
from tidelog.storage.log_reader import LogReader
from tidelog.storage.log_state import FoundLog, LogFiles, LogSettings, LogState
from tidelog.storage.mender import Mender
from tidelog.storage.scrub import Scrubber
from tidelog.storage.truncator import Truncator

__all__ = ["ROWS_LEFT_MAX", "LogSettings", "PartitionLog"]

ROWS_LEFT_MAX = 4_096
"""A clean stop rolls a segment with more rows in its catalog (index file), so that the next opening has little to
read."""


class PartitionLog(LogState):
    """The log of one replica of one partition. `tidelog.storage.loader.load_log` makes it.

    Single-threaded, but for `Flush.run`, `Piece.run` (scrubbing) and `store_metainfo`.
    """

    def __init__(
        self, identity: PartitionId, files: LogFiles, settings: LogSettings, loaded: FoundLog, now_ms: int
    ) -> None:
        super().__init__(identity, files, settings, loaded, now_ms)
        self.reader = reader = LogReader(self)
        self._flusher = flusher = Flusher(self)
        self._appender = appender = Appender(self, flusher)
        self._deleter = deleter = Deleter(self, appender, flusher)
        truncator = Truncator(self, reader, appender, flusher, deleter)
        mender = Mender(self, reader, appender)
        self.scrubber = Scrubber(self, reader)
        # The parts' methods are the log's own: bound here, so that no call costs two frames.
        self.parts, self.entries, self.extent, self.read = reader.parts, reader.entries, reader.extent, reader.read
        self.has_bytes, self.batch_since = reader.has_bytes, reader.batch_since
        self.read_passing, self.has_bytes_passing = reader.read_passing, reader.has_bytes_passing
        self.read_filling, self.fillers = reader.read_filling, reader.fillers
        self.producers_before = reader.producers_before
        self.append, self.roll, self.mark, self.vouch = appender.append, appender.roll, appender.mark, appender.vouch
        self.append_lost, self.begin_anew = appender.append_lost, appender.begin_anew
        self.begin_flush, self.hold = flusher.begin, files.hold
        self.delete_records = deleter.delete_records
        self.truncate_to, self.start_over = truncator.truncate_to, truncator.start_over
        self.look_again, self.mend, self.repair = mender.look_again, mender.mend, mender.repair
        self.renew_checkpoint, self.leave_lost_end = mender.renew_checkpoint, mender.leave_lost_end
        self.damaged_ranges, self.give_up = self.damage.ranges, self.damage.give_up

    @property
    def is_dirty(self) -> bool:
        """Returns True if a write waits for a flush."""
        return self._flusher.is_dirty

    def end_flush(self, flush: Flush, error: OSError | None) -> None:
        """Ends a flush: on success `durable_offset` covers it, and the files of deleted segments are removed; on an
        error the log is offline."""
        self._flusher.end(flush, error)
        # Only a flush that succeeded: the row that orders the deletion must be durable before files go.
        if self.offline_reason is None:
            self._deleter.remove_doomed()

    def flush(self) -> None:
        """Begins a flush, runs it and ends it. Blocking; no other flush may be under way."""
        flush = self.begin_flush()
        self.end_flush(flush, attempt(flush.run))

    def close(self, high_watermark: int) -> None:
        """Flushes the log, stores its metainfo, and closes the files. Blocking; no flush may be under way.

        Raises `OSError` or `Overloaded` if metainfo could not be stored: the files are closed all the same, and the
        next opening checks more.
        """
        try:
            self._settle()
            if self.offline_reason is None:
                self.store_metainfo(self.metainfo(high_watermark))
        finally:
            # What could not be flushed is given up: its handles close, and the next opening looks at what the disk has.
            self._flusher.disown_all()
            self._deleter.close_files()

    def _settle(self) -> None:
        if self.is_dirty:
            self.flush()
        # An opening reads all rows of the last segment, but of others only the seal.
        if self.active.body_rows > ROWS_LEFT_MAX:
            with suppress(TidelogError):
                self.roll(self.rolled_ms)
        self.mark()
        if self.offline_reason is None:
            # The mark waits for no flush by itself, so the catalog is named here: after a clean stop all lies below D.
            self._flusher.soil(self.active.catalog_path)
            self.flush()
