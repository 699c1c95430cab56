"""The newest batches of a leader's log in memory, for followers that keep up.

A follower that keeps up fetches batches that were appended a moment ago from a request's buffer. As long as a member of
the in-sync set lacks them, that buffer is kept: followers are sent it as it is, without reading the log, and so without
a system call, a lookup of index entries, a digest or a copy. (A follower checks the CRC of each batch.) A follower that
is behind by more than the memory limit is served from the disk.

A batch is a view of its request's whole body, which stays in memory as long as any of its batches does.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model.batch_header import RecordBatch
from tidelog.model.ports import Buffer

PARTITION_BYTES_MAX = 4 << 20
BROKER_BYTES_MAX = 64 << 20
BUFFERS_MAX = 64
"""The most buffers in an answer. More buffers, of small batches, are joined, which costs less than passing each to the
system."""


class RecentBytes:
    """The bytes that the recent batches of all partitions of a broker hold, and their limit."""

    def __init__(self, bytes_max: int = BROKER_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    @property
    def is_over(self) -> bool:
        return self.used > self.bytes_max


class RecentBatches:
    """The newest batches of one partition, contiguous: each batch begins where the one before it ends."""

    def __init__(self, shared: RecentBytes, bytes_max: int = PARTITION_BYTES_MAX) -> None:
        self._shared = shared
        self._bytes_max = bytes_max
        self._batches: dict[int, RecordBatch] = {}
        """The batches by base offset."""
        self._start_offset = self._end_offset = 0
        self._bytes = 0

    def add(self, batches: Sequence[RecordBatch]) -> None:
        """Adds batches that were appended; drops the oldest ones beyond the limits."""
        for batch in batches:
            base_offset = batch.header.base_offset
            # Appends that did not go through here leave a gap, and what is behind it must not be sent as if it
            # followed.
            if base_offset != self._end_offset:
                self.clear()
                self._start_offset = base_offset
            self._batches[base_offset] = batch
            self._end_offset = batch.header.next_offset
            self._count(batch.header.size)
        # Whoever gets too far behind is served from the disk.
        while self._batches and (self._bytes > self._bytes_max or self._shared.is_over):
            self._drop_first()

    def since(self, offset: int, bytes_max: int) -> list[Buffer]:
        """Returns whole batches from the one that begins at `offset`: at most `bytes_max`, but at least one; none if
        that batch is not in memory."""
        buffers: list[Buffer] = []
        batch = self._batches.get(offset)
        while batch is not None:
            bytes_max -= batch.header.size
            # One batch always goes, or a large one would never be copied.
            if buffers and bytes_max < 0:
                break
            buffers.append(batch.data)
            batch = self._batches.get(batch.header.next_offset)
        return [b"".join(buffers)] if len(buffers) > BUFFERS_MAX else buffers

    def drop_below(self, offset: int) -> None:
        """Drops the batches that end at `offset` or before."""
        while self._batches and self._batches[self._start_offset].header.next_offset <= offset:
            self._drop_first()

    def clear(self) -> None:
        """Drops all batches."""
        self._batches.clear()
        self._count(-self._bytes)

    def _drop_first(self) -> None:
        header = self._batches.pop(self._start_offset).header
        self._start_offset = header.next_offset
        self._count(-header.size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._shared.used += size
