"""How far a log is durable, and where it begins, according to the marks in its segments.

A seal, a segment's header and each row name the row sequence below which all was durable when it was written, and the
log start offset of then. None says more than was true before it, so the highest of them all counts.
"""

from __future__ import annotations

from tidelog.storage.rows import ROW_BYTES, Row, RowCodec
from tidelog.storage.segment import Segment


class Marks:
    """The highest marks found so far in one log."""

    def __init__(self, codec: RowCodec) -> None:
        self.durable = 0
        """The highest row sequence that any mark declares durable."""
        self.log_start_offset = 0
        self.seals: dict[int, Row] = {}
        """The sound seals, by the base offset of their segment."""
        self._codec = codec

    def note(self, durable: int, log_start_offset: int) -> None:
        """Takes what one mark says."""
        self.durable = max(self.durable, durable)
        self.log_start_offset = max(self.log_start_offset, log_start_offset)

    def open_sealed(self, segment: Segment) -> bool:
        """Opens a segment by its header and its seal, if both are sound; returns True if they are."""
        seal = segment.open_sealed()
        if seal is not None:
            self.seals[segment.base_offset] = seal
        return seal is not None

    def read(self, segment: Segment, next_base_offset: int) -> None:
        """Reads the marks of a segment; unless that is sealed, finds where its catalog rows begin, and how many there
        are."""
        seal = self.seals.get(segment.base_offset)
        if seal is not None:
            self.note(seal.durable, seal.start_offset)
            return
        # Rounded up: half a row at the end is a torn row, and has a slot to be made again in.
        segment.slots = -(-segment.catalog.size() // ROW_BYTES)
        header = segment.open_header()
        if header is not None:
            self.note(header.durable, header.log_start_offset)
        else:
            # A lost header costs the numbers of its rows. They must be found again, since a row out of its place is no
            # row.
            self._infer_header(segment, next_base_offset)
        # No row says more than was true before it: those below the mark that is known already say nothing new.
        for row in segment.rows(max(segment.body_slot, self.durable - segment.first_sequence)):
            if row is not None:
                self.note(row.durable, row.start_offset)

    def _infer_header(self, segment: Segment, next_base_offset: int) -> None:
        """Finds the row sequences of a segment whose catalog header is damaged: its rows begin behind the last
        checkpoint row, and are numbered from the first sound row. Rows that belong to other offsets are ignored."""
        segment.body_slot, segment.first_sequence = 1, -1
        for slot in range(1, segment.slots):
            raw = segment.raw_rows(slot, 1)
            row = self._codec.body(raw)
            if row is not None and segment.base_offset <= row.base_offset < row.next_offset <= next_base_offset:
                segment.first_sequence = row.sequence - slot
                return
            if self._codec.parse_checkpoint(raw) is not None:
                segment.body_slot = slot + 1
