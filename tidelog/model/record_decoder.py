"""Decodes the bytes of a batch's records into columns: a list of their offsets, one of their timestamps, and so on.

`batch_codec` shows the layout. Every length, count and delta is compared with the bytes that are there, so a malformed
batch raises `InvalidBatch` even if its CRC is right. Callers that need records zip the columns.

Two loops alternate. `record_runs` decodes plain records of the same shape, in half the time. The loop here decodes any
record. It is long on purpose, with varints of one and two bytes read in place: a call per field would halve its speed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.model.batch_header import TIMESTAMP_DELTA_MS_MAX, BatchHeader
from tidelog.model.errors import InvalidBatch
from tidelog.model.record_runs import decode_run
from tidelog.model.records import Header
from tidelog.model.varint import decode_folded, decode_varint

RECORD_BYTES_MIN: Final = 7
"""Size in bytes of the smallest record: one byte for each of its numbers."""
RUN_RECORDS_MIN: Final = 4
"""Minimum number of records that are worth decoding as a run (consecutive plain records of one shape,
`record_runs`)."""
STRANGE_RECORDS_MAX: Final = 63
"""Maximum records that are decoded one by one before the faster decoder of `record_runs` is tried again."""

_NULL_FOLDED = 1
_TIMESTAMP_DELTA_FOLDED_MAX = 2 * TIMESTAMP_DELTA_MS_MAX


class Columns(NamedTuple):
    """The fields of several records of a batch, in order; each column has one element per record."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]


def decode_records(data: bytes, header: BatchHeader, count: int, delta_min: int = 0) -> Columns:
    """Decodes `count` records; `delta_min` is the smallest offset delta that the first may have. Raises `IndexError` if
    the data ends too early."""
    if count > len(data) // RECORD_BYTES_MIN:
        raise IndexError
    columns = Columns([], [], [None] * count, [], [()] * count)
    position, delta, left, strange = 0, delta_min, count, 1
    while left >= RUN_RECORDS_MIN:
        position, after = decode_run(
            data, position, delta, left, header.base_timestamp, columns.timestamps_ms, columns.keys, columns.values
        )
        strange = 0 if after >= delta + RUN_RECORDS_MIN else min(2 * strange + 1, STRANGE_RECORDS_MAX)
        left -= after - delta
        position, delta = _decode_any(data, position, after, min(left, strange), header, columns)
        left = count - len(columns.values)
    position, delta = _decode_any(data, position, delta, left, header, columns)
    if position != len(data):
        raise InvalidBatch(f"{len(data) - position} bytes after the last record")
    if delta > header.last_offset_delta + 1:
        raise InvalidBatch("a record's offset is after the batch's last_offset_delta")
    _count_up(columns.offsets, count, header.base_offset + delta)
    return columns


def _count_up(offsets: list[int], count: int, end: int) -> None:
    """Appends consecutive offsets to `offsets` until it has `count` elements; the last one is `end` - 1."""
    offsets += range(end - (count - len(offsets)), end)


def _decode_any(  # noqa: C901, PLR0912, PLR0915 - a call per field would halve its speed
    data: bytes, position: int, delta_min: int, count: int, header: BatchHeader, columns: Columns
) -> tuple[int, int]:
    """Decodes `count` records at `position`. Returns the position after them, and the smallest offset delta that the
    next may have.

    Each varint is read in place if it has one or two bytes. `folded` values keep their sign in bit 0: a length or an
    offset delta that has it is negative, so malformed, except for the lengths that mean null. `twice_end` is where the
    record must end, doubled, so that an odd (negative) record length can never be met.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    offsets, timestamps_ms, keys, values, all_headers = columns
    add_timestamp, add_value = timestamps_ms.append, values.append
    folded_next = 2 * delta_min
    first = len(values)
    for record in range(first, first + count):
        folded = data[position]
        position += 1
        if folded > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded, position = decode_folded(data, position - 1)
            else:
                folded = folded & 0x7F | high << 7
                position += 1
        twice_end = position + position + folded

        folded = data[position + 1]  # the timestamp delta, after the attributes, which have no meaning yet
        position += 2
        if folded > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded, position = decode_folded(data, position - 1)
                if folded > _TIMESTAMP_DELTA_FOLDED_MAX:
                    raise InvalidBatch(f"a timestamp is {folded >> 1} ms away from the first one")
            else:
                folded = folded & 0x7F | high << 7
                position += 1
        timestamp = base_timestamp + ((folded >> 1) ^ -(folded & 1))

        folded = data[position]
        position += 1
        if folded > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded, position = decode_folded(data, position - 1)
            else:
                folded = folded & 0x7F | high << 7
                position += 1
        if folded != folded_next:  # compaction leaves gaps, but never goes back
            if folded < folded_next or folded & 1:
                raise InvalidBatch(f"a record's offset is not after the one before it, from offset {base_offset} on")
            _count_up(offsets, record, base_offset + (folded_next >> 1))
            folded_next = folded
        folded_next += 2

        value = None
        folded_length = data[position]
        position += 1
        if folded_length > 0x7F:
            folded_length, position = decode_folded(data, position - 1)
        if not folded_length & 1:
            end = position + (folded_length >> 1)
            keys[record] = data[position:end]
            position = end
        elif folded_length != _NULL_FOLDED:
            raise InvalidBatch("a key of negative length")

        folded_length = data[position]
        position += 1
        if folded_length > 0x7F:
            high = data[position]
            if high > 0x7F:
                folded_length, position = decode_folded(data, position - 1)
            else:
                folded_length = folded_length & 0x7F | high << 7
                position += 1
        if not folded_length & 1:
            end = position + (folded_length >> 1)
            value = data[position:end]
            position = end
        elif folded_length != _NULL_FOLDED:
            raise InvalidBatch("a value of negative length")

        if data[position]:
            all_headers[record], position = decode_headers(data, position)
        else:
            position += 1
        if position + position != twice_end:
            raise InvalidBatch("a record's length is not the sum of its parts")
        add_timestamp(timestamp)
        add_value(value)
    return position, folded_next >> 1


def decode_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    """Decodes the headers at `position`, which begin with their count. Returns them and the position after them.

    Raises `InvalidBatch`, or `IndexError` if the data ends too early.
    """
    count, position = decode_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise InvalidBatch(f"{count} headers in a record")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _decode_field(data, position)
        if name is None:
            raise InvalidBatch("a header without a name")
        content, position = _decode_field(data, position)
        headers.append((str(name, errors="replace"), content))
    return tuple(headers), position


def _decode_field(data: bytes, position: int) -> tuple[bytes | None, int]:
    folded = data[position]
    position += 1
    if folded > 0x7F:
        folded, position = decode_folded(data, position - 1)
    if folded & 1:
        if folded != _NULL_FOLDED:
            raise InvalidBatch("a header field of negative length")
        return None, position
    end = position + (folded >> 1)
    if end > len(data):
        raise InvalidBatch(f"a header field of {end - position} bytes, where {len(data) - position} are left")
    return data[position:end], end
