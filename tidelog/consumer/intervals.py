"""The processed offsets of one partition, where records are processed out of order, and their form in a commit.

    offset      5  6  7  8  9  10  11  12
    processed   .  x  x  .  x   .   .   .       low offset 5, intervals [6, 8) and [9, 10)

Everything below the *low offset* is processed, and the record at the low offset is not. What is processed above it is
kept as sorted intervals, each with its first offset and the offset behind its last, with gaps between them. When the
gap below the first interval closes, the low offset moves to that interval's end.

The low offset is committed as any consumer's offset is, and the intervals are the text of the commit's metadata:

    tidelog-processed-1: base64url( CRC-32 of what follows, low offset, and of each interval its gap and its length )

An interval's gap is the number of offsets between it and the interval, or the low offset, before it. Numbers are
varints, so an interval takes 2 bytes where gap and length are below 64. The low offset is repeated because tools may
copy a commit's metadata to another offset, as MirrorMaker does with the offsets that it translates: intervals that were
written for another low offset are not this partition's. Text that is not of this form, or damaged, is not used; then
reading begins at the committed offset, and records that were processed above it come again.

Two bounds hold the text below 2,720 bytes, and so below a broker's `offset.metadata.max.bytes` (4,096 by default).

Pure.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from tidelog.model.errors import InvalidBatch, InvalidRequest
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.varint import decode_varint, encode_varint

PREFIX: Final = "tidelog-processed-1:"
"""The beginning of the metadata of a commit with intervals; the number is the version of the form."""
INTERVALS_MAX: Final = 1_000
"""The number of intervals that a commit may hold."""
INTERVAL_BYTES_MAX: Final = 2_000
"""The size of all intervals of a commit (bytes), before base64."""
CRC_BYTES: Final = 4
TEXT_BYTES_MAX: Final = 2_720
"""The size of the metadata of a commit (bytes), prefix included."""


class ProcessedOffsets:
    """The processed offsets of one partition: all below `low`, and `intervals` above it."""

    __slots__ = ("_ends", "_size", "_starts", "low")

    def __init__(self, low: int, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self.low = low
        """The offset of the first record that is not processed, or of the next record if all are."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._size = 0
        """The size of the encoded intervals (bytes), before base64."""
        for start, end in intervals:
            self.add(start, end)

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """The intervals above the low offset, sorted; each is a first offset and the offset behind the last."""
        return list(zip(self._starts, self._ends, strict=True))

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset)
        return offset < (self._ends[index - 1] if index else self.low)

    def add(self, start: int, end: int) -> None:
        """Adds the offsets from `start` up to, and without, `end`."""
        if start <= self.low and not self._starts:
            self.low = max(self.low, end)
            return
        start = max(start, self.low)
        if end <= start:
            return
        first = bisect_left(self._ends, start)
        behind = bisect_right(self._starts, end)
        if first < behind:
            start = min(start, self._starts[first])
            end = max(end, self._ends[behind - 1])
        self._size -= self._size_of(first, behind + 1)
        is_lowest = start == self.low
        self._starts[first:behind] = () if is_lowest else (start,)
        self._ends[first:behind] = () if is_lowest else (end,)
        if is_lowest:
            self.low = end
        self._size += self._size_of(first, first + (1 if is_lowest else 2))

    def _size_of(self, first: int, behind: int) -> int:
        """Returns the size of the encoded intervals from index `first` up to, and without, `behind` (bytes)."""
        size = 0
        previous_end = self._ends[first - 1] if first else self.low
        for start, end in zip(self._starts[first:behind], self._ends[first:behind], strict=True):
            size += _size(start - previous_end) + _size(end - start)
            previous_end = end
        return size

    def up_to(self, end: int) -> ProcessedOffsets:
        """Returns these offsets with a low offset of `end` at most: then the record at `end` counts as not processed,
        and comes again."""
        return self if self.low <= end else ProcessedOffsets(end, [(end + 1, self.low), *self.intervals])

    def fill_level(self, additions: int, end: int) -> float:
        """Returns how full a commit is once `additions` more intervals below offset `end` are added: the used share of
        `INTERVALS_MAX` or `INTERVAL_BYTES_MAX`, whichever is larger. Above 1 they may not all fit."""
        growth = 2 * _size(max(1, end - self.low))  # a new interval's length, and the gap that it splits in two
        return max(
            (len(self._starts) + additions) / INTERVALS_MAX, (self._size + additions * growth) / INTERVAL_BYTES_MAX
        )

    def encode(self) -> str:
        """Returns the metadata of a commit at the low offset; "" if there are no intervals. If not all
        fit into `INTERVALS_MAX` and `INTERVAL_BYTES_MAX`, the highest are left out: their records come again after a
        restart."""
        body = bytearray(encode_varint(self.low))
        size_max = len(body) + INTERVAL_BYTES_MAX
        previous_end = self.low
        for start, end in self.intervals[:INTERVALS_MAX]:
            interval = encode_varint(start - previous_end) + encode_varint(end - start)
            if len(body) + len(interval) > size_max:
                break
            body += interval
            previous_end = end
        if previous_end == self.low:
            return ""
        return PREFIX + urlsafe_b64encode(crc32(body).to_bytes(CRC_BYTES) + body).rstrip(b"=").decode()


