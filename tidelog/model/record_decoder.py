"""The bytes of a batch's records back to records: one loop that trusts nothing.

`batch_codec` shows the layout. Every length, count and delta is held against the bytes that are there, so a batch
that lies gives `InvalidBatch`, whoever made its CRC right. The loop is long on purpose, with varints of one and two
bytes read in place: a call per field would halve its speed.
"""

from __future__ import annotations

from tidelog.model.batch_header import TIMESTAMP_DELTA_MS_MAX, BatchHeader
from tidelog.model.errors import InvalidBatch
from tidelog.model.records import Header
from tidelog.model.varint import decode_folded, decode_varint

Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""Offset, timestamp, key, value, headers."""

_NULL_FOLDED = 1
_TIMESTAMP_DELTA_FOLDED_MAX = 2 * TIMESTAMP_DELTA_MS_MAX


def decode_records(  # noqa: C901, PLR0912, PLR0915 - a hot loop
    data: bytes, header: BatchHeader, count: int, delta_min: int = 0
) -> list[Row]:
    """The one loop, for `count` records whose offset deltas begin with `delta_min` or more. `IndexError` where the data
    ends too early.

    Each varint is read in place if it has one or two bytes. `folded` values keep their sign in bit 0: a length or an
    offset delta that has it is negative, so a lie, but for the lengths that mean null. `twice_end` is where the
    record must end, doubled, so that an odd (negative) record length can never be met.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    rows: list[Row] = []
    add = rows.append
    position = 0
    folded_next = 2 * delta_min
    for _ in range(count):
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
            folded_next = folded
        folded_next += 2

        key = value = None
        folded_length = data[position]
        position += 1
        if folded_length > 0x7F:
            folded_length, position = decode_folded(data, position - 1)
        if not folded_length & 1:
            end = position + (folded_length >> 1)
            key = data[position:end]
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

        headers: tuple[Header, ...] = ()
        if data[position]:
            headers, position = decode_headers(data, position)
        else:
            position += 1
        if position + position != twice_end:
            raise InvalidBatch("a record's length is not the sum of its parts")
        add((base_offset + (folded >> 1), timestamp, key, value, headers))
    if position != len(data):
        raise InvalidBatch(f"{len(data) - position} bytes after the last record")
    if folded_next > 2 * (header.last_offset_delta + 1):
        raise InvalidBatch("a record's offset is after the batch's last_offset_delta")
    return rows


def decode_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    """The headers that start, with their count, at `position`, and the position after them.

    Raises `InvalidBatch`, or `IndexError` where the data ends too early.
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
