"""The scrubber of one log: reads and verifies all of it, a bounded piece at a time, again and again.

Bytes that nobody reads rot unseen, until the last good copy elsewhere has rotted, too. So every batch and every catalog
row is verified now and then, while another replica can still repair it.

A piece has three steps, like a flush, so that the event loop does not wait for the disk: `begin` says what is to be
read, `Piece.run` reads it, possibly on the disk thread, and `end` takes the result. The log is used meanwhile. So what
did not verify is only suspected, and is read once more before it counts as damaged, since a truncation may have changed
it under the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.storage.log_reader import LogReader
from tidelog.storage.log_state import LogState
from tidelog.storage.rows import ROW_BYTES, Row
from tidelog.storage.segment import Damage, Segment

PIECE_ROWS = 512


@dataclass(slots=True)
class ScrubStep:
    """The result of one scrubbed piece."""

    bytes_read: int = 0
    bad_rows: int = 0
    """Number of rows of catalogs (the segments' index files) that did not verify. Their content can be found in the
    batches."""
    mend_at: int | None = None
    """Offset to be passed to `PartitionLog.mend`, which repairs the bad rows; None without bad rows."""
    has_finished: bool = False
    """True if the end of the log was reached: the next piece begins again at its start."""


@dataclass(slots=True)
class Piece:
    """A piece of a log to verify: batches of one segment, or a range of its catalog rows."""

    segment: Segment
    release: Callable[[], None]
    rows: list[Row] = field(default_factory=list)
    slots: range = range(0)
    suspects: list[Row] = field(default_factory=list)
    bad_rows: int = 0

    def run(self) -> None:
        """Reads and verifies the piece. Blocking; may be called on another thread."""
        # On the disk thread, beside a log that lives on: what fails here is a suspicion, and no finding yet.
        self.suspects = [row for row in self.rows if not self.segment.holds(row)]
        if self.slots:
            self.bad_rows = self.segment.count_bad_rows(self.slots.start, len(self.slots))

    @property
    def size(self) -> int:
        """Returns the size of the piece's batches and rows, in bytes."""
        return sum(row.length for row in self.rows) + len(self.slots) * ROW_BYTES


class Scrubber:
    """Verifies a log piece by piece, and remembers the offset reached."""

    def __init__(self, state: LogState, reader: LogReader, offset: int = 0, *, with_rows: bool = True) -> None:
        """Begins the first round at `offset`; without `with_rows` only batches are verified, not catalog rows."""
        self._state = state
        self._reader = reader
        self._offset = offset
        self._with_rows = with_rows
        self._segment: Segment | None = None
        self._slot = 0

    def begin(self, budget_bytes: int) -> Piece | None:
        """Returns the next piece: batches of some `budget_bytes`, but at least one, or catalog rows. None at the end of
        a round.

        Raises `Overloaded`.
        """
        state = self._state
        while True:
            # What retention has deleted since the last piece is not to be read.
            self._offset = max(self._offset, state.log_start_offset)
            part = self._part()
            if part is None:
                self._offset, self._segment = 0, None
                return None
            if isinstance(part, Damage):
                self._pass(part)
                continue
            if part is not self._segment:
                self._segment, self._slot = part, 0
            # Rows of a segment first, then its batches, which are found by the rows.
            if self._with_rows and self._slot < part.slots:
                return self._piece_of_rows(part)
            piece = self._piece_of_batches(part, budget_bytes)
            if piece is not None:
                return piece

    def _part(self) -> Segment | Damage | None:
        """Returns the segment or the damaged range that holds the next durable offset; None at the end."""
        if self._offset >= self._state.durable_offset:
            return None
        parts = self._reader.parts(self._offset)
        return next((part for part in parts if isinstance(part, Damage) or part.end_offset > self._offset), None)

    def _pass(self, damage: Damage) -> None:
        self._state.damage.note(damage)
        self._offset = damage.end

    def _piece_of_rows(self, segment: Segment) -> Piece:
        slots = range(self._slot, min(self._slot + PIECE_ROWS, segment.slots))
        self._slot = slots.stop
        # Held until `end`: the event loop must not close these files under the disk thread, also if the log is
        # truncated.
        return Piece(segment, self._state.files.hold(segment), slots=slots)

    def _piece_of_batches(self, segment: Segment, budget_bytes: int) -> Piece | None:
        """Returns a piece of the next batches of a segment; None if only damage is left in it."""
        rows: list[Row] = []
        end, size = self._state.durable_offset, 0
        for entry in segment.entries(self._offset):
            if isinstance(entry, Damage):
                if not rows:
                    self._pass(entry)
                break
            # At least one batch, however large: a piece of none would never come past it.
            is_full = len(rows) >= PIECE_ROWS or (rows and size + entry.length > budget_bytes)
            if is_full or entry.base_offset >= end:
                break
            rows.append(entry)
            size += entry.length
            self._offset = entry.next_offset
        else:
            self._offset = max(self._offset, min(segment.end_offset, end))
        return Piece(segment, self._state.files.hold(segment), rows) if rows else None

    def end(self, piece: Piece) -> ScrubStep:
        """Reads suspected batches once more, which notes the damaged ones, and returns the result of the piece."""
        piece.release()
        state = self._state
        for row in piece.suspects:
            # Read once more, on the event loop, before it is called damaged: a truncation may have changed it under the
            # reader.
            if state.log_start_offset < row.next_offset <= state.log_end_offset:
                self._reader.extent(row.base_offset, 1, state.log_end_offset)  # notes it, if it is so
        return ScrubStep(piece.size, piece.bad_rows, piece.segment.base_offset if piece.bad_rows else None)