def decode_processed(low: int, metadata: str) -> ProcessedOffsets:
    """Returns the processed offsets of a commit at offset `low`. Raises `InvalidRequest` if the metadata is not what
    `encode` writes for that offset."""
    if not metadata:
        return ProcessedOffsets(low)
    if not metadata.startswith(PREFIX):
        raise InvalidRequest(f"the commit's metadata is another program's: it does not begin with {PREFIX}")
    if len(metadata) > TEXT_BYTES_MAX:
        raise InvalidRequest(f"the commit's metadata is damaged: it has more than {TEXT_BYTES_MAX} bytes")
    body = _body(metadata.removeprefix(PREFIX))
    try:
        numbers = _numbers(body)
    except (IndexError, InvalidBatch) as error:
        raise InvalidRequest("the commit's metadata is damaged: a number is cut off, or too large") from error
    written_for, *lengths = numbers
    if written_for != low:
        raise InvalidRequest(f"the commit's metadata was written for offset {written_for}, and stands at {low}")
    if not lengths or len(lengths) % 2 or len(lengths) > 2 * INTERVALS_MAX or min(lengths) < 1:
        raise InvalidRequest("the commit's metadata is damaged: its numbers are no intervals")
    if low + sum(lengths) > OFFSET_MAX + 1:
        raise InvalidRequest("the commit's metadata is damaged: its intervals end beyond all offsets")
    processed = ProcessedOffsets(low)
    end = low
    for gap, length in zip(lengths[::2], lengths[1::2], strict=True):
        processed.add(end + gap, end + gap + length)
        end += gap + length
    return processed


def _body(text: str) -> bytes:
    """Returns the decoded bytes of a commit's metadata behind their checksum. Raises `InvalidRequest` if the checksum
    is wrong."""
    try:
        data = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("the commit's metadata is damaged: it is not in base64url") from error
    checksum, body = data[:CRC_BYTES], data[CRC_BYTES:]
    if not body or crc32(body) != int.from_bytes(checksum):
        raise InvalidRequest("the commit's metadata is damaged: its checksum does not match")
    return body


def _numbers(body: bytes) -> list[int]:
    numbers, position = list[int](), 0
    while position < len(body):
        number, position = decode_varint(body, position)
        numbers.append(number)
    return numbers


def _size(number: int) -> int:
    """Returns the size of a positive number as a varint (bytes): 7 bits in each, one of all for the sign."""
    return (number.bit_length() + 7) // 7
