"""Decodes a decompressed batch in parts: each is a slice of work (`model.steps`) whatever the sizes of its records, and
a part is decoded only when it is requested.

A part is found by the records' lengths alone, then decoded by `record_decoder`, which checks them. A record that is
longer than a slice is a part of its own, up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tidelog.model.batch_codec import decode_part, stored_records
from tidelog.model.batch_header import BatchHeader
from tidelog.model.errors import InvalidBatch
from tidelog.model.records import StoredRecord
from tidelog.model.steps import SLICE_BYTES, SLICE_RECORDS
from tidelog.model.varint import decode_folded, decode_varint

_HEAD_BYTES = 32
"""Bytes that hold at least a record's length, attributes and deltas: three varints of at most ten bytes, and one
byte."""


class LongRecordError(Exception):
    """A record is longer than the caller's bound. `offset` is that record's."""

    def __init__(self, offset: int, size: int) -> None:
        self.message = f"the record at offset {offset} has {size} bytes"
        super().__init__(self.message)
        self.offset = offset


def record_slices(
    records: memoryview, header: BatchHeader, *, record_bytes_max: int, start_offset: int = 0
) -> Iterator[list[StoredRecord]]:
    """Yields all records from `start_offset` on, in lists that may be empty. `records` are decompressed, and `header`
    has passed `check_batch`.

    Raises `InvalidBatch` if the bytes contradict the header, and `LongRecordError` for a record of more than
    `record_bytes_max` bytes.
    """
    position = done = delta_min = 0
    while done < header.record_count:
        size, count = _part_at(records, position, min(SLICE_RECORDS, header.record_count - done))
        if count == 1 and size > record_bytes_max:
            offset = _offset_at(records, position, header)
            if offset >= start_offset:
                raise LongRecordError(offset, size)
            delta_min = offset - header.base_offset + 1
            yield []
        else:
            some = _some(records[position : position + size], header, count, delta_min)
            delta_min = some[-1].offset - header.base_offset + 1
            yield [record for record in some if record.offset >= start_offset]
        position += size
        done += count
    if position != len(records):
        raise InvalidBatch(f"{len(records) - position} bytes after the last record")


def _some(part: memoryview, header: BatchHeader, count: int, delta_min: int) -> list[StoredRecord]:
    if len(part) <= SLICE_BYTES:
        return stored_records(decode_part(part.tobytes(), header, count, delta_min))
    # A long record is decoded where it is: a view can do all that the decoder asks of bytes, and its value is copied
    # once, here.
    (record,) = stored_records(decode_part(cast("bytes", part), header, count, delta_min))
    headers = tuple((name, _copied(content)) for name, content in record.headers)
    return [record._replace(key=_copied(record.key), value=_copied(record.value), headers=headers)]


def _copied(part: bytes | None) -> bytes | None:
    return None if part is None else bytes(part)


def _part_at(records: memoryview, position: int, count_max: int) -> tuple[int, int]:
    """Returns the size in bytes and the number of records of the part at `position`: one slice with up to `count_max`
    records, but at least one record."""
    data = bytes(records[position : position + SLICE_BYTES])
    end = count = 0
    try:
        while count < count_max:
            folded = data[end]
            if folded > 0x7F:
                folded, start = decode_folded(data, end)
            else:
                start = end + 1
            if folded & 1:
                raise InvalidBatch("a record of negative length")
            if start + (folded >> 1) > len(data):
                break
            end = start + (folded >> 1)
            count += 1
    except IndexError:  # the slice ends within a length
        pass
    return (end, count) if count else (_size_at(records, position), 1)


def _size_at(records: memoryview, position: int) -> int:
    """Returns the size in bytes of a record that is longer than a slice. Raises `InvalidBatch` if the batch ends within
    it."""
    try:
        length, start = decode_varint(bytes(records[position : position + _HEAD_BYTES]), 0)
    except IndexError:
        raise InvalidBatch("the batch ends within a record") from None
    if length > len(records) - position - start:
        raise InvalidBatch("the batch ends within a record")
    return start + length


def _offset_at(records: memoryview, position: int, header: BatchHeader) -> int:
    head = bytes(records[position : position + _HEAD_BYTES])
    _, start = decode_varint(head, 0)
    _, start = decode_varint(head, start + 1)  # the timestamp's delta, after the attributes
    delta, _ = decode_varint(head, start)
    return header.base_offset + delta
