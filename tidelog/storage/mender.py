"""Repair of a log's damage: batches from other replicas' copies, catalog rows from what the log itself still shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidelog.model.errors import DiskFull, Overloaded
from tidelog.model.ports import Buffer
from tidelog.storage.appender import Appender
from tidelog.storage.log_reader import LogReader
from tidelog.storage.log_state import LogState
from tidelog.storage.repair import Repair, repair_batch
from tidelog.storage.row_repair import mend_rows
from tidelog.storage.segment import Damage, Segment


class Mender:
    """Repairs damage in the middle of one log. Blocking, but for `look_again`, `leave_lost_end` and
    `renew_checkpoint`."""

    def __init__(self, state: LogState, reader: LogReader, appender: Appender) -> None:
        self._state = state
        self._reader = reader
        self._appender = appender

    def look_again(self, damage: Damage) -> None:
        """Reads a damaged range again, and removes from it what can be read now: read errors may be transient. Reads
        one batch."""
        start = max(damage.start, self._state.log_start_offset)
        extent = self._reader.extent(start, 1, self._state.log_end_offset)
        if extent.data:
            self._state.damage.forget(damage.start, extent.next_offset)

    def mend(self, offset: int) -> None:
        """Writes the damaged catalog rows of the segment that holds `offset` again, durably, as far as the log shows
        what they said. Raises `OSError`: the log is offline then."""
        part = next(self._reader.parts(offset), None)
        # Of a log that is offline, memory may know of rows that the disk has lost; rows made from that would vouch for
        # them.
        if self._state.offline_reason is not None or not isinstance(part, Segment):
            return
        with self._or_offline():
            mend_rows(self._state.files.codec, part, self._state.tail)

    def renew_checkpoint(self) -> bool:
        """Rolls a new segment if the checkpoint at the start of the active one's catalog is damaged: as long as the log
        is open, its content is in memory. Returns True if it did; the new segment waits for a flush. Must run on the
        event loop, not during a truncation. Raises `LogOffline` or `InternalError`."""
        active = self._state.active
        # Only while the log is open does anybody know what the checkpoint said: it is read once, and the rows behind it
        # do not tell what older segments amounted to.
        if self._state.offline_reason is not None or not active.has_lost_checkpoint:
            return False
        with suppress(DiskFull, Overloaded):
            self._appender.roll(self._state.rolled_ms)
        return self._state.active is not active

    def leave_lost_end(self) -> None:
        """Rolls a new segment if the active one ends with lost offsets: their batches can be put back only into a
        segment that is not appended to. Must run on the event loop. Raises `LogOffline` or `InternalError`."""
        if self._state.active.lost_at_end:
            with suppress(DiskFull, Overloaded):  # then the next append does
                self._appender.roll(self._state.rolled_ms)

    def repair(self, data: Buffer, *, belongs_there: bool = False) -> Repair:
        """Writes a replica's copy of a batch in place of the damaged one, durably, if the digest in the catalog row
        proves it to be the same batch. If only the row is damaged, it is made again; with `belongs_there`, the caller
        vouches for the copy where row and batch are both lost. See `tidelog.storage.repair`.

        Raises `InvalidBatch` if these bytes are no sound batch, `OffsetOutOfRange`, `Overloaded`, or `LogOffline`; or
        `OSError`: the log is offline then.
        """
        self._state.require_online()
        with self._or_offline():
            # A crash half-way leaves a damaged batch damaged. A failed fsync is final all the same, so the log takes no
            # more writes.
            verdict, healed = repair_batch(self._state, self._reader, data, belongs_there=belongs_there)
        if healed is not None:
            self._state.damage.forget(healed.start, healed.end)
        return verdict

    @contextmanager
    def _or_offline(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._state.take_offline(f"repair failed: {error}")
            raise
