"""Reading what a leader has released above the high watermark (`model/early_reads.py`).

A reader gets released batches only behind everything below the high watermark, and in the order of their offsets,
without leaving out any that it lacks. A batch is released after those that it waits for, so the reader
has these already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.model.batch_header import RecordBatch, iter_batches
from tidelog.model.early_reads import AboveOffsets

RANGES_MAX: Final = 64
"""Maximum ranges above the high watermark in one answer, which names them in a header: common clients refuse headers of
8 KiB."""


@dataclass(frozen=True, slots=True)
class EarlyBatch:
    """A released batch, and the first of its offsets that the reader lacks."""

    start: int
    batch: RecordBatch

    @property
    def range(self) -> tuple[int, int]:
        """The offsets that are new to the reader: the first, and the one behind the last."""
        return self.start, self.batch.header.next_offset


@dataclass(frozen=True, slots=True)
class EarlyReader:
    """A reader of a partition that this broker leads, which has some offsets above the high watermark."""

    led: LedPartition
    above: AboveOffsets

    def batches(self, fetched: FetchedBatches, bytes_max: int) -> list[EarlyBatch]:
        """Returns the released batches that the reader lacks, so that they and `fetched` have at most `bytes_max`
        bytes, but at least one batch. None if `fetched` ends below the high watermark.

        Has to be called before the high watermark moves, and returns none after that.
        """
        if not fetched.next_offset == fetched.high_watermark == self.led.high_watermark:
            return []
        taken = list[EarlyBatch]()
        size, ranges, end = len(fetched.data), 0, fetched.next_offset
        for early in self._missing():
            start, behind = early.range
            ranges += start != end
            if ranges > RANGES_MAX or (size and size + len(early.batch.data) > bytes_max):
                break
            taken.append(early)
            size, end = size + len(early.batch.data), behind
        return taken

    def has_data(self, offset: int, bytes_min: int) -> bool:
        """Returns True if a read at `offset` need not wait: `bytes_min` committed bytes are there, or a released batch
        that the reader lacks, or it would raise an error."""
        return self.led.bytes_ready(offset, bytes_min) >= bytes_min or any(True for _ in self._missing())

    def _missing(self) -> Iterator[EarlyBatch]:
        released = self.led.released()
        # Without a hole below, they are about to be committed. A reader that committed them before could begin beyond
        # the high watermark.
        if not released or released[0].base_offset <= self.led.high_watermark:
            return
        for batches in released:
            if self.above.first_missing(batches.base_offset, batches.next_offset) == batches.next_offset:
                continue
            data = batches.read()
            if data is None:  # those behind it may wait for it
                return
            for batch in iter_batches(data):
                header = batch.header
                start = self.above.first_missing(header.base_offset, header.next_offset)
                if start < header.next_offset:
                    yield EarlyBatch(start, batch)
