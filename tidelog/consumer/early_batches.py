"""The batches of one partition that were fetched above its high watermark, and are not read yet
(`model/early_reads.py`).

The next fetch names the offsets that were fetched early, so that the broker leaves them out. Nothing is fetched early
while that text is too long: then reading in order goes on alone, until the high watermark has passed enough of them.

Pure: no clock, no tasks.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidelog.consumer.intervals import ProcessedOffsets
from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.model.early_reads import ABOVE_RANGES_MAX, AboveOffsets
from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Buffer

CHUNKS_MAX: Final = 2
"""Maximum fetched chunks above the high watermark: the one being read, and the next."""
ABOVE_CHARS_MAX: Final = 6_000
"""The length of the text that names what was fetched early; brokers take request lines of 8 KiB."""


class EarlyBatches:
    """The batches above the high watermark that were fetched and not read, and the offsets of all that were fetched."""

    def __init__(self) -> None:
        self.is_wanted = True
        """True while the reader takes batches above the high watermark; False while it has enough to process without
        them."""
        self.clear()

    def clear(self) -> None:
        """Forgets all, because reading in order begins elsewhere."""
        self._chunks: deque[deque[RecordBatch]] = deque()
        self._fetched = ProcessedOffsets(0)

    @property
    def is_full(self) -> bool:
        """True if chunks wait to be read that the reader is about to take: nothing more should be fetched before."""
        return self.is_wanted and len(self._chunks) >= CHUNKS_MAX

    def above(self, offset: int) -> str | None:
        """Returns the text that names what was fetched above `offset`, the offset of the next fetch in order; None if
        nothing should be fetched early."""
        self._fetched.add(self._fetched.low, offset)
        ranges = AboveOffsets(self._fetched.intervals)
        if not self.is_wanted or self.is_full or len(ranges) > ABOVE_RANGES_MAX:
            return None
        text = str(ranges)
        return text if len(text) <= ABOVE_CHARS_MAX else None

    def add(self, data: Buffer, offset: int) -> bool:
        """Adds the bytes of a fetch above the high watermark; `offset` is that of the next fetch in order. Returns
        False if there is no whole batch that was not fetched before.

        Raises `InvalidBatch` if the batches cannot be separated, or begin at or below `offset`: what is committed next
        would then be beyond the high watermark.
        """
        batches = list(iter_batches(data))
        if any(batch.header.base_offset <= offset for batch in batches):
            raise InvalidBatch(f"a batch above the high watermark begins at {offset} or below")
        chunk = deque[RecordBatch]()
        for batch in batches:
            header = batch.header
            if header.base_offset not in self._fetched or header.next_offset - 1 not in self._fetched:
                self._fetched.add(header.base_offset, header.next_offset)
                chunk.append(batch)
        if chunk:
            self._chunks.append(chunk)
        return bool(chunk)

    def next(self) -> RecordBatch | None:
        """Removes and returns the next batch, in the order in which they were released; None if there is none."""
        if not self._chunks:
            return None
        batch = self._chunks[0].popleft()
        if not self._chunks[0]:
            self._chunks.popleft()
        return batch


def split_at(data: Buffer, high_watermark: int) -> tuple[Buffer, Buffer]:
    """Returns the batches below the high watermark, and those above it, of an answer that may hold both. Raises
    `InvalidBatch` if the batches cannot be separated."""
    size, view = 0, memoryview(data)
    for batch in iter_batches(view):
        if batch.header.base_offset >= high_watermark:
            break
        size += len(batch.data)
    return view[:size], view[size:]
